// Package crash kills processes, a Redis and downstreams among them, and looks at what is left. It holds no code of the product.
//
//	points_test     L3 L4      a process of each role dies at each of its commands in turn, before Redis has it and after
//	trigger_test    L1         a scheduler dies at each write by which triggers begin and end
//	adaptive_test   L1 L4      a scheduler dies at each write by which a limit moves over two partitions
//	storm_test      L3 L4 L5   producers, schedulers, workers and Redis die at random under load; `make crash` for ten minutes
//	failover_test   L4         a master that Sentinels know is killed, and loses what its replica never had, nothing else
//	cluster_test    L1 L4      a cluster whose slots move, whose masters die and halt, and whose network is cut in two
//	cluster_fairness_test  L7  what a thousand tenants beside a flood get while a slot moves and a master dies
//	return_test     L13        Redis restarts under an open load: nobody is told falsely, and goodput returns; `make outage-return`
//	everysec_test   L4         what appendfsync everysec may lose, and that the rest is whole
//	full_test       L4 L9      a Redis that is out of memory refuses jobs and goes on running those that it has
//	stubborn_test   L5         a worker that was stopped for longer than its lease is not believed
//	together_test   L4 L12     all workers of a pool drain at the same time
//	deadline_test   L8         a hundred thousand deadlines
//	exits_test      L9         every way out of the house, counted
//	overflow_test   L9         a tenant's depth at its bound, under each policy
//	bench_test      T12        how long a job of a dead worker waits; asynq beside it
//	outage_test     L10 L11    downstreams that die, fail, hang, slow down, flap and return under load; `make outage` for figures
//
// # What is said and what is seen
//
// Processes keep books (book_test): a producer writes down what it was told, a worker when a handler begins. A line is
// written before anything follows from it, so a process that is killed has told all that it did. Redis is asked in the
// end: which ids ended (the dedup window outlasts the test), which are dead letters and why, what counters and buckets
// hold. Limits refill a token a day, so a bucket shows to the token what was charged.
//
// # Seeds
//
// What is done to whom comes from a seed that is printed; HEADGATE_SEED repeats it. When a machine gets round to it is
// not repeated.
package crash
