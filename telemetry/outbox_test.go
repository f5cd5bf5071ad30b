package telemetry

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/outbox"
)

// aRelay says what it was told.
type aRelay struct {
	stats outbox.Stats
	lag   error
}

func (r *aRelay) Stats() outbox.Stats { return r.stats }

func (r *aRelay) Lag(context.Context) (time.Duration, error) { return 1500 * time.Millisecond, r.lag }

func TestRelaysStatsAreMetrics(t *testing.T) {
	t.Parallel()
	r := &aRelay{stats: outbox.Stats{Admitted: 1, Duplicates: 2, Refused: 3, Dead: 4, Errors: 5, Working: true}}
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(outboxMetrics{r}); err != nil {
		t.Fatal(err)
	}
	want := `
# HELP headgate_outbox_errors_total Times that this relay's database or Redis failed, and it had to begin again.
# TYPE headgate_outbox_errors_total counter
headgate_outbox_errors_total 5
# HELP headgate_outbox_lag_seconds For how long the row at the head of the outbox has waited, by the clock of its database.
# TYPE headgate_outbox_lag_seconds gauge
headgate_outbox_lag_seconds 1.5
# HELP headgate_outbox_rows_total Rows that this relay has settled: entered as admitted or duplicate, refused for a time, dead for good.
# TYPE headgate_outbox_rows_total counter
headgate_outbox_rows_total{result="admitted"} 1
headgate_outbox_rows_total{result="dead"} 4
headgate_outbox_rows_total{result="duplicate"} 2
headgate_outbox_rows_total{result="refused"} 3
# HELP headgate_outbox_working 1 where this relay moves the rows, 0 where it stands by or its database is away.
# TYPE headgate_outbox_working gauge
headgate_outbox_working 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	r.lag, r.stats.Working = errors.New("the database is away"), false
	want, _, _ = strings.Cut(want, "# HELP headgate_outbox_lag")
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "headgate_outbox_errors_total", "headgate_outbox_lag_seconds"); err != nil {
		t.Error(err)
	}
}
