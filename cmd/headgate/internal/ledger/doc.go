// Package ledger writes down what happened to each job of a run and works out the figures of a report. It exists so
// that demo and replay measure alike, and so that what a figure means is written in one place. It knows no Redis and
// no worker: it is told.
//
// What is written down of a job:
//
//	Add ──▶ Decide ──▶ Deliver ──▶ Start ──▶ Arrive ──▶ End
//	        verdict    token       moment    wait       how the run ended
//
// Deliver may happen several times (a job comes back after a failure, or unharmed from behind a breaker), Start and
// End once a run. A job's token is the id of its entry in the ready stream, "ms-seq" by the clock of Redis: sorted,
// tokens are the order in which Redis dispatched, whatever the order in which workers got to say so.
//
// # Definitions
//
//	wait         from admission to the first start of the handler, as the caller measures it
//	wait steps   the number of dispatches after the job's admission and before the delivery that started it. A job that
//	             went straight to a worker waited 0. Dispatches of the admission's own millisecond count as
//	             before it, since a token tells no more.
//	runnable     a class, or a tenant in a class, is known to be runnable at a dispatch if it has a job that was
//	             admitted in an earlier millisecond and is dispatched then or later. Jobs of a downstream
//	             whose breaker opened are left out: they may have stood behind it. So what is called
//	             runnable was; some that was is not called so.
//	order head   one letter a dispatch (the class's first, in capitals) of the first stretch of 60 consecutive
//	             dispatches at which all classes were known to be runnable; the longest one if none is as
//	             long, the first 60 letters if it is longer
//	Jain's index (Σx)² / (n·Σx²), x = cost dispatched ÷ weight, over n ≥ 2 tenants that were all known to be runnable in
//	             one class from the first to the last dispatch of a span in which each was dispatched fairness.Rounds
//	             times or more. Of all spans the one with the most tenants counts, then the longest; of the
//	             classes the one with the lowest index. 1 where no two tenants can be compared;
//	             Compared then is 0.
//	light tenant a tenant at or below the median number of jobs of a tenant of this run
//	held back    jobs of a downstream that were admitted and had not started while its breaker was open
//	estimate     |estimated wait − wait| ÷ wait, of jobs that had to wait and were given an estimate
//	percentile   nearest rank: the smallest value that is not below the given part of all values
package ledger
