package buckets

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// slidingOf draws a limit of sliding windows.
func slidingOf(t *rapid.T) admission.Limit {
	return algorithms[rapid.SampledFrom([]string{"sliding_window", "sliding_log"}).Draw(t, "algorithm")](t, "sliding")
}

// TestASlidingWindowStaysWithinItsTokens: in every time as long as the window it admits its tokens at most, costs told afterwards as they are in
// truth, and a debt on top. A refusal's wait is enough, and a microsecond less is not. What is stored is read as it was written.
func TestASlidingWindowStaysWithinItsTokens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := slidingOf(t)
		scope := []LevelLimit{{Scope: "acme"}}
		type charge struct {
			at   Instant
			cost admission.Tokens
		}
		var set Set
		var all []charge
		now, debt := someInstant, admission.Tokens(0)
		at := func(now Instant) []LevelLimit {
			scope[0].Limit = LimitAt(limit, now)
			return scope
		}
		for range rapid.IntRange(5, 80).Draw(t, "operations") {
			now += Instant(limit.Per.Microseconds()) * Instant(rapid.SampledFrom([]int64{0, 0, 1, 9, 10, 11, 50, 99, 100, 130}).Draw(t, "percent of a window")) / 100
			now += Instant(rapid.Int64Range(0, 2).Draw(t, "µs"))
			if n := len(all); n > 0 && rapid.IntRange(0, 4).Draw(t, "true up") == 0 {
				one := &all[rapid.IntRange(0, n-1).Draw(t, "which")]
				actual := admission.Tokens(rapid.Int64Range(0, 2*int64(limit.Burst)).Draw(t, "actual"))
				before := set.Bucket("acme")
				if actual <= one.cost {
					after, back := at(now)[0].Limit.GiveBack(now, 0, before, one.cost-actual, Span(now-one.at))
					set.Put("acme", after)
					one.cost -= back
					continue
				}
				level, stamp := Settle(now, 0, before, at(now)[0].Limit)
				to := TrueUp(level, at(now)[0].Limit, one.cost, actual, Span(now-one.at), 0)
				set.Put("acme", at(now)[0].Limit.Store(now, 0, before, to, stamp))
				more := (level - to).Tokens()
				if level >= 0 && to < -MicroOf(limit.Burst) || more > actual-one.cost {
					t.Fatalf("%d more were taken of %d for %d", more, level, actual-one.cost)
				}
				debt = max(debt, -to.Tokens())
				all = append(all, charge{now, more})
				continue
			}
			cost := admission.Tokens(rapid.Int64Range(1, int64(limit.Burst)).Draw(t, "cost"))
			v := set.Take(now, 0, at(now), cost)
			if v.Err() == nil {
				all = append(all, charge{now, cost})
				text, err := set.Bucket("acme").MarshalText()
				if again, err2 := Parse(string(text)); err != nil || err2 != nil || again != set.Bucket("acme") {
					t.Fatalf("%+v is read as %+v, %v, %v", set.Bucket("acme"), again, err, err2)
				}
				if limit.Window.Logged() == (len(text) == countSize) && len(text) != logHead+entrySize*4 {
					t.Fatalf("%d bytes of %s", len(text), limit.Words())
				}
				continue
			}
			later := now + Instant(v.RetryAfter.Microseconds())
			if again := set.Peek(later, 0, at(later), cost); again.Err() != nil {
				t.Fatalf("told to wait %s, and refused again: %+v", v.RetryAfter, again)
			}
			if early := set.Peek(later-1, 0, at(later-1), cost); early.Err() == nil {
				t.Fatalf("told to wait %s, and a microsecond less was enough", v.RetryAfter)
			}
		}
		for i := range all {
			sum := admission.Tokens(0)
			for _, one := range all[i:] {
				if one.at-all[i].at < Instant(limit.Per.Microseconds()) {
					sum += one.cost
				}
			}
			if sum > limit.Burst+debt {
				t.Fatalf("%d in %s, and %d of debt", sum, limit.Words(), debt)
			}
		}
	})
}

// TestASlidingWindowAdmitsWhatItsPartsLeave: at saturation its tokens in a window and a tenth at the latest, of a log in a window.
func TestASlidingWindowAdmitsWhatItsPartsLeave(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit admission.Limit
		most  Instant // from the taking until it is back
	}{
		{must(admission.SlidingWindow(30, "1m")), 66*second - 1}, {must(admission.SlidingLog(30, "1m")), 60 * second},
	} {
		var set Set
		now, last := someInstant, someInstant
		for taken := 0; taken < 600; {
			v := set.Take(now, 0, []LevelLimit{{"acme", LimitAt(c.limit, now)}}, 1)
			if v.Err() == nil {
				if taken++; taken%30 == 1 && taken > 1 {
					if now-last > c.most || now-last < 60*second {
						t.Fatalf("%s: 30 tokens took %d µs", c.limit.Words(), now-last)
					}
					last = now
				}
				continue
			}
			now += Instant(v.RetryAfter.Microseconds())
		}
	}
}

