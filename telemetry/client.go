package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/circuits"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// Client is what a *headgate.Client is, and one of headgatetest: so this package links nothing of theirs, and no client of Redis.
type Client[I Observed] interface{ Inspect() I }

// Observed is what a headgate.Inspection is.
type Observed interface {
	Observe(decided func(admission.Job, admission.Verdict, error), finished func(worker.Event), guarded func(worker.GuardChange))
	Limiters() limiter.Stats
	Breakers(ctx context.Context) ([]store.BreakerState, error)
}

// Collector returns the metrics of a client of the front door, for prometheus.Registerer's Register: what became of the jobs that it enqueued, periodic
// and redriven ones too, those of Telemetry's producers; the runs and waits of its workers, and what their Guard found; what its limiters count, all
// together; the circuit breakers. Jobs count from this call on, so it belongs beside Open; limiters count from Open on. Workers and limiters
// are in it whenever they are made. One registry takes that of one client, and then no Telemetry or Limiter.
//
//	hg, err := headgate.Open(ctx, "redis://localhost:6379", headgate.Config{})
//	prometheus.MustRegister(telemetry.Collector(hg))
//
// No label is a scope or a job; the 20 busiest tenants have a name in one metric. A scrape reads the fleet's breakers from Redis, two seconds long at
// most; where that gives no answer they are left out. Each client shows the same of them, as headgate serve does: of several the largest is right.
func Collector[I Observed](hg Client[I]) prometheus.Collector {
	c := &clientMetrics{metrics: newMetrics(defaultTenants), of: hg.Inspect()}
	c.limiters.stats = c.of.Limiters
	c.of.Observe(c.metrics.decided, c.metrics.finished, c.metrics.guarded)
	return c
}

type clientMetrics struct {
	metrics  *metrics
	limiters limiterMetrics
	of       Observed
}

// breakersPatience is how long a scrape waits for Redis.
const breakersPatience = 2 * time.Second

// Describe says which metrics they are.
func (c *clientMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.metrics.all() {
		m.Describe(to)
	}
	c.limiters.Describe(to)
	circuits.Describe(to)
}

// Collect sends what was counted, and what Redis says of the breakers.
func (c *clientMetrics) Collect(to chan<- prometheus.Metric) {
	for _, m := range c.metrics.all() {
		m.Collect(to)
	}
	c.limiters.Collect(to)
	ctx, cancel := context.WithTimeout(context.Background(), breakersPatience) //nolint:forbidigo // A scrape has no ctx.
	defer cancel()
	if breakers, err := c.of.Breakers(ctx); err == nil {
		circuits.Collect(to, breakers)
	}
}
