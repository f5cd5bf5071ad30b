package buckets

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// scaledCanal is a canal whose limits an operator scales.
type scaledCanal struct {
	*canal

	whole [admission.Levels]Limit
	scale *Scaling
}

// put has the limits be scaled from now on, or no more.
func (c *scaledCanal) put(s *Scaling) {
	c.scale = s
	for i := range c.path {
		c.change(i, c.whole[i].Scaled(s))
	}
}

// pass lets time pass, and a scale end in it.
func (c *scaledCanal) pass(elapsed Span) {
	if c.scale != nil && c.now+Instant(elapsed) >= c.scale.Ends {
		before := Span(c.scale.Ends - c.now)
		c.canal.pass(before)
		c.put(nil) // Its end is a change of limits, whoever is there to see.
		elapsed -= before
	}
	c.canal.pass(elapsed)
}

// L1 while limits are scaled, in every window from one admission to another: burst and rate are those in force, with what a change of policy may
// add and nothing else.
func TestScaledLimitsStayWithinTheBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := scaledCanal{canal: newCanal(t)}
		for i, step := range c.path {
			c.whole[i] = step.Limit
		}
		for range rapid.IntRange(20, 60).Draw(t, "operations") {
			switch rapid.IntRange(0, 9).Draw(t, "operation") {
			case 0, 1, 2, 3:
				c.pass(rapid.SampledFrom([]Span{1, 999, 10_000, 500_000, 1_000_000, 12_345_678, 100_000_000}).Draw(t, "elapsed"))
			case 4:
				c.put(nil)
			case 5:
				part, lasts := rapid.SampledFrom([]float64{0.5, 0.01, 0.3, 1}).Draw(t, "part"), rapid.SampledFrom([]Instant{1_000_000, 60_000_000, 600_000_000}).Draw(t, "lasts")
				c.put(&Scaling{Part: part, Ends: c.now + lasts})
			default:
				c.drain(rapid.SampledFrom([]admission.Tokens{1, 2, 10, 30, 60}).Draw(t, "cost"))
			}
		}
		for i, step := range c.path {
			checkBound(t, step.Scope, c.seen[i], true)
		}
	})
}

// A refusal under a scale is never for good where the policy lets the cost pass, and its wait ends when the bucket holds the cost: by the scaled
// limit, or by the policy's once the scale has ended.
func TestTheWaitOfAScaledLimitIsNoLongerThanTheScale(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		whole := drawLimit(t, "limit")
		now := someInstant
		scale := &Scaling{Part: rapid.Float64Range(0.01, 1).Draw(t, "part"), Ends: now + 1 + Instant(drawSpan(t, "left"))}
		limit := whole.Scaled(scale)
		var set Set
		written := rapid.SampledFrom([]Limit{whole, limit}).Draw(t, "written") // By the policy's limit before the scale, or in it.
		set.Put("acme", NewBucket(Micro(rapid.Int64Range(-int64(written.Burst), int64(written.Burst)-1).Draw(t, "level")), now-Instant(drawSpan(t, "age")), written))
		cost := admission.Tokens(rapid.Int64Range(1, int64(whole.Burst/MicroPerToken)).Draw(t, "cost"))
		changed := now - Instant(drawSpan(t, "changed"))
		if written.Whole == nil {
			changed = max(changed, set.Bucket("acme").Stamp)
		}
		v := set.Take(now, changed, []LevelLimit{{"acme", limit}}, cost)
		if v.Decision == admission.Admitted {
			return
		}
		if v.Reason != admission.ReasonLimited || v.Detail != scale.Words() || v.Burst != limit.Burst.Tokens() {
			t.Fatalf("refused for %+v", v)
		}
		least := MicroOf(cost)
		later := now + Instant(v.RetryAfter.Microseconds())
		if missing := float64(least) + float64(-min(set.Bucket("acme").Level, 0)); later > scale.Ends+Instant(missing/float64(whole.Rate))+2 {
			t.Errorf("waits until %d, the scale ends at %d", later, scale.Ends)
		}
		if later >= scale.Ends {
			limit, changed = whole, max(changed, scale.Ends)
		}
		for extra := range Instant(2) { // As package buckets says, one microsecond later where two roundings meet.
			if set.Take(later+extra, changed, []LevelLimit{{"acme", limit}}, cost).Decision == admission.Admitted {
				return
			}
		}
		t.Errorf("after a wait of %s it is refused again", v.RetryAfter)
	})
}

func TestWhatIsScaled(t *testing.T) {
	t.Parallel()
	noon := InstantOf(time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC))
	day, err := admission.FixedWindow(100, "24h", "", "")
	if err != nil {
		t.Fatal(err)
	}
	half := &Scaling{Part: 0.5, Ends: noon + 60*second, Until: noon + 60*second}
	if l := limitOf(10, 60).Scaled(half); l.Rate != 5 || l.Burst != 30*MicroPerToken {
		t.Errorf("a token bucket of 10/s and 60 is %+v", l)
	}
	if l := limitOf(10, 60).Scaled(&Scaling{Part: 0.01}); l.Rate != 0.1 || l.Burst != MicroPerToken {
		t.Errorf("a burst of 60 scaled to a hundredth is %d micro-tokens, want one token", l.Burst)
	}
	window := LimitAt(day, noon)
	if l := window.Scaled(half); l.Rate != window.Rate || l.Burst != 50*MicroPerToken || l.Window != window.Window {
		t.Errorf("a window of 100 is %+v", l)
	}
	if limitOf(10, 60).Scaled(nil).Whole != nil {
		t.Error("no scale scales")
	}
	if half.Words() != "scaled to 0.5 until 2026-11-25T12:01:00Z" {
		t.Error(half.Words())
	}

	var set Set
	path := []LevelLimit{{"acme", window.Scaled(half)}}
	if set.Take(noon, 0, path, 30).Err() != nil || set.Take(noon, 0, path, 30).RetryAfter != time.Minute {
		t.Error("30 of the 50 tokens passed, or 30 more wait for something else than the scale's end")
	}
	if set.Take(noon, 0, path, 20).Err() != nil || set.Take(noon, 0, path, 1).Err() == nil {
		t.Error("a window of 100 scaled to a half does not hold 50")
	}
	if path[0].Limit = window; set.Take(noon, 0, path, 51).Err() == nil || set.Take(noon, 0, path, 50).Err() != nil {
		t.Error("after the scale the window does not hold the 50 that it had left")
	}
	if v := set.Peek(noon, 0, []LevelLimit{{"bolt", limitOf(10, 60).Scaled(half)}}, 61); v.Reason != admission.ReasonTooCostly || v.Burst != 60 {
		t.Errorf("a cost above the policy's burst: %+v", v)
	}
}
