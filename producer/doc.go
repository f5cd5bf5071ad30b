// Package producer is the SDK that enqueues jobs. It exists so that a program can say "run this" with one call and
// get one honest answer: admitted, duplicate, refused and why, or unknown.
//
//	Enqueue ───────┐        ┌──────────────── line ────────────────┐      at most InFlight calls at a time
//	EnqueueBatch ──┼─ticket▶│ ticket  ticket  ticket  ticket  …    │──board──▶ flight ──▶ one admit call ──▶ verdicts
//	EnqueueWait ───┘        └──────────────────────────────────────┘              ▲
//	                                                                  limits: the policy in force
//
// # Coalescing
//
// Concurrent calls share an admit call, and no timer is involved: what waits while a call is in flight goes with the
// next one, in the order in which it came, up to lua.MaxBatchJobs jobs and lua.MaxBatchBytes of payload. A Producer
// has no goroutines of its own. The caller at the head of the line flies for those behind it; when it has landed,
// the next head flies. A ticket is one caller's jobs on their way:
//
//	         place free                   landed
//	─────▶ leading ───────────▶ flying ───────────▶ settled
//	  │       ▲                  │  ▲
//	  │ else  │ head of the line │  │ the leader's ctx ended: another of the flight resends
//	  └──▶ queued ───────────────┘  └── leading
//	         │ boarded by a leader
//	         └─ ctx ended: leaves the line, nothing was sent
//
// A caller whose ctx ends while its jobs are in flight returns at once with headgate.ErrOutcomeUnknown, unless it is
// the leader: that one returns when its attempt does, at the latest at its deadline or after the client's read
// time-out. The others of its flight go on without it.
//
// # Lost answers
//
// A connection that ends while an answer is awaited leaves a job in doubt. Its id makes that harmless: the flight is
// sent again, with the same ids, as long as the store certainly remembers them: while the time since the first send
// plus one time-out is below the dedup window. After that, or when the time-out of the whole call is over, the error is
// headgate.ErrOutcomeUnknown, and the Verdict still names the ID. Where nothing was sent (the dial failed) the
// error is headgate.ErrUnavailable.
package producer
