// Package migrate moves a deployment to another number of partitions, on its Redis or to another one, while it is offline. Everything that it does may
// be done again, so whoever finds a migration that was killed goes on with it.
//
//	migration   what is to be done, or how far an earlier run has come       Open
//	run         wait until nobody works, fence, and then each step            Plan, Run
//	keys jobs   copy: what tenants have of their own, the policy, jobs; verify
//	rest        copy: ended ids, counters, pauses, rates, breakers
//	end         divide the global limit, remove what has moved, commit, tidy up
//
// It stands on package store for what a partition does, and on redisconn for its keys.
package migrate
