// Package replay does again what a trace recorded: each row is enqueued when its turn comes, goes the whole way through
// Redis to a worker, and keeps a handler busy for as long as it took then, both faster by one factor. It exists to show
// the product on the shape of real work: thousands of tenants, a few of them heavy, and a downstream that always fails.
//
// What is scaled by the speed: arrivals, run times, the backoff after a failure. What is not: the times of circuit
// breakers, which are settings of the product and not of the trace. At a high speed a breaker that opens therefore
// stays open to the end, and the jobs behind it are counted as waiting.
//
// A row is a job thus (package trace has the rest): its class is a stable hash of its tenant and the seed, so that each
// class of the queue has an equal part of the tenants; its handler fails if the row says FAILED, each time it runs. That
// is why a job has one attempt unless told otherwise: a second one would fail as well.
//
// The replay ends when all rows are in and nothing is runnable: no job in a worker's hand, in its stream, or due
// later. With Config.Preload all rows are in before the worker starts; the order of dispatch then does not depend on
// how fast the machine is.
package replay
