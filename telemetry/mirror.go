package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headgate/headgate/mirror"
)

// copier is what is read of a mirror.
type copier interface{ Stats() mirror.Stats }

// mirrorMetrics are what a mirror has counted, and how late it is, read at each scrape.
type mirrorMetrics struct{ of copier }

// Mirror returns the metrics of a mirror, for prometheus.Registerer's Register. One registry takes those of one mirror. A scrape asks neither the
// database nor Redis. Of a mirror that stands by headgate_mirror_lag_seconds is left out: it is that of the one that works.
func Mirror(m *mirror.Mirror) prometheus.Collector { return mirrorMetrics{m} }

var (
	mirrorRows = ofOutbox("headgate_mirror_rows_total", "Rows that this mirror has written, by what they are of: audit, policies, usage, transitions.", "source")
	mirrorGaps = ofOutbox("headgate_mirror_gaps_total", "Times that something had gone from Redis before this mirror came to copy it.", "source")
	mirrorLost = ofOutbox("headgate_mirror_lost_total", "Entries, versions or days that had gone from Redis before this mirror came to copy them.", "source")
	mirrorLag  = ofOutbox("headgate_mirror_lag_seconds", "How long ago it was that all that Redis has of it was in the database.", "source")
	mirrorErrs = ofOutbox("headgate_mirror_errors_total", "Times that this mirror's database or Redis failed, and it had to begin again.")
	mirrorWork = ofOutbox("headgate_mirror_working", "1 where this mirror copies, 0 where it stands by or its database is away.")
)

// Describe says which metrics they are.
func (mirrorMetrics) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{mirrorRows, mirrorGaps, mirrorLost, mirrorLag, mirrorErrs, mirrorWork} {
		to <- desc
	}
}

// Collect sends what was counted.
func (m mirrorMetrics) Collect(to chan<- prometheus.Metric) {
	counter := func(desc *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...)
	}
	s := m.of.Stats()
	for source, of := range s.Sources {
		counter(mirrorRows, of.Rows, source)
		counter(mirrorGaps, of.Gaps, source)
		counter(mirrorLost, of.Lost, source)
		if !of.Standby {
			to <- prometheus.MustNewConstMetric(mirrorLag, prometheus.GaugeValue, of.Lag.Seconds(), source)
		}
	}
	counter(mirrorErrs, s.Errors)
	working := 0.0
	if s.Working {
		working = 1
	}
	to <- prometheus.MustNewConstMetric(mirrorWork, prometheus.GaugeValue, working)
}
