package breaker_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/breaker"
)

// TestOneSickWorkerOpensNothing draws any schedule in which one worker fails and is slow as it likes, and others, of
// which at least one calls in any window, are well.
func TestOneSickWorkerOpensNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		config := breaker.Config{MinCalls: rapid.IntRange(1, 20).Draw(rt, "min"), FailureThreshold: rapid.IntRange(1, 20).Draw(rt, "threshold")}
		now := breaker.Instant(time.Hour)
		f, err := breaker.NewFleetAt(now, config)
		if err != nil {
			rt.Fatal(err)
		}
		period := f.SnapshotAt(now).Period
		report := func(n uint64, worker string, c breaker.Counts) breaker.Transition {
			return f.ReportAt(now, 0, config, breaker.Report{Worker: worker, Sequence: n, Period: period, Counts: c, Streak: c.Failures})
		}
		for n := range uint64(rapid.IntRange(1, 60).Draw(rt, "reports")) {
			now = now.Add(time.Duration(rapid.IntRange(0, 8000).Draw(rt, "ms")) * time.Millisecond)
			well := fmt.Sprint("well", rapid.IntRange(0, 3).Draw(rt, "well"))
			for worker, c := range map[string]breaker.Counts{
				well:   {Successes: 1 + uint64(rapid.IntRange(0, 3).Draw(rt, "ok"))},
				"sick": {Failures: uint64(rapid.IntRange(0, 1000).Draw(rt, "failed")), Slow: uint64(rapid.IntRange(0, 1000).Draw(rt, "slow"))},
			} {
				if worker == "sick" && n == 0 {
					continue // It has company first.
				}
				if change := report(n+1, worker, c); change.Happened() {
					rt.Fatalf("report %d of %s: %+v", n, worker, change)
				}
			}
		}
	})
}
