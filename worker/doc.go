// Package worker runs jobs: it reads them from its pool's ready stream, gives each to the handler of its type, and
// tells Redis how it ended.
//
//	                  ┌───────────────────────────── session: one registration ─────────────────────────────┐
//	ready stream ──▶ read ──▶ held ──▶ handle, one goroutine a slot ───────────────────────┐                │
//	                  │                  drained? past its deadline? a handler for it?     │                │
//	                  │ keep: heartbeat  breaker gate ──▶ middleware ──▶ handler           │                │
//	                  └────────────────────────────────────────────────────────────────────┼────────────────┘
//	                                                                                       ▼
//	  scheduler      breakers.run: shared gates                            finisher: done, retry, dead letter, back
//
// # The lease
//
// What Redis leases is the worker, not the job: one heartbeat, three times a lease, extends all that it holds. By
// this machine's monotonic clock the lease ends one Lease after the last heartbeat that came through was sent, since
// Redis may have counted from then. A tenth of it before that, the guard cancels every handler's ctx with
// headgate.ErrLeaseLost; a session thus ends, and the worker registers under a new name:
//
//	            register                     heartbeat refused, guard, pool gone
//	─────▶ new ──────────▶ live ─────────────────────────────────────────────────▶ lost ──▶ new
//	                         │ Run's ctx ended
//	                         └──────────────▶ draining ──▶ reclaimed
//
// What a handler of a lost session has completed is still reported: the token in the report fences it, so Redis takes
// it if the job is still this worker's, and refuses it if not.
//
// # Lost replies
//
// Redis takes a job for held once it has answered a read, whether the answer arrived or not. So after a read that
// failed, the history (what this consumer holds) is read before anything new, and what is not known yet is started.
// An ending whose answer was lost is sent again, until it is answered.
//
// # How a job ends
//
//	nil                      completed
//	Discard(err)             dead letter, "discarded"
//	Snooze(d)                back after d, no attempt burnt
//	any other error, panic   an attempt burnt: back after a backoff, or dead letter, "max_attempts"
//	payload not taken        dead letter, "bad_payload"
//	record not readable      dead letter, "unreadable"
//	deadline passed          expired, without a start
//	no handler for the type  back after 0.2-1 s, no attempt burnt
//	breaker not closed       back after 0.2-1 s, no attempt burnt; so is a probe that failed, after the cooldown
//	cancelled by a drain     back at once, no attempt burnt
//
// # Shutdown
//
// Run's ctx ends the reading and begins the drain; drain.go says in which order and why. A read that is blocked in
// Redis cannot be interrupted: where another worker of the same pool lives, Run returns up to a second later for it.
package worker
