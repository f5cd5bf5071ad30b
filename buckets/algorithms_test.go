package buckets

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// algorithms draw a limit of each kind.
var algorithms = map[string]func(t *rapid.T, label string) admission.Limit{
	"token_bucket": func(t *rapid.T, label string) admission.Limit {
		return admission.Limit{Tokens: drawTokens(t, label+" tokens"), Per: time.Minute, Burst: drawTokens(t, label+" burst")}
	},
	"fixed_window": func(t *rapid.T, label string) admission.Limit {
		window, anchor := rapid.SampledFrom([]string{"1m", "5m"}).Draw(t, label+" window"), rapid.SampledFrom([]string{"00:00", "00:01"}).Draw(t, label+" anchor")
		return must(admission.FixedWindow(drawTokens(t, label+" tokens"), window, anchor, ""))
	},
	"sliding_window": func(t *rapid.T, label string) admission.Limit {
		return must(admission.SlidingWindow(drawTokens(t, label+" tokens"), drawLength(t, label)))
	},
	"sliding_log": func(t *rapid.T, label string) admission.Limit {
		return must(admission.SlidingLog(drawTokens(t, label+" tokens"), drawLength(t, label)))
	},
}

func must(l admission.Limit, err error) admission.Limit {
	if err != nil {
		panic(err)
	}
	return l
}

func drawTokens(t *rapid.T, label string) admission.Tokens {
	return admission.Tokens(rapid.IntRange(1, 40).Draw(t, label))
}

func drawLength(t *rapid.T, label string) string {
	return rapid.SampledFrom([]string{"10s", "1m", "5m"}).Draw(t, label+" window")
}

// came is what a limit brings from one time to another: fixed windows all of it as each begins, others evenly.
func came(limit admission.Limit, from, to Instant) float64 {
	if limit.Window.IsZero() || limit.Window.Grain() > 0 {
		return float64(limit.Rate()) * float64(to-from)
	}
	sum := 0.0
	for {
		_, end := limit.Window.Bounds(from.Time())
		if from = InstantOf(end); from > to {
			return sum
		}
		sum += float64(MicroOf(limit.Burst))
	}
}

// change is what was admitted under a limit and under the one that it was changed to.
type change struct {
	limits   [2]admission.Limit
	changed  Instant
	admitted []Instant
}

// drawChange has jobs of one token ask, mostly many at a time, before and after a change.
func drawChange(t *rapid.T, before, after string) (c change) {
	c.limits = [2]admission.Limit{algorithms[before](t, "before"), algorithms[after](t, "after")}
	var set Set
	now, changed := InstantOf(time.Date(2027, 1, 1, 0, 0, 17, 0, time.UTC)), Instant(0)
	for phase, limit := range c.limits {
		if phase == 1 {
			changed = now
		}
		for range rapid.IntRange(1, 30).Draw(t, "operations") {
			now += Instant(rapid.SampledFrom([]int64{0, 1, 100_000, 1_700_000, 5_000_000, 20_000_000, 70_000_000}).Draw(t, "elapsed"))
			for range rapid.IntRange(1, 15).Draw(t, "jobs") {
				if set.Take(now, changed, []LevelLimit{{"acme", LimitAt(limit, now)}}, 1).Err() == nil {
					c.admitted = append(c.admitted, now)
				}
			}
		}
	}
	c.changed = changed
	return c
}

// TestAChangeOfAlgorithmAdmitsNoMoreThanTheLargerBound: law L1 over a change from any algorithm to any. In any time that the change lies in, no
// more is admitted than the larger of both bursts and what both limits brought while they were in force; so the first window behind it admits no
// more than the larger of both bounds. Between sliding windows no time that is shorter than both admits more than the larger of both.
func TestAChangeOfAlgorithmAdmitsNoMoreThanTheLargerBound(t *testing.T) {
	t.Parallel()
	for before := range algorithms {
		for after := range algorithms {
			t.Run(before+" to "+after, func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(t *rapid.T) {
					c := drawChange(t, before, after)
					c.check(t)
				})
			})
		}
	}
}

func (c *change) check(t *rapid.T) {
	before, after := c.limits[0], c.limits[1]
	largest := float64(MicroOf(max(before.Burst, after.Burst)))
	shorter := Instant(0)
	if before.Window.Grain() > 0 && after.Window.Grain() > 0 {
		shorter = Instant(min(before.Per, after.Per).Microseconds())
	}
	for i, from := range c.admitted {
		for j, to := range c.admitted[i:] {
			bound := largest
			if to-from >= shorter {
				bound += came(before, min(from, c.changed), min(to, c.changed)) + came(after, max(from, c.changed), max(to, c.changed))
			}
			if sum := float64(MicroOf(admission.Tokens(j + 1))); sum > bound+1 {
				t.Fatalf("from %d to %d µs beside a change of %+v to %+v %d were admitted, bound %.0f", from-c.changed, to-c.changed, before, after, j+1, bound/1e6)
			}
		}
	}
}
