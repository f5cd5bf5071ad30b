// Package store is the deployment in Redis: the Go side of each script, the only one to see its arguments and its reply, and what
// reads beside them. Everything of Headgate that is in Redis goes through it.
//
//	producer worker scheduler limiter admin
//	                 │
//	  Store, a deployment: what is about one tenant goes to the tenant's partition, what is about all to all
//	                 │ Partitions
//	  Store, a partition ── run ── EVALSHA ── Redis, one hash tag
//	                 │
//	  lua: the scripts    keyspace: the names of keys
//
// Where to begin reading:
//
//	store start_check layout      Connect and Open, the checks of a start, how a script is sent, what an error means
//	partitions across             which partition is whose, and what is asked of all
//	admit read finish register    the path of a job: in, to a worker, out; record is what Redis keeps of it
//	held alive promote            leases, and what time alone makes due
//	check grant refund shadow     limits without jobs
//	breaker probe probing force   the fleet's breakers
//	policy policies audit         versions of the policy and who did what
//	gate pause                    what operators stop
//	balance share divide          how partitions divide what is bounded over all
//	look list queues census       looking: jobs, letters, queues, tenants, holds, waits
//	room                          what rooms that stand on this one, internal/migrate and internal/doctor, need of it
//
// The conformance tests hold the scripts equal to the pure packages buckets, fairqueue and breaker, step by step, on a real Redis.
package store
