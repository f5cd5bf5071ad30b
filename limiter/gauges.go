package limiter

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/admission"
)

// gauges show what is on lease, and the bound in force, by level: at the global one that is one scope, at others the sum or
// the largest. They are kept as scopes come and go, so a scrape looks at none.
type gauges struct {
	limiter                   *Limiter
	held, burst, rate, leased *prometheus.Desc
}

func newGauges(l *Limiter) *gauges {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, subsystem, name), help, []string{"level"}, nil)
	}
	return &gauges{
		limiter: l,
		held:    desc("held_tokens", "Tokens on lease as each scope last asked for some, the sum of a level."),
		burst:   desc("guarantee_burst_tokens", "Burst in force, the largest of the scopes of a level that were asked for."),
		rate:    desc("guarantee_tokens_per_second", "Rate in force, the largest of the scopes of a level that were asked for."),
		leased:  desc("guarantee_leased_tokens", "How much more than burst and rate a window may admit, the most of the scopes of a level that were asked for."),
	}
}

// Describe says which metrics they are.
func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{g.held, g.burst, g.rate, g.leased} {
		to <- desc
	}
}

// Collect sends what is in force at levels that have a limit.
func (g *gauges) Collect(to chan<- prometheus.Metric) {
	for i := range admission.Levels {
		bound, held := g.limiter.inForce(admission.Level(i))
		if bound.Burst == 0 {
			continue
		}
		level := admission.Level(i).String()
		for _, gauge := range []struct {
			desc  *prometheus.Desc
			value float64
		}{
			{g.held, float64(held)}, {g.burst, float64(bound.Burst)}, {g.rate, float64(bound.Rate)}, {g.leased, float64(bound.Leased)},
		} {
			to <- prometheus.MustNewConstMetric(gauge.desc, prometheus.GaugeValue, gauge.value, level)
		}
	}
}

// inForce returns the largest bound of a level, and what is on lease there.
func (l *Limiter) inForce(level admission.Level) (bound Guarantee, held admission.Tokens) {
	if l.parts == nil {
		return l.ways.bounds()[level], admission.Tokens(l.ways.onLease[level].Load())
	}
	for _, part := range l.parts {
		of, leased := part.inForce(level)
		held += leased
		bound.Burst, bound.Rate, bound.Leased = max(bound.Burst, of.Burst), max(bound.Rate, of.Rate), max(bound.Leased, of.Leased)
	}
	return bound, held
}
