// Package redisstore keeps a deployment in Redis: the Go side of each script of package lua, the only one to see its arguments and its
// reply, and what reads beside them.
//
//	store.Deployment ── many ── Partition ── run ── EVALSHA ── Redis, one hash tag
//	                                │
//	                  lua: the scripts    keyspace: the names of keys
//
// Where to begin reading:
//
//	store start_check                Connect and Open, the checks of a start, how a script is sent, what an error means
//	partitions many                  which partition is whose, and what is asked of all
//	admit read finish register       the path of a job: in, to a worker, out; record is what Redis keeps of it
//	held alive promote               leases, and what time alone makes due
//	check grant refund shadow        limits without jobs
//	breaker probe probing force      the fleet's breakers
//	policy policies settings steps   versions of the policy, stored in steps
//	gate pause audit                 what operators stop, and who did what
//	balance share divide             how partitions divide what is bounded over all
//	look list queues census          looking: jobs, letters, queues, tenants, holds, waits
//	room                             what rooms that stand on this one, internal/migrate and internal/doctor, need of it
//
// The conformance tests hold the scripts equal to the pure packages buckets, fairqueue and breaker, step by step, on a real Redis.
package redisstore
