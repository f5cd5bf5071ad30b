// Package load says what a load test sends: a Plan is every job with the time at which it is to be enqueued, and what
// happens to the world meanwhile. It exists because a plan that is made beforehand, from a seed, is the same for every
// system that is measured, and does not wait for any of them: arrivals are open-loop.
//
// A scenario is a recipe for a plan. Arrivals are a Poisson process given their number: rate × duration points drawn
// evenly over the run, bent by the scenario's shape where it has one.
//
//	steady           even arrivals, every tenant the same; room to spare
//	burst            a fifth of the time carries four fifths of the jobs, and the global limit cuts the peaks
//	noisy-neighbour  one tenant sends four fifths of the jobs, and is allowed more than there is room for
//	sybil            one customer comes as 1,000 tenants, seven tenths of the jobs; their queue has a cap
//	zipf             tenants' shares follow Zipf's law with s = 1.1; the heaviest have more than can be served
//	overload         half of what can be served, then twice as much (-overload) from two to six tenths of the run, by a step or
//	                 another -shape; jobs that start late are worth nothing, and the least class and tier are refused first
//	dead-downstream  HTTP servers: one dies and one hangs after a quarter of the run, both are back at six tenths
//	slow-consumer    handlers take four times as long from three to six tenths of the run
//	redis-restart    Redis is killed at four tenths of the run and back half a second later
//	trace            the rows of a CSV file, faster
//
// Where a scenario says how much there is to do, the work of a job follows from it: work = slots × load ÷ rate. Pace sends each
// arrival at its time.
package load
