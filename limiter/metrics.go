package limiter

import (
	"cmp"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/admission"
)

// counts are what the limiter counts. No label is a scope.
type counts struct {
	calls, grants, leased, returns, returned, blindTokens prometheus.Counter
	// checks are by source and result; byLease and byDenial are those of checks that cost no call, and nil where nobody
	// would read them.
	checks            *prometheus.CounterVec
	byLease, byDenial prometheus.Counter
	// blind is by mode and result.
	blind *prometheus.CounterVec
}

const (
	namespace = "headgate"
	subsystem = "limiter"
)

func newCounts() counts {
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help}
	}
	return counts{
		calls:       prometheus.NewCounter(opts("calls_total", "Calls to Redis that were answered.")),
		grants:      prometheus.NewCounter(opts("lease_grants_total", "Times that tokens of a scope were taken on lease.")),
		leased:      prometheus.NewCounter(opts("leased_tokens_total", "Tokens taken on lease, of all scopes.")),
		returns:     prometheus.NewCounter(opts("lease_returns_total", "Leases that were given back on closing.")),
		returned:    prometheus.NewCounter(opts("returned_tokens_total", "Tokens that were given back on closing, of all scopes.")),
		blindTokens: prometheus.NewCounter(opts("blind_tokens_total", "Cost of the checks admitted while Redis gave no answer.")),
		checks: prometheus.NewCounterVec(opts("checks_total",
			"Checks by source (tokens leased, exact by Redis, a cached denial) and result."), []string{"source", "result"}),
		blind: prometheus.NewCounterVec(opts("blind_checks_total",
			"Checks to which Redis gave no answer, by the mode of the scope that decided (leased where tokens on lease did) and result."), []string{"mode", "result"}),
	}
}

// register lets a registerer know of the counts and the gauges; without one the checks that cost no call are not counted.
func (c *counts) register(registerer prometheus.Registerer, g *gauges) error {
	if registerer == nil {
		return nil
	}
	c.byLease = c.checks.WithLabelValues(Leased.String(), resultOf(true))
	c.byDenial = c.checks.WithLabelValues(Cached.String(), resultOf(false))
	var bad []error
	for _, collector := range []prometheus.Collector{c.calls, c.grants, c.leased, c.returns, c.returned, c.blindTokens, c.checks, c.blind, g} {
		bad = append(bad, registerer.Register(collector))
	}
	return errors.Join(bad...)
}

func resultOf(admitted bool) string {
	if admitted {
		return "admitted"
	}
	return "refused"
}

func (c *counts) answered(admitted bool) {
	c.checks.WithLabelValues(Exact.String(), resultOf(admitted)).Inc()
}

// answeredBlind counts a check without Redis; no mode means that tokens on lease decided.
func (c *counts) answeredBlind(mode Outage, admitted bool, cost admission.Tokens) {
	c.blind.WithLabelValues(cmp.Or(string(mode), Leased.String()), resultOf(admitted)).Inc()
	if admitted {
		c.blindTokens.Add(float64(cost))
	}
}

func (c *counts) granted(tokens admission.Tokens) {
	if tokens > 0 {
		c.grants.Inc()
		c.leased.Add(float64(tokens))
	}
}

func (c *counts) gaveBack(all []leftover) {
	for _, r := range all {
		c.returns.Inc()
		c.returned.Add(float64(r.tokens))
	}
}
