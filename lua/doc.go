// Package lua is the room of the scripts, which hold all state of Headgate in Redis: their sources, how they are put together,
// and what package store sends. It knows neither a connection nor what an argument or a reply means.
//
//	scripts/library.lua ─────┐
//	scripts/fragments/*.lua ─┼─ one library of functions ── FUNCTION LOAD, FCALL
//	scripts/DOMAIN/NAME.lua ─┴─ one text a script, of what it uses ──── EVALSHA, where Redis has no functions
//
// Scripts(preamble, layout)["NAME"]() has both.
//
// A fragment is what scripts share. Which of them a script is made of follows from the names that it uses: no two fragments define
// the same, and no other file has a variable of such a name. A script is the function scripts.NAME of its file, and is known by
// its name alone; "-- @flag" and "-- @relief" lines say what Redis lets it do when it is full (assemble.go). What each does, and who calls it:
//
//	jobs       admit       decides on a batch of jobs, all or nothing for each       producers
//	           finish      ends, retries or hands back jobs that a worker holds      workers
//	           register    makes a worker and its slots known                        workers
//	           heartbeat   extends a worker's lease                                  workers
//	           reclaim     takes back what a worker holds, ends its registration     workers, on drain
//	           start       notes that the handler of a suspect begins                workers
//	           promote     runs what is due                                          schedulers
//	           alive       notes for how long a scheduler counts as live             schedulers
//	           cancel      ends a job wherever it is                                 operators
//	           clear       cancels what a tenant has waiting in a queue              operators
//	           purge       ends dead letters                                         operators
//	limits     check       asks for tokens without a job                             limiters
//	           grant       asks for tokens of many callers, keeps their leases       limiters
//	           refund      gives back what check took for work that never began      limiters
//	           reserve     takes tokens under an id, which refund settles            admin
//	           shadow      asks what limits would have answered                      limiters
//	           count       adds decisions of a process to those of the minute        producers, limiters
//	           rates       keeps what was decided of queues in ten minutes           schedulers
//	           reset       fills a bucket                                            operators
//	           scale       has limits be a part of the policy's for a time           operators
//	           semaphore   leases permits, keeps the line of who waits for some      limiters
//	breakers   breaker     counts what calls of downstreams came to                  workers, guests
//	           probe       lets a guest's call be a probe                            guests
//	           probing     leases the rights of a fleet over all partitions          workers, guests
//	           force       chooses the state of a breaker                            operators
//	policies   policy      stores a new version of the policy                        operators
//	           stage       begins an edit that is too large for one script           operators
//	           step        does the next portion of such an edit                     whoever calls
//	           recount     counts jobs into a bound that is new                      after policy
//	gates      gate        pauses a queue, a tenant or a downstream, for a time      operators
//	           suspend     lets nothing of a queue or a tenant in, for a time        operators
//	shares     unbalanced  finds what partitions are to divide in another way        schedulers
//	           share       sets what a partition has of what all divide              schedulers
//	           demand      tells what is runnable for a pool in a partition          workers
//	inspect    look        tells where a job is and what it waits for                operators
//	spill      movable     says what is to be moved to the second Redis, and back    movers
//	           moved       lets go of bodies that the second Redis has               movers
//	           brought     gives jobs their bodies back                              movers
//	migrate    arrive      takes jobs from another partition                         headgate migrate
//	           depart      lets go of jobs that another partition has                headgate migrate
//	           carry       takes counters and ended ids from another partition       headgate migrate
//	           adopt       takes a breaker from another partition                    headgate migrate
//	           records     takes records of tenants from another partition           headgate migrate
//
// Functions are made once in the life of a Redis. What one call has is in the fields of `call` (scripts/library.lua), which `reset` functions
// of the files that its script is made of set when it begins: variables of a file are constants.
//
// Every script that makes room in a ready stream or makes a job runnable ends with the fill fragment, so that no
// job that could run waits for anybody to look (law W). The pure packages buckets and fairqueue specify what the
// scripts do; the conformance tests of package store hold both equal, step by step, on a real Redis.
//
// The layout of keys is in package keyspace, that of a job's record in scripts/fragments/record.lua.
package lua
