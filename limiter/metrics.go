package limiter

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate"
)

// counts are what the limiter counts, beside the way of checks that need no call.
type counts struct {
	calls, leased, blindTokens  prometheus.Counter
	blindAdmitted, blindRefused prometheus.Counter
}

func newCounts() counts {
	count := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "headgate", Subsystem: "limiter", Name: name, Help: help})
	}
	return counts{
		calls:         count("calls_total", "Calls to Redis that were answered."),
		leased:        count("leased_tokens_total", "Tokens taken on lease, of all scopes."),
		blindAdmitted: count("blind_admissions_total", "Checks admitted while Redis gave no answer."),
		blindRefused:  count("blind_refusals_total", "Checks refused while Redis gave no answer."),
		blindTokens:   count("blind_tokens_total", "Cost of the checks admitted while Redis gave no answer."),
	}
}

func (c *counts) register(registerer prometheus.Registerer) error {
	if registerer == nil {
		return nil
	}
	for _, counter := range []prometheus.Counter{c.calls, c.leased, c.blindAdmitted, c.blindRefused, c.blindTokens} {
		if err := registerer.Register(counter); err != nil {
			return err
		}
	}
	return nil
}

func (c *counts) answeredBlind(admitted bool, cost headgate.Tokens) {
	if !admitted {
		c.blindRefused.Inc()
		return
	}
	c.blindAdmitted.Inc()
	c.blindTokens.Add(float64(cost))
}
