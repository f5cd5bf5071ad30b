package keyspace

import "strconv"

// DefaultPrefix begins every key unless a deployment chooses another.
const DefaultPrefix = "hg"

// Partition names the keys of one partition. It is a value and may be used by several goroutines.
type Partition struct {
	base string
}

// New returns the keys of a partition, 0 or more, under a prefix.
func New(prefix string, partition int) Partition {
	return Partition{base: prefix + "{" + tag(partition) + "}:"}
}

// State is a HASH: counters, settings and dynamics of queues and pools, the global bucket.
func (p Partition) State() string { return p.base + "state" }

// Jobs is a HASH of every job that lives, by tenant:id.
func (p Partition) Jobs() string { return p.base + "jobs" }

// Later is a ZSET of jobs that wait for a time, in microseconds.
func (p Partition) Later() string { return p.base + "later" }

// Dead is a ZSET of dead letters by the time of their death, in microseconds.
func (p Partition) Dead() string { return p.base + "dead" }

// Why is a HASH of the reasons of dead letters.
func (p Partition) Why() string { return p.base + "why" }

// Due is a ZSET of timers, in microseconds.
func (p Partition) Due() string { return p.base + "due" }

// Wake is a STREAM of one entry on which schedulers block.
func (p Partition) Wake() string { return p.base + "wake" }

// Workers is a HASH of registrations.
func (p Partition) Workers() string { return p.base + "workers" }

// Started is a HASH: jobs that were lost before, and the worker whose handler has begun them again.
func (p Partition) Started() string { return p.base + "started" }

// Suspects is a HASH: jobs that were lost before, and the group with which they may run; one that is alone is not in it.
func (p Partition) Suspects() string { return p.base + "suspects" }

// Gates is a HASH of gates.
func (p Partition) Gates() string { return p.base + "gates" }

// Policy is a STRING: the policy in force, JSON.
func (p Partition) Policy() string { return p.base + "policy" }

// Policies is a HASH of the last versions of the policy, JSON.
func (p Partition) Policies() string { return p.base + "policies" }

// Audit is a STREAM of who stored which version.
func (p Partition) Audit() string { return p.base + "audit" }

// Ready is the STREAM from which a pool's workers read.
func (p Partition) Ready(pool string) string { return p.base + "ready:" + pool }

// Large is a STRING: the payload of a job that is too large for the jobs hash.
func (p Partition) Large(key string) string { return p.base + "large:" + key }

// Upload is a STRING: a large payload on its way in, which the script that admits its job renames, or drops. It goes by itself where that
// never comes.
func (p Partition) Upload(name string) string { return p.base + "upload:" + name }

// Result is a STRING: the result of a completed job, for as long as it is kept.
func (p Partition) Result(key string) string { return p.base + "result:" + key }

// Periodic is a HASH of periodic jobs and their last ticks that were enqueued, in microseconds since 1970.
func (p Partition) Periodic() string { return p.base + "periodic" }

// Followers is a HASH of those who follow the dead letters, or the transitions of breakers, and how far they are.
func (p Partition) Followers() string { return p.base + "followers" }

// Buckets is a HASH of a tenant's buckets by the rest of their scope.
func (p Partition) Buckets(tenant string) string { return p.base + "b:" + tenant }

// Reserved is a STRING: what was taken for a reservation of a tenant, of none for "".
func (p Partition) Reserved(tenant, id string) string {
	return p.base + "reserved:" + tenant + ":" + id
}

// Counts is a HASH of what limits decided in a minute, counted from 1970, by scope.
func (p Partition) Counts(minute int64) string {
	return p.base + "counts:" + strconv.FormatInt(minute, 10)
}

// Values is a HASH of what limits of dimensions decided in a minute, counted from 1970, by scope.
func (p Partition) Values(minute int64) string {
	return p.base + "values:" + strconv.FormatInt(minute, 10)
}

// Watched is a HASH of what was decided of queues in a minute, counted from 1970.
func (p Partition) Watched(minute int64) string {
	return p.base + "watched:" + strconv.FormatInt(minute, 10)
}

// Rates is a HASH of what was decided of queues in a day, counted from 1970.
func (p Partition) Rates(day int64) string { return p.base + "rates:" + strconv.FormatInt(day, 10) }

// Distinct is a SET of the queues of which different names are counted in an hour, counted from 1970.
func (p Partition) Distinct(hour int64) string {
	return p.base + "distinct:" + strconv.FormatInt(hour, 10)
}

// DistinctTenants is a STRING, a HyperLogLog: the tenants of a queue in an hour.
func (p Partition) DistinctTenants(hour int64, queue string) string {
	return p.base + "dtenants:" + strconv.FormatInt(hour, 10) + ":" + queue
}

// DistinctJobs is a STRING, a HyperLogLog: its jobs.
func (p Partition) DistinctJobs(hour int64, queue string) string {
	return p.base + "djobs:" + strconv.FormatInt(hour, 10) + ":" + queue
}

// Anomalies is a STREAM of rates that were not usual.
func (p Partition) Anomalies() string { return p.base + "anomalies" }

// Load is the string with how busy a worker is.
func (p Partition) Load(worker string) string { return p.base + "load:" + worker }

// Loads is the hash with how busy queues were in a minute since the Unix epoch.
func (p Partition) Loads(minute int64) string {
	return p.base + "loads:" + strconv.FormatInt(minute, 10)
}

// Usage is a HASH of what jobs and reservations of a day, counted from 1970, reserved and cost, by tenant and queue.
func (p Partition) Usage(day int64) string { return p.base + "usage:" + strconv.FormatInt(day, 10) }

// Records is a HASH of what tenants have of their own beside the policy.
func (p Partition) Records() string { return p.base + "records" }

// Dispatch is the hash of rates of dispatches that records of tenants say, and of the policy's in their place.
func (p Partition) Dispatch() string { return p.base + "dispatch" }

// QueueCaps is the hash of caps in single queues that records of tenants say, and of the policy's in their place.
func (p Partition) QueueCaps() string { return p.base + "queuecaps" }

// Shadow is a HASH of what a candidate in shadow would have answered.
func (p Partition) Shadow() string { return p.base + "shadow" }

// Schedulers is a ZSET of those that live, by until when, in microseconds.
func (p Partition) Schedulers() string { return p.base + "schedulers" }

// Breaker is a HASH: a downstream's breaker for the whole fleet.
func (p Partition) Breaker(downstream string) string { return p.base + "br:" + downstream }

// Breakers is a SET of the downstreams that have one.
func (p Partition) Breakers() string { return p.base + "breakers" }

// Events is a STREAM of their transitions.
func (p Partition) Events() string { return p.base + "events" }

// Relief returns the name of the key that holds nothing.
func (p Partition) Relief() string { return p.base + "relief" }

// Semaphores is a ZSET of those that are in use.
func (p Partition) Semaphores() string { return p.base + "sems" }

// Waits is a HASH of how many jobs wait in lanes for each downstream.
func (p Partition) Waits() string { return p.base + "waits" }

// Base is what all keys of the partition begin with.
func (p Partition) Base() string { return p.base }
