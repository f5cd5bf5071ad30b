// Package memory is a partition of a deployment in the memory of one process: the executable specification that conformance holds equal to
// the scripts of package lua, with a lock and a clock around it.
//
//	store.Partition ── Partition: a lock, a clock, who waits ── model: buckets, fairqueue, breaker, and the life of jobs and workers
//
//	admit    a job comes in                refuse, overflow           limits    decisions without a job
//	deliver  a worker has it and ends it   worker, cancel             policy    and what it sets: gates, caps; the audit
//	promote  what time makes due           breaker                    look      and places, queues: what can be seen
//
// What a model keeps in order lies below: bank (buckets), graves (dead letters), audit, names, counts, times.
package memory
