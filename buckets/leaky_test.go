package buckets

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// TestALeakyBucketPassesOneInItsTime: of burst 1, which is what a leaky bucket is read as, two never pass within less than Per / Tokens, whoever asks
// and however long nobody did; a refusal's wait is enough and no longer than it takes, so those who wait lose nothing. Each step of the clock may let
// one more pass.
func TestALeakyBucketPassesOneInItsTime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := LimitOf(admission.Limit{
			Tokens: admission.Tokens(rapid.IntRange(1, 700).Draw(t, "tokens")),
			Per:    time.Duration(rapid.IntRange(1, 60_000).Draw(t, "per")) * time.Millisecond, Burst: 1,
		})
		path := []LevelLimit{{"acme", limit}}
		interval := 1 / float64(limit.Rate) * float64(MicroPerToken) // µs
		var set Set
		now, elapsed := someInstant, Instant(0)
		// asks are the times by the set's clock at which callers ask next.
		asks := make([]Instant, rapid.IntRange(1, 6).Draw(t, "callers"))
		for i := range asks {
			asks[i] = now + Instant(drawSpan(t, "begins after"))
		}
		type passing struct {
			at    Instant // in real time
			steps int     // of the clock before it
		}
		var passed []passing
		steps, stepping := 0, rapid.Bool().Draw(t, "stepping")
		for range rapid.IntRange(10, 60).Draw(t, "asked") {
			first := 0
			for i := range asks {
				if asks[i] < asks[first] {
					first = i
				}
			}
			if late := asks[first] - now; late > 0 {
				now, elapsed = asks[first], elapsed+late
			}
			if stepping && rapid.IntRange(0, 7).Draw(t, "step") == 0 {
				now += Instant(rapid.Float64Range(-4, 4).Draw(t, "step by") * interval)
				steps++
			}
			v := set.Take(now, 0, path, 1)
			if v.Err() == nil {
				passed = append(passed, passing{elapsed, steps})
				asks[first] = now + Instant(rapid.SampledFrom([]float64{0, 0, 0.3, 1, 2.7, 100}).Draw(t, "asks again after")*interval)
				continue
			}
			at := now + Instant(v.RetryAfter.Microseconds())
			if !stepping && (set.Peek(at+1, 0, path, 1).Err() != nil || at-2 > now && set.Peek(at-2, 0, path, 1).Err() == nil) { // Roundings, as in others.
				t.Fatalf("told to wait %s, which is too short, or longer than it takes", v.RetryAfter)
			}
			asks[first] = at
		}
		for i, from := range passed {
			for j, to := range passed[i:] {
				if bound := 1 + (float64(to.at-from.at)+1)/interval + float64(to.steps-from.steps); float64(j+1) > bound {
					t.Fatalf("%d passed in %d µs, one in %.3f µs, the clock stepped %d times", j+1, to.at-from.at, interval, to.steps-from.steps)
				}
			}
		}
	})
}
