package gauge

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/store"
)

var (
	distinctTenantsDesc = prometheus.NewDesc("headgate_queue_distinct_tenants", "How many different tenants were decided on in a queue, within 1 % or so, in the hour of UTC under way (this) and in the last.", []string{"queue_id", "hour"}, nil)
	distinctJobsDesc    = prometheus.NewDesc("headgate_queue_distinct_jobs", "How many different jobs came in, as headgate_queue_distinct_tenants.", []string{"queue_id", "hour"}, nil)
)

// readDistinct reads how many different names queues had: there are up to store.MaxDistinctQueues. Where rates were never watched nothing is asked.
func readDistinct(ctx context.Context, s store.Deployment, c store.Counters) (map[string]store.Distinct, error) {
	if len(c.Anomalies) == 0 {
		return nil, nil
	}
	return s.Distincts(ctx, "")
}

func collectDistinct(to chan<- prometheus.Metric, all map[string]store.Distinct) {
	shown := 0
	for queue, d := range all {
		if shown++; shown > MaxQueues { // Of two hours there may be more.
			return
		}
		for hour, names := range map[string]store.DistinctNames{"this": d.ThisHour, "last": d.LastHour} {
			gaugeOf(to, distinctTenantsDesc, float64(names.Tenants), queue, hour)
			gaugeOf(to, distinctJobsDesc, float64(names.Jobs), queue, hour)
		}
	}
}
