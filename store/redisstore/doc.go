// Package redisstore keeps a deployment in Redis: what opens one, and what is asked of all its partitions. What is asked of one partition is
// in rooms below internal, each the Go side of some scripts of package lua, the only one to see their arguments and replies. They share
// a redisconn.Conn and codec, and do not know each other.
//
//	store.Deployment ── many ── Partition ─┬─ jobs ─────┐
//	                                       ├─ limits    │
//	                                       ├─ breakers  ├─ codec ── redisconn ── EVALSHA ── Redis, one hash tag
//	                                       ├─ policies  │
//	                                       ├─ gates     │
//	                                       └─ looking ──┘
//
// Where to begin reading:
//
//	store config start_check partitions   Connect and Open, the checks of a start, which partition is whose
//	many many_*                           what is asked of all partitions
//	balance share divide                  how partitions divide what is bounded over all
//	room                                  what internal/migrate and internal/doctor need of it
//	internal/jobs                         the path of a job: in, to a worker, out; leases, and what time alone makes due
//	internal/limits internal/breakers     limits without jobs; the fleet's breakers
//	internal/policies internal/gates      versions of the policy and the audit; what operators stop
//	internal/looking                      jobs, letters, queues, tenants, holds, waits
//	internal/codec                        the texts of scripts: records of jobs, paths, verdicts
//
// The conformance tests hold the scripts equal to the pure packages buckets, fairqueue and breaker, step by step, on a real Redis.
package redisstore
