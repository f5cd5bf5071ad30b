package load

import (
	"math/rand/v2"
	"time"
)

// Work of a handler where the scenario does not say how much there is to do.
const shortWork = time.Millisecond

// recipe is a scenario.
type recipe struct {
	name string
	// load is what is offered ÷ what the slots can serve; zero means that a job takes shortWork.
	load float64
	// tenantShare is a tenant's limit as a part of the rate; zero means four times an even share.
	tenantShare float64
	// shape bends time: it maps an even draw in [0, 1) to a part of the run, and must not decrease.
	shape func(u float64) float64
	// tenant draws the tenant of a job, evenly if nil.
	tenant func(b *builder) func() int
	// finish adds what else the scenario has, before arrivals are drawn.
	finish func(b *builder)
	// policy changes the policy, once it has its limits.
	policy func(b *builder)
}

var recipes = []recipe{
	{name: "steady"},
	{name: "burst", load: 0.5, shape: bursts},
	{name: "noisy-neighbour", load: 1.5, tenantShare: 0.6, tenant: noisy},
	{name: "sybil", load: 1.25, tenantShare: 1, tenant: sybil, finish: capSybils},
	{name: "zipf", load: 1.3, tenantShare: 0.25, tenant: zipf},
	{name: "overload", tenantShare: 1, finish: overloaded, policy: shed},
	{name: "dead-downstream", finish: downstreams},
	{name: "slow-consumer", load: 0.5, finish: slowHandlers},
	{name: "redis-restart", finish: restart},
}

// Shape of a burst: in each of burstPeriods, burstTime of the time carries burstJobs of the jobs.
const (
	burstPeriods = 5
	burstTime    = 0.2
	burstJobs    = 0.8
)

func bursts(u float64) float64 {
	period := float64(int(u * burstPeriods))
	v := u*burstPeriods - period
	if v < burstJobs {
		v = v / burstJobs * burstTime
	} else {
		v = burstTime + (v-burstJobs)/(1-burstJobs)*(1-burstTime)
	}
	return (period + v) / burstPeriods
}

// noisyShare is the part of all jobs that the noisy neighbour sends.
const noisyShare = 0.8

func noisy(b *builder) func() int {
	b.plan.Tenants[0] = "noisy"
	b.plan.Offenders = [2]int{0, 1}
	others := len(b.plan.Tenants) - 1
	return func() int {
		if others == 0 || b.random.Float64() < noisyShare {
			return 0
		}
		return 1 + b.random.IntN(others)
	}
}

// zipfS is the exponent of Zipf's law.
const zipfS = 1.1

func zipf(b *builder) func() int {
	draw := rand.NewZipf(b.random, zipfS, 1, uint64(len(b.plan.Tenants)-1)) //nolint:gosec // A count of tenants, 1 to 100,000.
	return func() int { return int(draw.Uint64()) }                         //nolint:gosec // Below that count.
}

// The sybil sends sybilShare of all jobs under sybilNames names into sybilQueue, which may have half of the slots.
const (
	sybilNames = 1000
	sybilShare = 0.7
	sybilQueue = "sybil"
)

func sybil(b *builder) func() int {
	honest := len(b.plan.Tenants)
	for i := range sybilNames {
		b.plan.Tenants = append(b.plan.Tenants, numbered("sybil-", i))
	}
	b.plan.Offenders = [2]int{honest, len(b.plan.Tenants)}
	return func() int {
		if b.random.Float64() < sybilShare {
			return honest + b.random.IntN(sybilNames)
		}
		return b.random.IntN(honest)
	}
}

func capSybils(b *builder) {
	honest, open := len(b.plan.Tenants)-sybilNames, len(b.plan.Queues)
	b.plan.Queues = append(b.plan.Queues, sybilQueue)
	b.plan.Caps = map[string]int{sybilQueue: max(1, b.plan.Slots/2)}
	b.queue = func(tenant int) int {
		if tenant >= honest {
			return open
		}
		return b.random.IntN(open)
	}
}

// slowFactor is how much longer handlers take in slow-consumer.
const slowFactor = 4

func slowHandlers(b *builder) {
	b.plan.Incidents = []Incident{
		{At: b.part(0.3), Event: HandlersSlow, Factor: slowFactor},
		{At: b.part(0.6), Event: HandlersSlow, Factor: 1},
	}
}

// awayFor is how long Redis is dead in redis-restart, at most a fifth of the run.
const awayFor = 500 * time.Millisecond

func restart(b *builder) {
	b.plan.Restarts = true
	b.plan.Incidents = []Incident{
		{At: b.part(0.4), Event: RedisDies},
		{At: b.part(0.4) + min(awayFor, b.part(0.2)), Event: RedisReturns},
	}
}

// Downstreams of dead-downstream; the first dies, the second hangs.
const downstreamCount = 6

func downstreams(b *builder) {
	for i := range downstreamCount {
		b.plan.Downstreams = append(b.plan.Downstreams, numbered("api-", i))
	}
	b.plan.Serve = true
	b.breakers(b.part(0.05))
	away, back := b.part(0.25), b.part(0.6)
	b.plan.Incidents = []Incident{
		{At: away, Event: DownstreamDies, Downstream: 0},
		{At: away, Event: DownstreamHangs, Downstream: 1},
		{At: back, Event: DownstreamReturns, Downstream: 0},
		{At: back, Event: DownstreamReturns, Downstream: 1},
	}
}
