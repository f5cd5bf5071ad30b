// Package peers measures Headgate beside other job queues, in one run on one machine, each on a Redis of its own:
//
//	go test -C loadtest/peers -run '^$' -bench . -benchtime 1x
//
// It is a module of its own, so that what it compares with is in nobody's go.sum who uses Headgate.
//
// It holds benchmarks, and a test of package httplimit in chi and in echo, which are nobody's requirement either. `make bench` runs the
// benchmarks in rounds and judges the targets by them. docs/perf/comparison.md prints what they gave last, losses included. What is compared, and
// the peer's setting:
//
//	LightTenant       wait of a tenant that comes behind another's 50,000 jobs; asynq, one queue, and the same fed by
//	                  asynqbridge.Releaser with its defaults
//	EnqueueToHandler  from the call to Enqueue until the handler starts, 200 and 2,000 jobs a second, else idle; asynq
//	Enqueue           jobs a second; asynq, which admits everything
//	Lone              where the time of a call goes that nobody else makes one beside, and what its commands alone take; redis_rate and
//	                  asynq
//	EnqueueBatch      jobs a second of one producer that has 64 at a time; asynq has no batches
//	Drain             jobs a second through a worker whose handler does nothing; asynq, one queue, no tenants
//	DrainByTenants    the same of few tenants and of many; asynq, a queue a tenant
//	WholeWay          seconds of Redis' processor and commands a job from its admission to its end; asynq, and a stream with a consumer group
//	KeptUp            the same where workers keep up; such a stream
//	WhenOn            microseconds of Redis a job with pressure, shedding and adaptive limits, beside the same policy without
//	Memory            bytes of Redis a waiting job; asynq
//	BucketMemory      bytes of Redis a bucket; redis_rate
//	Fairness          Jain's index of service by weight; nobody beside
//	HTTP              what a middleware adds to a request, 10,000 a second of 100 clients; ulule/limiter and throttled on a Redis of their
//	                  own, and httprate in the process
//	Success, Failure  a call through a breaker of one process; failsafe-go and gobreaker
//	Limits            each algorithm of limits, speed and exactness, in package limits; redis_rate, throttled, ulule/limiter, fiber, gubernator
//	InsertTx          an order and its job in one transaction of PostgreSQL, in package inserttx; river's InsertTx
//	Local             a check in one process; x/time/rate here, Headgate's in package limiter
package peers
