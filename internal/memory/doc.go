// Package memory is a partition of a deployment in the memory of one process: the executable specification that conformance holds equal to
// the scripts of package lua, with a lock and a clock around it.
//
//	store.Partition ── Partition: a lock, a clock, who waits ── model: buckets, fairqueue, breaker, and the life of jobs and workers
package memory
