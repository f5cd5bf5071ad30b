package gauge

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

var (
	adaptiveDesc = prometheus.NewDesc("headgate_adaptive_limit", "What is in force of a limit that moves by itself, by its name in the policy: jobs at a time, of a dispatch jobs a second, of limits of admission percent of what the policy says.", []string{"name"}, nil)
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

// readAdaptive reads limits that move by themselves. Each is that of a downstream's gate, or of its rate: where there is none nothing is asked.
func readAdaptive(ctx context.Context, s store.Deployment, gates []store.GateState) ([]store.Adaptation, error) {
	for _, g := range gates {
		if kind, _ := g.Name.Split(); kind == store.KindDownstream || kind == store.KindDownstreamRate {
			return s.Adaptations(ctx)
		}
	}
	return nil, nil
}

func collectAdaptive(to chan<- prometheus.Metric, all []store.Adaptation) {
	for _, a := range all {
		gaugeOf(to, adaptiveDesc, shown.AdaptiveOf(&a).Limit, a.Name)
		to <- prometheus.MustNewConstMetric(movedDesc, prometheus.CounterValue, float64(a.Raised), a.Name, "up")
		to <- prometheus.MustNewConstMetric(movedDesc, prometheus.CounterValue, float64(a.Lowered), a.Name, "down")
	}
}
