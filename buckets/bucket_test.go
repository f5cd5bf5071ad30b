package buckets

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

func tokens(n int64) admission.Tokens { return admission.Tokens(n) }

const second Instant = 1_000_000

// limitOf is a limit of rate tokens a second.
func limitOf(rate admission.TokensPerSecond, burst admission.Tokens) Limit {
	return Limit{Rate: rate, Burst: MicroOf(burst)}
}

func TestSettleFollowsItsSixSteps(t *testing.T) {
	t.Parallel()
	at := func(seconds float64) Instant { return Instant(seconds * float64(second)) }
	// Written at 100 s with 20 tokens of 50 under 10 a second: full at 103 s.
	stored := NewBucket(MicroOf(20), at(100), limitOf(10, 50))
	cases := []struct {
		name         string
		stored       Bucket
		limit        Limit
		changed, now Instant
		level        Micro
		stamp        Instant
	}{
		{"an absent bucket is full", Bucket{}, limitOf(10, 50), 0, at(7), MicroOf(50), at(7)},
		{"no time passed", stored, limitOf(10, 50), 0, at(100), MicroOf(20), at(100)},
		{"a second refills at the rate", stored, limitOf(10, 50), 0, at(101), MicroOf(30), at(101)},
		{"the fill time makes it full", stored, limitOf(10, 50), 0, at(103), MicroOf(50), at(103)},
		{"a stamp ahead becomes now and keeps the level", stored, limitOf(10, 50), 0, at(40), MicroOf(20), at(40)},
		{"a raised burst applies at once to a full bucket", stored, limitOf(10, 500), at(102), at(103), MicroOf(500), at(103)},
		{"a raised burst gives nothing to another", stored, limitOf(10, 500), at(102), at(102), MicroOf(40), at(102)},
		{"a lowered burst cuts the level", stored, limitOf(10, 15), at(100.5), at(101), MicroOf(15), at(101)},
		{"a raised rate counts from the change", stored, limitOf(20, 500), at(101), at(102), MicroOf(50), at(102)},
		{"a lowered rate counts for all the time", stored, limitOf(1, 50), at(104), at(105), MicroOf(25), at(105)},
		{"a change ahead of now counts as now", stored, limitOf(20, 500), at(200), at(102), MicroOf(40), at(102)},
		{"a change before the stamp is no change", stored, limitOf(20, 500), at(1), at(102), MicroOf(60), at(102)},
		{"a rate for ages does not overflow", NewBucket(0, 0, limitOf(1, 50)), limitOf(1e12, 1e9), 0, 1 << 52, MicroOf(1e9), 1 << 52},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			level, stamp := Settle(c.now, c.changed, c.stored, c.limit)
			if level != c.level || stamp != c.stamp {
				t.Errorf("Settle = (%d, %d), want (%d, %d)", level, stamp, c.level, c.stamp)
			}
		})
	}
}

func TestSettleLeavesTheRemainderOfTimeInTheStamp(t *testing.T) {
	t.Parallel()
	limit := LimitOf(admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 10}) // a micro-token in 86,400 µs
	stored := NewBucket(0, 0, limit)
	if level, stamp := Settle(86_399, 0, stored, limit); level != 0 || stamp != 0 {
		t.Errorf("before the first micro-token Settle = (%d, %d), want (0, 0)", level, stamp)
	}
	if level, stamp := Settle(200_000, 0, stored, limit); level != 2 || stamp != 172_800 {
		t.Errorf("after 2.3 micro-tokens Settle = (%d, %d), want (2, 172800)", level, stamp)
	}
}

// At one token a day, charged as often as the bucket allows, what is left differs from what it should be by the
// refill of one microsecond a charge at the most.
func TestALowRateLosesNoMoreThanAMicrosecondACharge(t *testing.T) {
	t.Parallel()
	limit := LimitOf(admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 366})
	path := []LevelLimit{{"acme", limit}}
	rapid.Check(t, func(t *rapid.T) {
		var set Set
		now, charges := someInstant, int64(0)
		set.Take(now, 0, path, 1)
		start := now
		for range 300 {
			now += Instant(rapid.Int64Range(1, 200_000).Draw(t, "elapsed"))
			for range rapid.IntRange(0, 3).Draw(t, "checks") {
				set.Peek(now, 0, path, 1)
			}
			if set.Take(now, 0, path, 1).Err() != nil {
				t.Fatal("a bucket of 366 tokens refused the first 300")
			}
			charges++
		}
		exact := float64(MicroOf(365-tokens(charges))) + float64(now-start)*float64(limit.Rate)
		lost := exact - float64(set.LevelAt(now, 0, path[0]))
		if allowed := float64(charges)*float64(limit.Rate) + 1; lost > allowed || lost < -0.5 {
			t.Fatalf("%d charges lost %g micro-tokens, allowed is %g", charges, lost, allowed)
		}
	})
}

func TestABucketIsFullAfterItsFillAndNotMuchEarlier(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t, "limit")
		level := Micro(rapid.Int64Range(0, int64(limit.Burst)-1).Draw(t, "level"))
		stored := NewBucket(level, someInstant, limit)
		full := someInstant + Instant(stored.Fill)
		if got, _ := Settle(full, 0, stored, limit); got != limit.Burst {
			t.Fatalf("at its fill the bucket holds %d of %d", got, limit.Burst)
		}
		reached, _ := Settle(full-1, 0, stored, limit)
		short := float64(limit.Burst - reached)
		if stored.Fill > 1 && short > math.Ceil(2*float64(limit.Rate))+1 {
			t.Fatalf("a microsecond before its fill the bucket is %g micro-tokens short", short)
		}
	})
}

func TestMicroOfNeverWraps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tokens admission.Tokens
		want   Micro
	}{
		{0, 0},
		{1, 1e6},
		{1e9, 1e15},
		{1e9 + 1, 1e15 + 1e6},
		{-5, 0},
		{math.MaxInt64, 1e15 + 1e6},
		{math.MinInt64, 0},
	} {
		if got := MicroOf(c.tokens); got != c.want {
			t.Errorf("MicroOf(%d) = %d, want %d", c.tokens, got, c.want)
		}
	}
	if got := Micro(1_999_999).Tokens(); got != 1 {
		t.Errorf("1999999 micro-tokens are %d tokens, want 1", got)
	}
}

func TestInstantAndSpanConvertWithoutLoss(t *testing.T) {
	t.Parallel()
	when := time.Date(2026, 7, 1, 12, 0, 0, 123_456_000, time.UTC)
	if got := InstantOf(when).Time(); !got.Equal(when) {
		t.Errorf("InstantOf(%s).Time() = %s", when, got)
	}
	if got := Span(1500).Duration(); got != 1500*time.Microsecond {
		t.Errorf("Span(1500).Duration() = %s", got)
	}
}
