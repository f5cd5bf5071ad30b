package gauge

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestForecastsAreMadeOnceAPoint: what is read for them is read when another point is over, and where rates were never watched not at all.
func TestForecastsAreMadeOnceAPoint(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Options{}).Client(t)
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{})
	must(t, err)
	_, err = s.Partitions()[0].Register(t.Context(), "w", store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}, 1, time.Minute)
	must(t, err)
	calls := func() int64 { return redistest.CommandStats(t, client)["hmget"].Calls }
	watched := store.Counters{Anomalies: map[string]int64{"surge": 0}}
	var o outlook
	read := func(c store.Counters, at time.Time) int64 {
		t.Helper()
		before := calls()
		_, err := o.read(t.Context(), s, c, at)
		must(t, err)
		return calls() - before
	}
	now := time.Unix(1_800_000_000, 0).Truncate(store.RateStep).Add(outlookLate)
	days := int64(store.RateHistoryLife/(24*time.Hour)) + 1
	for i, step := range []struct {
		of   store.Counters
		at   time.Time
		want int64
	}{
		{store.Counters{}, now, 0}, {watched, now, days}, {watched, now.Add(store.RateStep - 1), 0}, {watched, now.Add(store.RateStep), days}, {watched, now.Add(store.RateStep), 0},
	} {
		if got := read(step.of, step.at); got < step.want-1 || got > step.want+1 || step.want == 0 && got != 0 {
			t.Errorf("step %d reads %d days, want some %d", i, got, step.want)
		}
	}
}
