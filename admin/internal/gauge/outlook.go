package gauge

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

var (
	foreseenDesc = prometheus.NewDesc("headgate_forecast_jobs_per_second", "The most jobs a second that a queue is foreseen to be asked for in ten minutes of the next hour, where the policy's anomalies have forecast and two days are known.", []string{"queue_id"}, nil)
	mostDesc     = prometheus.NewDesc("headgate_forecast_most_admitted_per_second", "The most jobs a second of a queue that were admitted in ten minutes of the days by which it is foreseen.", []string{"queue_id"}, nil)
	missedDesc   = prometheus.NewDesc("headgate_forecast_error_ratio", "By which part of what came forecasts of the last day were away, on average.", []string{"queue_id"}, nil)
)

// outlook are forecasts, which are made anew as another point is over, not at each scrape: they are of days of all queues.
type outlook struct {
	mu   sync.Mutex
	last int64 // the point at which they were made
	all  []shown.Forecast
}

// outlookLate is how long after its end a point is looked at: a scheduler keeps it within a minute and some seconds.
const outlookLate = 90 * time.Second

// read returns forecasts by what is known at a time. Where rates were never watched nothing is asked.
func (o *outlook) read(ctx context.Context, s store.Deployment, c store.Counters, now time.Time) ([]shown.Forecast, error) {
	if len(c.Anomalies) == 0 {
		return nil, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if at := now.Add(-outlookLate).Unix() / int64(store.RateStep/time.Second); at != o.last {
		read, err := shown.ReadForecasts(ctx, s, MaxQueues)
		if err != nil {
			return nil, err
		}
		o.last, o.all = at, read.Forecasts
	}
	return o.all, nil
}

func collectForecasts(to chan<- prometheus.Metric, all []shown.Forecast) {
	for i := range all {
		f := &all[i]
		if f.PeakAt == nil {
			continue
		}
		gaugeOf(to, foreseenDesc, f.Peak/60, f.Queue)
		gaugeOf(to, mostDesc, f.Most/60, f.Queue)
		if f.Error.Part != nil {
			gaugeOf(to, missedDesc, *f.Error.Part, f.Queue)
		}
	}
}
