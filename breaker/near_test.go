package breaker

import (
	"testing"

	"pgregory.net/rapid"
)

// TestNearIsOneWhereARuleIsMet, below one where it is not, and never falls where one more call fails.
func TestNearIsOneWhereARuleIsMet(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		config := Config{
			MinCalls: rapid.IntRange(1, 20).Draw(rt, "min"), FailureThreshold: rapid.IntRange(1, 20).Draw(rt, "threshold"),
			FailureRate: Ratio(rapid.Float64Range(0.01, 1).Draw(rt, "failure rate")), SlowCallRate: Ratio(rapid.Float64Range(0.01, 1).Draw(rt, "slow rate")),
		}
		failures := rapid.Uint64Range(0, 30).Draw(rt, "failures")
		counts := Counts{Successes: rapid.Uint64Range(0, 30).Draw(rt, "successes"), Failures: failures, Slow: rapid.Uint64Range(0, 30).Draw(rt, "slow")}
		streak := rapid.Uint64Range(0, failures).Draw(rt, "streak")
		near := config.Near(counts, streak)
		for rule, part := range map[Cause]float64{CauseFailureStreak: near.Streak, CauseFailureRate: near.Failures, CauseSlowCallRate: near.Slow} {
			if part < 0 || part > 1 || (part == 1) != config.met(rule, counts, streak) {
				rt.Fatalf("%s is %v near; it is met: %v", rule, part, config.met(rule, counts, streak))
			}
		}
		if opens := config.judge(counts, streak) != CauseNone; (near.Most() == 1) != opens {
			rt.Fatalf("%v near; it opens: %v", near, opens)
		}
		more := counts
		more.Failures++
		if after := config.Near(more, streak+1); after.Streak < near.Streak || after.Failures < near.Failures {
			rt.Fatalf("%+v, and %+v once one more has failed", near, after)
		}
	})
}
