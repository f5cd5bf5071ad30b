package gauge

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

var (
	adaptiveDesc = prometheus.NewDesc("headgate_adaptive_limit", "What is in force of a limit that moves by itself, by its name in the policy: jobs at a time, of a dispatch jobs a second, of limits of admission percent of what the policy says.", []string{"name"}, nil)
	deadBandDesc = prometheus.NewDesc("headgate_adaptive_dead_band_total", "How many looks left it alone, since what would have changed was too little to make.", []string{"name"}, nil)
	movedDesc    = prometheus.NewDesc("headgate_adaptive_changes_total", "How often it moved: up or down.", []string{"name", "direction"}, nil)
)

var triggerDesc = prometheus.NewDesc("headgate_trigger_active", "Whether a trigger of the policy acts, by its name: 1 while it does, 0 for one that did when the last scheduler died.", []string{"name"}, nil)

// collectTriggers shows the triggers that act.
func collectTriggers(to chan<- prometheus.Metric, all []store.TriggerState, now time.Time) {
	for _, t := range all {
		acts := 0.0
		if t.Until.After(now) {
			acts = 1
		}
		gaugeOf(to, triggerDesc, acts, t.Name)
	}
}

// readAdaptive reads limits that move by themselves: those of a downstream's gate or of its rate, or of limits of admission, which move by how much
// queues are pressed. Where there is none of these nothing is asked.
func readAdaptive(ctx context.Context, s store.Deployment, gates []store.GateState, queues []store.QueueState) ([]store.Adaptation, error) {
	ofDownstream := func(g store.GateState) bool {
		kind, _ := g.Name.Split()
		return kind == store.KindDownstream || kind == store.KindDownstreamRate
	}
	pressed := func(q store.QueueState) bool { return q.Pressure != nil }
	if !slices.ContainsFunc(gates, ofDownstream) && !slices.ContainsFunc(queues, pressed) {
		return nil, nil
	}
	return s.Adaptations(ctx)
}

func collectAdaptive(to chan<- prometheus.Metric, all []store.Adaptation) {
	for _, a := range all {
		gaugeOf(to, adaptiveDesc, shown.AdaptiveOf(&a).Limit, a.Name)
		to <- prometheus.MustNewConstMetric(movedDesc, prometheus.CounterValue, float64(a.Raised), a.Name, "up")
		to <- prometheus.MustNewConstMetric(movedDesc, prometheus.CounterValue, float64(a.Lowered), a.Name, "down")
		to <- prometheus.MustNewConstMetric(deadBandDesc, prometheus.CounterValue, float64(a.DeadBand), a.Name)
	}
}
