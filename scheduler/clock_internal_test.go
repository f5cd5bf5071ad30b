package scheduler

import (
	"testing"
	"time"
)

// TestStepped: only what neither the way to Redis nor the time between two calls can explain is a step.
func TestStepped(t *testing.T) {
	t.Parallel()
	const s = time.Second
	began := time.Unix(1_800_000_000, 0)
	for _, row := range []struct {
		name        string
		first, last time.Duration // how long the two calls were under way
		between     time.Duration
		passed      time.Duration // by the clock of Redis
		want        bool
	}{
		{"nothing", 0, 0, 0, 0, false},
		{"a second", 0, 0, s, s, false},
		{"nobody called for an hour", 0, 0, time.Hour, time.Hour, false},
		{"ten minutes ahead", 0, 0, s, 601 * s, true},
		{"ten minutes ahead while nobody called for an hour", 0, 0, time.Hour, time.Hour + 600*s, true},
		{"ten minutes back", 0, 0, s, -599 * s, true},
		{"ten minutes back while nobody called for an hour", 0, 0, time.Hour, time.Hour - 600*s, true},
		{"just no step ahead", 0, 0, s, 6 * s, false},
		{"just a step ahead", 0, 0, s, 6*s + 1, true},
		{"just no step back", 0, 0, s, -4 * s, false},
		{"just a step back", 0, 0, s, -4*s - 1, true},
		{"Redis stood for a minute before it took the second call", 0, time.Minute, s, 61 * s, false},
		{"Redis stood for a minute after it had taken the first", time.Minute, 0, s, 61 * s, false},
		{"Redis stood for a minute before it took the first", time.Minute, 0, s, s, false},
		{"a step while Redis stood for a minute", 0, time.Minute, s, 67 * s, true},
	} {
		first := glance{redis: began, sent: time.Hour, heard: time.Hour + row.first}
		sent := first.heard + row.between
		last := glance{redis: began.Add(row.passed), sent: sent, heard: sent + row.last}
		if got := stepped(first, last); got != row.want {
			t.Errorf("%s: %t", row.name, got)
		}
	}
}
