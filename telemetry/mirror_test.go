package telemetry

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/mirror"
)

// aMirror says what it was told.
type aMirror struct{ stats mirror.Stats }

func (m *aMirror) Stats() mirror.Stats { return m.stats }

func TestMirrorsStatsAreMetrics(t *testing.T) {
	t.Parallel()
	m := &aMirror{mirror.Stats{Errors: 5, Working: true, Sources: map[string]mirror.SourceStats{
		mirror.Audit: {Rows: 7, Gaps: 1, Lost: 60, Lag: 1500 * time.Millisecond},
	}}}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(mirrorMetrics{m}); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP headgate_mirror_errors_total Times that this mirror's database or Redis failed, and it had to begin again.
# TYPE headgate_mirror_errors_total counter
headgate_mirror_errors_total 5
# HELP headgate_mirror_gaps_total Times that something had gone from Redis before this mirror came to copy it.
# TYPE headgate_mirror_gaps_total counter
headgate_mirror_gaps_total{source="audit"} 1
# HELP headgate_mirror_lag_seconds How long ago it was that all that Redis has of it was in the database.
# TYPE headgate_mirror_lag_seconds gauge
headgate_mirror_lag_seconds{source="audit"} 1.5
# HELP headgate_mirror_lost_total Entries, versions or days that had gone from Redis before this mirror came to copy them.
# TYPE headgate_mirror_lost_total counter
headgate_mirror_lost_total{source="audit"} 60
# HELP headgate_mirror_rows_total Rows that this mirror has written, by what they are of: audit, policies, usage, transitions.
# TYPE headgate_mirror_rows_total counter
headgate_mirror_rows_total{source="audit"} 7
# HELP headgate_mirror_working 1 where this mirror copies, 0 where it stands by or its database is away.
# TYPE headgate_mirror_working gauge
headgate_mirror_working 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	m.stats.Sources[mirror.Audit] = mirror.SourceStats{Standby: true, Lag: time.Hour}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(""), "headgate_mirror_lag_seconds"); err != nil {
		t.Error(err)
	}
}