// TestWaitingForAScaledSlidingWindow: until enough is a window old, or the scale has ended, whichever comes first.
func TestWaitingForAScaledSlidingWindow(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := slidingOf(t)
		ends := someInstant + Instant(rapid.Int64Range(1, 2*limit.Per.Microseconds()).Draw(t, "ends"))
		scale := &Scaling{Part: rapid.Float64Range(0.01, 1).Draw(t, "part"), Ends: ends}
		at := func(now Instant) []LevelLimit {
			of := LimitAt(limit, now)
			if now < ends {
				return []LevelLimit{{"acme", of.Scaled(scale)}}
			}
			return []LevelLimit{{"acme", of}}
		}
		var set Set
		now := someInstant
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			now += Instant(rapid.Int64Range(0, limit.Per.Microseconds()/5).Draw(t, "elapsed"))
			cost := admission.Tokens(rapid.Int64Range(1, int64(limit.Burst)).Draw(t, "cost"))
			v := set.Take(now, max(0, min(now, ends)), at(now), cost)
			if v.Err() == nil {
				continue
			}
			later := now + Instant(v.RetryAfter.Microseconds())
			if again := set.Peek(later, ends, at(later), cost); again.Err() != nil {
				t.Fatalf("told to wait %s until %d, and refused again: %+v", v.RetryAfter, later-ends, again)
			}
			if early := set.Peek(later-1, min(ends, later-1), at(later-1), cost); early.Err() == nil {
				t.Fatalf("told to wait %s until %d, and a microsecond less was enough", v.RetryAfter, later-ends)
			}
		}
	})
}

// TestWhatComesBackOfASlidingWindow: what was reserved, from when it was; of a lease, which nobody noted, what goes first.
func TestWhatComesBackOfASlidingWindow(t *testing.T) {
	t.Parallel()
	limit := must(admission.SlidingLog(10, "10s"))
	at := func(s int64) Instant { return someInstant + Instant(s)*second }
	of := func(s int64) Limit { return LimitAt(limit, at(s)) }
	bucket := Bucket{}
	for i, cost := range []admission.Tokens{3, 3, 4} {
		level, stamp := Settle(at(int64(i)), 0, bucket, of(int64(i)))
		bucket = of(int64(i)).Store(at(int64(i)), 0, bucket, level-MicroOf(cost), stamp)
	}
	left := func(b Bucket, s int64) admission.Tokens {
		level, _ := Settle(at(s), 0, b, of(s))
		return level.Tokens()
	}
	refunded, _ := of(3).GiveBack(at(3), 0, bucket, 2, 2*Span(second)) // of the second
	leased := of(3).Store(at(3), 0, bucket, MicroOf(4), at(3))         // the first and one of the second
	for s, want := range map[int64][3]admission.Tokens{3: {0, 2, 4}, 9: {0, 2, 4}, 10: {3, 5, 4}, 11: {6, 6, 6}, 12: {10, 10, 10}} {
		if got := [3]admission.Tokens{left(bucket, s), left(refunded, s), left(leased, s)}; got != want {
			t.Errorf("after %d s %d are left, want %d", s, got, want)
		}
	}
	if _, back := of(12).GiveBack(at(12), 0, bucket, 4, 10*Span(second)); back != 0 {
		t.Errorf("%d came back of what is as old as the window", back)
	}
	if _, back := of(3).GiveBack(at(3), 0, bucket, 2, 2*Span(time.Millisecond.Microseconds())); back != 0 {
		t.Errorf("%d came back of what was never taken", back)
	}
}

// TestASlidingWindowIsReadAsItWasWritten, or refused with what is wrong.
func TestASlidingWindowIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	limit := LimitAt(must(admission.SlidingWindow(1_000_000_000, "744h")), someInstant)
	var bucket Bucket
	for i := range grains {
		now := someInstant + Instant(i)*Instant(limit.Sliding.Grain)
		level, stamp := Settle(now, 0, bucket, limit)
		bucket = limit.Store(now, 0, bucket, level-MicroOf(180_000_000), stamp)
	}
	text, err := bucket.MarshalText()
	if err != nil || len(text) != 63 || len(bucket.all()) != grains {
		t.Fatalf("%d bytes of %d parts, %v", len(text), len(bucket.all()), err)
	}
	if got, err := Parse(string(text)); err != nil || got != bucket {
		t.Errorf("%+v, %v, want %+v", got, err, bucket)
	}
	for name, broken := range map[string]string{"cut": string(text[:60]), "longer": string(text) + "x", "off its parts": string(text[:18]) + "\x00" + string(text[19:])} {
		if got, err := Parse(broken); err == nil {
			t.Errorf("%s is read as %+v", name, got)
		}
	}
}
