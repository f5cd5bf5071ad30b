package telemetry

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/limiter"
)

// limiterMetrics are what a limiter has counted, read at each scrape. No label is a scope.
type limiterMetrics struct{ stats func() limiter.Stats }

// Limiter returns the metrics of a limiter, for prometheus.Registerer's Register. One registry takes those of one limiter.
// The checks that cost no call are among them where its Config.Count says so.
func Limiter(l *limiter.Limiter) prometheus.Collector { return limiterMetrics{l.Stats} }

func ofLimiter(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("headgate_limiter_"+name, help, labels, nil)
}

var (
	limiterCalls       = ofLimiter("calls_total", "Calls to Redis that were answered.")
	limiterGrants      = ofLimiter("lease_grants_total", "Times that tokens of a scope were taken on lease.")
	limiterLeased      = ofLimiter("leased_tokens_total", "Tokens taken on lease, of all scopes.")
	limiterReturns     = ofLimiter("lease_returns_total", "Leases that were given back on closing.")
	limiterReturned    = ofLimiter("returned_tokens_total", "Tokens that were given back on closing, of all scopes.")
	limiterBlindTokens = ofLimiter("blind_tokens_total", "Cost of the checks admitted while Redis gave no answer.")
	limiterShared      = ofLimiter("shared_total", "Checks that found no room for the bucket of a dimension's value, and were answered by the one that such values share.")
	limiterChecks      = ofLimiter("checks_total", "Checks by source (tokens leased, exact by Redis, a cached denial) and result.", "source", "result")
	limiterBlind       = ofLimiter("blind_checks_total",
		"Checks to which Redis gave no answer, by the mode of the scope that decided (leased where tokens on lease did) and result.", "mode", "result")
	limiterHeld        = ofLimiter("held_tokens", "Tokens on lease as each scope last asked for some, the sum of a level.", "level")
	limiterBurst       = ofLimiter("guarantee_burst_tokens", "Burst in force, the largest of the scopes of a level that were asked for.", "level")
	limiterRate        = ofLimiter("guarantee_tokens_per_second", "Rate in force, the largest of the scopes of a level that were asked for.", "level")
	limiterBoundLeased = ofLimiter("guarantee_leased_tokens",
		"How much more than burst and rate a window may admit, the most of the scopes of a level that were asked for.", "level")
)

// Describe says which metrics they are.
func (limiterMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		limiterCalls, limiterGrants, limiterLeased, limiterReturns, limiterReturned, limiterBlindTokens, limiterShared, limiterChecks, limiterBlind,
		limiterHeld, limiterBurst, limiterRate, limiterBoundLeased,
	} {
		to <- desc
	}
}

// Collect sends what was counted.
func (m limiterMetrics) Collect(to chan<- prometheus.Metric) {
	counter := func(desc *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, value, labels...)
	}
	s := m.stats()
	counter(limiterCalls, float64(s.Calls))
	counter(limiterGrants, float64(s.Grants))
	counter(limiterLeased, float64(s.Leased))
	counter(limiterReturns, float64(s.Returns))
	counter(limiterReturned, float64(s.Returned))
	counter(limiterBlindTokens, float64(s.BlindTokens))
	counter(limiterShared, float64(s.Shared))
	for _, c := range s.Checks {
		counter(limiterChecks, float64(c.N), c.Source.String(), resultOf(c.Admitted))
	}
	for _, c := range s.Blind {
		counter(limiterBlind, float64(c.N), cmp.Or(string(c.Mode), limiter.Leased.String()), resultOf(c.Admitted))
	}
	for _, level := range s.Levels {
		for _, gauge := range []struct {
			desc  *prometheus.Desc
			value float64
		}{
			{limiterHeld, float64(level.Held)},
			{limiterBurst, float64(level.Bound.Burst)},
			{limiterRate, float64(level.Bound.Rate)},
			{limiterBoundLeased, float64(level.Bound.Leased)},
		} {
			to <- prometheus.MustNewConstMetric(gauge.desc, prometheus.GaugeValue, gauge.value, level.Level.String())
		}
	}
}

func resultOf(admitted bool) string {
	if admitted {
		return "admitted"
	}
	return "refused"
}
