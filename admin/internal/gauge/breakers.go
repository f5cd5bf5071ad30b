package gauge

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// MaxDownstreams is the largest number of downstreams with a name of their own: those whose breakers are not closed come
// first, then by name.
const MaxDownstreams = 200

var (
	breakerDesc     = prometheus.NewDesc("circuit_breaker_state", "Downstreams whose circuit breaker is in a state: 1 or 0 for one with a name of its own.", []string{"service_id", "state"}, nil)
	tripsDesc       = prometheus.NewDesc("circuit_breaker_trips_total", "How often the circuit breaker of a downstream opened of itself.", []string{"service_id"}, nil)
	failuresDesc    = prometheus.NewDesc("circuit_breaker_failures_total", "Calls of a downstream that failed, as its circuit breaker counted them.", []string{"service_id"}, nil)
	successesDesc   = prometheus.NewDesc("circuit_breaker_successes_total", "Calls of a downstream that were well, as its circuit breaker counted them.", []string{"service_id"}, nil)
	transitionsDesc = prometheus.NewDesc("circuit_breaker_transitions_total", "How often the circuit breaker of a downstream went from a state to another, or began one anew.", []string{"service_id", "from", "to"}, nil)
	heldDesc        = prometheus.NewDesc("circuit_breaker_waiting_jobs", "Jobs in lanes that call a downstream with a circuit breaker.", []string{"service_id"}, nil)
)

var breakerStates = [...]breaker.State{breaker.Closed, breaker.Open, breaker.HalfOpen}

// collectBreakers sends no counter for those that share a name: it would go back whenever one gets its own.
func collectBreakers(to chan<- prometheus.Metric, breakers []store.BreakerState) {
	slices.SortFunc(breakers, func(a, b store.BreakerState) int {
		return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)), strings.Compare(a.Downstream, b.Downstream))
	})
	states, waiting := map[cell]int64{}, map[string]int64{}
	for i := range breakers {
		b := &breakers[i]
		name := b.Downstream
		if i >= MaxDownstreams {
			name = Other
		} else if name != Other {
			collectLife(to, b)
		}
		for _, state := range breakerStates {
			states[cell{name, label(state)}] += count(b.State == state)
		}
		waiting[name] += b.Waiting
	}
	for c, n := range states {
		gaugeOf(to, breakerDesc, float64(n), c.name, c.label)
	}
	for name, n := range waiting {
		gaugeOf(to, heldDesc, float64(n), name)
	}
}

// collectLife sends what only grows, of one with a name of its own.
func collectLife(to chan<- prometheus.Metric, b *store.BreakerState) {
	counter := func(desc *prometheus.Desc, n int64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), append([]string{b.Downstream}, labels...)...)
	}
	counter(tripsDesc, int64(b.Trips))
	counter(failuresDesc, b.Life.Failures)
	counter(successesDesc, b.Life.Calls-b.Life.Failures)
	for _, t := range b.Life.Transitions {
		counter(transitionsDesc, t.Count, label(t.From), label(t.To))
	}
}

// rank puts those first that somebody may have to look at.
func rank(state breaker.State) int {
	if state == breaker.Closed {
		return 1
	}
	return 0
}

// label is a state as labels have it.
func label(state breaker.State) string { return strings.ReplaceAll(state.String(), "-", "_") }
