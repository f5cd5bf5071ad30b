package telemetry

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/outbox"
)

// relay is what is read of one.
type relay interface {
	Stats() outbox.Stats
	Lag(ctx context.Context) (time.Duration, error)
}

// outboxMetrics are what a relay has counted, and how far behind it is, read at each scrape. No label is a tenant.
type outboxMetrics struct{ of relay }

// Outbox returns the metrics of a relay, for prometheus.Registerer's Register. One registry takes those of one relay. A scrape asks the database
// for one row, two seconds long at most; where it gives no answer, headgate_outbox_lag_seconds is left out.
func Outbox(r *outbox.Relay) prometheus.Collector { return outboxMetrics{r} }

// lagPatience is how long a scrape waits for the database.
const lagPatience = 2 * time.Second

func ofOutbox(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

var (
	outboxRows = ofOutbox("headgate_outbox_rows_total", "Rows that this relay has settled: entered as admitted or duplicate, refused for a time, dead for good.", "result")
	outboxErrs = ofOutbox("headgate_outbox_errors_total", "Times that this relay's database or Redis failed, and it had to begin again.")
	outboxWork = ofOutbox("headgate_outbox_working", "1 where this relay moves the rows, 0 where it stands by or its database is away.")
	outboxLag  = ofOutbox("headgate_outbox_lag_seconds", "For how long the row at the head of the outbox has waited, by the clock of its database.")
)

// Describe says which metrics they are.
func (outboxMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{outboxRows, outboxErrs, outboxWork, outboxLag} {
		to <- desc
	}
}

// Collect sends what was counted.
func (m outboxMetrics) Collect(to chan<- prometheus.Metric) {
	counter := func(desc *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	s := m.of.Stats()
	counter(outboxRows, s.Admitted, "admitted")
	counter(outboxRows, s.Duplicates, "duplicate")
	counter(outboxRows, s.Refused, "refused")
	counter(outboxRows, s.Dead, "dead")
	counter(outboxErrs, s.Errors)
	working := 0.0
	if s.Working {
		working = 1
	}
	to <- prometheus.MustNewConstMetric(outboxWork, prometheus.GaugeValue, working)
	ctx, cancel := context.WithTimeout(context.Background(), lagPatience) //nolint:forbidigo // A scrape has no ctx.
	defer cancel()
	if lag, err := m.of.Lag(ctx); err == nil {
		to <- prometheus.MustNewConstMetric(outboxLag, prometheus.GaugeValue, lag.Seconds())
	}
}
