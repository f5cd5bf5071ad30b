// Package worker runs jobs: it reads them from its pool's ready stream, gives each to the handler of its type, and
// tells Redis how it ended.
//
//	                  ┌───────────────────────────── session: one registration ─────────────────────────────┐
//	ready stream ──▶ read ──▶ held ──▶ handle, one goroutine a slot ───────────────────────┐                │
//	                  │                  drained? past its deadline? a handler for it?     │                │
//	                  │ keep: heartbeat  breaker gate ──▶ middleware ──▶ handler           │                │
//	                  └────────────────────────────────────────────────────────────────────┼────────────────┘
//	                                                                                       ▼
//	  scheduler      breakers: report, follow                              finisher: done, retry, dead letter, back
//
// # The lease
//
// What Redis leases is the worker, not the job: one heartbeat, three times a lease or oftener, extends all that it holds. By
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
// # Slots
//
// A slot is taken until its job's end goes out to Redis, not until that is answered: the read of the next job reaches Redis while the call that makes room
// for it is carried out. So no more handlers run than there are slots, while up to as many jobs again are held whose ends are not answered yet. Redis
// hands out no more than it has slots for: an entry leaves the ready stream by the call that ends its job alone.
//
// # Lost replies
//
// Redis takes a job for held once it has answered a read, whether the answer arrived or not. So after a read that
// failed, the history (what this consumer holds) is read before anything new, and what is not known yet is started.
// An ending whose answer was lost is sent again, until it is answered. What a master took from this worker and lost when it was
// replaced comes back to it within a third of the lease, when it compares what it holds with what Redis says: at least once.
//
// # How a job ends
//
//	nil                      completed
//	Discard(err)             dead letter, "discarded"
//	Snooze(d)                back after d, no attempt burnt
//	RetryAfter(d, err)       an attempt burnt: back after d, or dead letter, "max_attempts"
//	any other error, panic   an attempt burnt: back after a backoff, or dead letter, "max_attempts"
//	whatever, but cancelled  gone as "cancelled", if this worker or Redis knew of it in time
//	payload not taken        dead letter, "bad_payload"
//	record not readable      dead letter, "unreadable", or "record_gone" where somebody has taken it away
//	deadline passed          expired, without a start
//	no handler for the type  back after 0.2-1 s, later and later each time in a row, up to 1-5 min; no attempt burnt
//	a suspect beside others  back after 0.2-1 s, no attempt burnt; see below
//	breaker not closed       back after 0.2-1 s, no attempt burnt; so is a probe that failed, after the cooldown
//	                         (that of the fleet, or the worker's own while it is alone with failing calls)
//	cut short by a drain     back at once, no attempt burnt
//	came as the guard shut   back at once, no attempt burnt
//
// # Suspects
//
// A job whose delivery was lost with a worker may be what killed it, and so may all that the worker held. Such suspects are a group,
// which runs together, and Redis is told before each starts. If a worker dies again, those of the group that it had begun are halved,
// and the halves never run in one worker at a time: so neighbours are late by a lease for each time they are halved, and nothing
// counts against them. A suspect that is left alone runs beside no other; a delivery lost then counts against it, and as many as the
// queue's poison limit make it a dead letter, "poison".
//
// # Cancelling
//
// A worker that holds jobs sends a heartbeat every 500 ms at least, and is told with the answer which of them were
// cancelled; it ends their ctx with ErrCancelled.
//
// # The guard
//
// With a Config.Guard the worker looks at what its process uses. At a limit it reads nothing any more, and tells Redis that it has
// no more slots than jobs in hand, so that others get what waits; what a read under way still brings goes back. Handlers and the lease
// go on. Some below the limit it has its slots again.
//
// # Shutdown
//
// Run's ctx ends the reading and begins the drain; drain.go says in which order and why. With Redis away the drain ends with the
// lease: from then on the jobs are Redis's. A read that is blocked in
// Redis cannot be interrupted: where another worker of the same pool lives, Run returns up to a second later for it.
package worker
