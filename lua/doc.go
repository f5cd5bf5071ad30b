// Package lua is the waist of the house: the scripts that hold all state of Headgate in Redis, and Go wrappers
// that are the only ones to see their arguments and replies.
//
// A script is NAME.lua beside NAME.go. It is assembled from fragments by "-- @include" lines; testdata holds the
// assembled texts as goldens. What each does:
//
//	admit      decides on a batch of jobs, all or nothing for each       producers
//	finish     ends, retries or hands back jobs that a worker holds      workers
//	register   makes a worker and its slots known                        workers
//	heartbeat  extends a worker's lease                                  workers
//	reclaim    takes back what a worker holds and ends its registration  workers, on drain
//	promote    runs what is due                                          schedulers
//	gate       pauses a queue, a tenant or a downstream, for a time      operators
//	suspend    lets nothing of a queue or a tenant in, for a time        operators
//	policy     stores a new version of the policy                        operators
//	recount    counts jobs into a bound that is new                      after policy
//	look       tells where a job is and what it waits for                operators
//	cancel     ends a job wherever it is                                 operators
//	purge      ends dead letters                                         operators
//	start      notes that the handler of a suspect begins                workers
//	breaker    counts what calls of downstreams came to                  workers, guests
//	probe      lets a guest's call be a probe                            guests
//	arrive     takes jobs from another partition                         headgate migrate
//	depart     lets go of jobs that another partition has                headgate migrate
//	carry      takes counters and ended ids from another partition       headgate migrate
//	adopt      takes a breaker from another partition                    headgate migrate
//	unbalanced finds what partitions are to divide in another way        schedulers
//	share      sets what a partition has of what all divide              schedulers
//
// A fragment's names that no other piece of a script uses are hidden in a block, because a function of Lua has 200 local
// variables at most.
//
// Every script that makes room in a ready stream or makes a job runnable ends with the fill fragment, so that no
// job that could run waits for anybody to look (law W). The pure packages buckets and fairqueue specify what the
// scripts do; the conformance tests hold both equal, step by step, on a real Redis.
//
// The layout of keys is in package keyspace, that of a job's record in fragments/header.lua.
package lua
