// Package share says how a worker's slots go to the partitions of a deployment, for workers and for sessions over HTTP. It is
// pure: whoever has the slots reads what is runnable and makes it so.
//
// Where a deployment has several partitions, each orders its own jobs, and a worker's slots say how many of each run. So the
// slots go to the partitions that have more to do than slots, by what their tenants would get if there were one partition:
//
//	part of a partition = Σ over queues u/Σu · Σ over classes g/Σg · w/Σw
//
// where u is the weight of a queue in the pool, g that of a class in the queue's pattern, both summed over those that are
// runnable anywhere, and w the weights of the tenants that are runnable in the partition, summed over all partitions below.
// The number of jobs plays no part: it would reward whoever floods.
package share
