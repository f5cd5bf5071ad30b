// Package store says what a store of Headgate does, and what it takes and returns. A Deployment is the whole, a Partition one part of
// it: the tenants of a partition are nowhere else, so that what is decided about a tenant is decided there at once.
//
//	producer worker scheduler limiter admin
//	                 │
//	     Deployment  │  what is about one tenant goes to the tenant's partition, what is about all to all
//	                 │ Partitions
//	     Partition   │  one decision a call, whole or not at all
//	                 │
//	  redisstore: scripts in Redis      internal/memory: the same in one process
//
// Where to begin reading:
//
//	partition               the interfaces, in groups
//	jobs work timers        the path of a job: in, to a worker, out; leases, and what time alone makes due
//	limits counts           limits without jobs, and what was decided by scope
//	breakers gates policies what stands in the way: the fleet's breakers, what operators stop, versions of the policy
//	audit                   who did what
//	look waits list queues census   looking: jobs, letters, queues, holds, waits
//	shares                  how partitions divide what is bounded over all
package store
