// Package house holds the test that keeps the house in order: which package may import which, which libraries stay
// on which floor, and what a package's folder looks like. It exports nothing and nobody imports it.
//
// The floors, from the ground up; a package imports from floors below its own, and from its own tree:
//
//	0  /                                        the vocabulary; standard library only
//	1  buckets fairqueue breaker policy         pure; standard library only
//	   internal/trace internal/fairness         what a trace holds, how even service was
//	2  internal/keyspace
//	3  lua                                      the waist: all of Redis goes through it
//	   internal/telemetry                       what services share of metrics and logs
//	4  producer scheduler worker admin          services; worker runs a scheduler, else none knows another
//	5  asynqbridge
//	   internal/rollout                         how a policy is put in force
//	6  loadtest cmd                             wiring
//
//	-  internal/embedded internal/redistest internal/house     leaves: they know nobody upstairs
//
// A new package stands on no floor, and the test fails until floors_test.go says where it belongs.
package house
