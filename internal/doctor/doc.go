// Package doctor tells an operator what is not well, and what to do about it: with the Redis that a deployment is on, and with what Headgate keeps there.
//
//	run     the servers: version, role, eviction, memory, what a crash loses     Run, Examine
//	state   each partition: data, policy, dedup, conservation, workers, timers
//	bounds  what is nearly full, holds that somebody may have forgotten
//	parts   of several masters and partitions, the worst
//
// It reads only, and stands on package store.
package doctor
