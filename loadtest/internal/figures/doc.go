// Package figures works out what a Run comes to from its book. It exists so that every system is judged by the same sums.
//
//	enqueue      from a job's intended arrival until its caller has the answer
//	wait         from its intended arrival until a handler begins it, of jobs that began
//	completion   from its intended arrival until a handler has completed it
//	lateness     from its intended arrival until the generator sent it: how far to trust the three above
//	light tenant a tenant at or below the median number of jobs of those that sent any
//	bystander    a job that has no part in what the scenario is about (load.Plan.Bystander)
//	Jain's index of package fairness, over jobs of one class in one queue; a tenant counts as runnable while it has a
//	             job that was answered before and begins later. Of all classes and queues the longest span counts.
//	bound        a virtual bucket with the limit's rate and burst, run over the times of admission by the clock of Redis:
//	             it must never be below zero (law L1). Used is the largest part of the burst that was taken.
//	held         jobs that are in and did not end: behind a breaker, or the run was interrupted
//	late         jobs whose answer came more than 50 ms after the time-out of the call, which law L13 says is its end
//	lost         admitted jobs that did not end and are not held: law L4 says that there are none
//
// Latencies are in HDR histograms, 1 µs to 1 h in three digits.
package figures
