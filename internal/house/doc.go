// Package house holds the tests that keep the house in order: which package may import which, which libraries stay on
// which floor, what a package's folder looks like, and that what the pages name is there. It exports nothing and nobody
// imports it.
//
// The floors, from the ground up; a package imports from floors below its own, and from its own tree:
//
//	0  /                                        the vocabulary; standard library only
//	1  buckets fairqueue breaker policy         pure; standard library only
//	   internal/trace internal/fairness         what a trace holds, how even service was
//	2  internal/keyspace lua                    the names of keys, the scripts
//	   internal/redisconn                       a partition's Redis, which error means what
//	3  store                                    the waist: all of Redis goes through it
//	4  producer scheduler worker limiter        services; worker runs a scheduler, else none knows another
//	   internal/rollout internal/shown          how a policy is put in force, what is shown as JSON
//	   internal/explain internal/tally          what holds something back, decisions counted
//	   internal/share                           how slots go to partitions
//	   internal/migrate                         another number of partitions
//	5  admin asynqbridge telemetry
//	6  loadtest cmd                             wiring
//	   internal/laws internal/crash             tests of the whole
//
//	-  internal/redisclient internal/embedded internal/redistest internal/house     leaves: they know nobody upstairs
//
// A new package stands on no floor, and the test fails until floors_test.go says where it belongs.
package house
