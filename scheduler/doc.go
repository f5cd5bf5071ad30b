// Package scheduler runs what is due: retries and delayed jobs, ended leases, passed deadlines, gates whose time is
// over. It exists because Redis runs scripts only when asked: somebody must ask at the right moment, and only
// then.
//
//	           ┌──────────── Promote ◀────────────┐
//	           │  up to 64 moves, says what is     │  next timer, renewal of the lease,
//	           ▼  next                             │  or a wake
//	more: again at once                            │
//	held by another: wait for its lease to end ────┤
//	else: wait ────────────────────────────────────┘
//	                                               ▲
//	watcher: blocks on the wake stream ────────────┘  a script has lowered the earliest timer
//
// Nothing is polled. Every script that lowers the earliest timer adds to a stream on which the watcher blocks, so a
// Scheduler knows the moment of the next timer at any time and waits for it on its own clock (a time-out of a
// blocked Redis command would be up to 100 ms late). An idle Scheduler sends about two commands a second: one
// renews its lease, one begins to block again.
//
// Any number of Schedulers may run. A timer lease in Redis picks one; the others ask again when it ends, so they
// take over within it when the holder dies. Promote is a script: two that run it after all do no harm.
//
// Where the time of Redis leaps, Promote asks whether that was a step of its clock or mere silence. The Scheduler knows by its own
// monotonic clock: see stepped.
//
// The holder also tells the hooks, if there are any, about dead letters (OnDead), about transitions of circuit breakers (OnBreaker) and about
// rates that are not usual (OnAnomaly), each at least once: how far they were told stands in Redis.
package scheduler
