package circuits

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

const (
	// Most is the largest number of downstreams with a name of their own: those whose breakers are not closed come first, then by name.
	Most = 200
	// other is the label of all others.
	other = "other"
)

var (
	stateDesc       = prometheus.NewDesc("circuit_breaker_state", "Downstreams whose circuit breaker is in a state: 1 or 0 for one with a name of its own.", []string{"service_id", "state"}, nil)
	tripsDesc       = prometheus.NewDesc("circuit_breaker_trips_total", "How often the circuit breaker of a downstream opened of itself.", []string{"service_id"}, nil)
	failuresDesc    = prometheus.NewDesc("circuit_breaker_failures_total", "Calls of a downstream that failed, as its circuit breaker counted them.", []string{"service_id"}, nil)
	successesDesc   = prometheus.NewDesc("circuit_breaker_successes_total", "Calls of a downstream that were well, as its circuit breaker counted them.", []string{"service_id"}, nil)
	transitionsDesc = prometheus.NewDesc("circuit_breaker_transitions_total", "How often the circuit breaker of a downstream went from a state to another, or began one anew.", []string{"service_id", "from", "to"}, nil)
	waitingDesc     = prometheus.NewDesc("circuit_breaker_waiting_jobs", "Jobs in lanes that call a downstream with a circuit breaker.", []string{"service_id"}, nil)
)

var breakerStates = [...]breaker.State{breaker.Closed, breaker.Open, breaker.HalfOpen}

// Describe says which metrics they are.
func Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{stateDesc, tripsDesc, failuresDesc, successesDesc, transitionsDesc, waitingDesc} {
		to <- desc
	}
}

// cell is one series of the states.
type cell struct {
	downstream string
	state      breaker.State
}

// Collect sends no counter for those that share a name: it would go back whenever one gets its own. It sorts breakers.
func Collect(to chan<- prometheus.Metric, breakers []store.BreakerState) {
	slices.SortFunc(breakers, func(a, b store.BreakerState) int {
		return cmp.Or(cmp.Compare(rank(a.State), rank(b.State)), strings.Compare(a.Downstream, b.Downstream))
	})
	states, waiting := map[cell]int{}, map[string]int64{}
	for i := range breakers {
		b := &breakers[i]
		name := b.Downstream
		if i >= Most {
			name = other
		} else if name != other {
			collectLife(to, b)
		}
		for _, state := range breakerStates {
			n := 0
			if b.State == state {
				n = 1
			}
			states[cell{name, state}] += n
		}
		waiting[name] += b.Waiting
	}
	for c, n := range states {
		to <- prometheus.MustNewConstMetric(stateDesc, prometheus.GaugeValue, float64(n), c.downstream, label(c.state))
	}
	for name, n := range waiting {
		to <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(n), name)
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
