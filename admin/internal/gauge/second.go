package gauge

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/store"
)

var (
	awayDesc    = prometheus.NewDesc("headgate_second_redis_jobs", "Spilled jobs whose bodies are in the second Redis.", nil, nil)
	troubleDesc = prometheus.NewDesc("headgate_second_redis_trouble", "1 for what of away, refused, foreign and lost stands against moving spilled jobs to the second Redis and back, 0 for the others.", []string{"reason"}, nil)
	quietDesc   = prometheus.NewDesc("headgate_second_redis_moved_seconds", "How long ago spilled jobs were last looked after without trouble, of the partition where it is longest.", nil, nil)
)

// readSecond reads what each partition says of a second Redis: a round trip each. Those that never had to do with one say nothing.
func readSecond(ctx context.Context, s store.Deployment) ([]store.SpillState, error) {
	var all []store.SpillState
	for _, part := range s.Partitions() {
		state, err := part.SpillState(ctx)
		if err != nil {
			return nil, err
		}
		if !state.Moved.IsZero() || state.Trouble != "" || state.Away > 0 {
			all = append(all, state)
		}
	}
	return all, nil
}

func collectSecond(to chan<- prometheus.Metric, all []store.SpillState, now time.Time) {
	if len(all) == 0 {
		return
	}
	away, longest, troubles := int64(0), time.Duration(0), map[string]bool{}
	for i := range all {
		away += all[i].Away
		if all[i].Trouble != "" {
			troubles[all[i].Trouble] = true
		}
		if !all[i].Moved.IsZero() {
			longest = max(longest, now.Sub(all[i].Moved))
		}
	}
	gaugeOf(to, awayDesc, float64(away))
	gaugeOf(to, quietDesc, longest.Seconds())
	for _, reason := range store.SpillTroubles {
		there := 0.0
		if troubles[reason] {
			there = 1
		}
		gaugeOf(to, troubleDesc, there, reason)
	}
}
