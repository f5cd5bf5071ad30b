// Package producer is the SDK that enqueues jobs. It exists so that a program can say "run this" with one call and
// get one honest answer: admitted, duplicate, refused and why, or unknown.
//
//	Enqueue ───────┐        ┌────────────── line ──────────────┐      at most InFlight calls at a time
//	EnqueueBatch ──┼─ticket▶│ acme: ticket ticket ticket …     │──board──▶ flight ──▶ one admit call ──▶ verdicts
//	EnqueueWait ───┘        │ beta: ticket …                   │              ▲
//	                        └──────────────────────────────────┘     limits: the policy in force
//
// # Coalescing
//
// Concurrent calls share an admit call, and no timer is involved: what waits while a call is under way goes with the next one, up
// to store.MaxBatchJobs jobs and store.MaxBatchBytes of payload. Tenants take turns, and each one's jobs go in the order in which they
// came. Jobs with a large payload have a line of their own. A pilot is the goroutine that makes the calls of a line; it begins with
// the first ticket and ends when nobody waits. Another goes out beside it as soon as as many jobs wait as are under way: Redis then has the next
// call when it is done with one, and calls stay large. A ticket is one caller's jobs on their way:
//
//	        its turn            sent               answered
//	queued ─────────▶ aboard ─────────▶ flying ──────────────▶ settled
//	  │                 │  ◀───────────   │
//	  │                 │  certainly not  │
//	  │ ctx ended, or no time for it left │ ctx ended
//	  ▼                 ▼                 ▼
//	nothing was sent: headgate.ErrUnavailable, or ctx's error     headgate.ErrOutcomeUnknown
//
// A call to Redis has a ctx of its own, which ends with the latest deadline aboard: a caller whose ctx ends returns at once, and
// the others of its flight get their answer all the same. What a caller left before it was sent is never sent.
//
// # Overload
//
// The line is bounded (Config.MaxWaiting, MaxWaitingBytes), and how long a ticket would wait is estimated from how long calls took
// of late. Whoever finds no room or could not be served within its time-out hears headgate.ErrOverloaded at once. Who waits and has
// less time left than a call takes hears headgate.ErrUnavailable instead of being sent for nothing. A caller that finds nobody under
// way is always sent, however slow calls have been.
//
// # Lost answers
//
// A connection that ends while an answer is awaited leaves a job in doubt. Its id makes that harmless: the flight is
// sent again, with the same ids, as long as the store certainly remembers them: while the time since the first send
// plus one time-out is below the dedup window. After that, or when the time-out of the whole call is over, the error is
// headgate.ErrOutcomeUnknown, and the Verdict still names the ID. The first call may still be in a buffer when the next one is
// answered, and let a job in whose repetition was refused: refusals of calls in doubt, and of all calls in the 50 ms after the first
// answer that follows a caller in doubt, are asked for once more when 50 ms are over. Where nothing was sent (the dial failed) the
// error is headgate.ErrUnavailable.
package producer
