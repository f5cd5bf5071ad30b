// Package load says how busy the services of a deployment are: what the processes of its workers use, and how the jobs of its queues ran
// in the last minute.
//
//	worker ── Window: how its jobs ended ──┐
//	       └─ Use: its processors, memory ─┴─▶ Sample ─text─▶ store ─▶ Of: Figures of a queue, from the samples of all workers
//
// A sample is sent as a text that the store does not read, so that what is in it can change without a change of the scripts. Run times go
// into buckets of which eight double the time: they can be added up over workers, and a percentile is within 5 % of the true one.
package load
