package buckets

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// settleExactly is Settle in exact rationals, written from the rules and not from the code: it keeps every
// fraction of a token, and so needs no remainder in the stamp.
func settleExactly(now, changed Instant, stored Bucket, limit Limit) *big.Rat {
	burst := big.NewRat(int64(limit.Burst), 1)
	if stored.Rate == 0 {
		return burst
	}
	stamp := min(stored.Stamp, now)
	if int64(now-stamp) >= int64(stored.Fill) && limit.Rate >= stored.Rate {
		return burst
	}
	rate := new(big.Rat).SetFloat64(float64(limit.Rate))
	slow := rate
	if stored.Rate < limit.Rate {
		slow = new(big.Rat).SetFloat64(float64(stored.Rate))
	}
	switching := min(max(changed, stamp), now)
	level := big.NewRat(int64(stored.Level), 1)
	if level.Cmp(burst) > 0 {
		level.Set(burst)
	}
	level.Add(level, new(big.Rat).Mul(slow, big.NewRat(int64(switching-stamp), 1)))
	level.Add(level, new(big.Rat).Mul(rate, big.NewRat(int64(now-switching), 1)))
	if level.Cmp(burst) > 0 {
		return burst
	}
	return level
}

// The stamp that Settle returns accounts for time not yet turned into tokens: the level and the refill of that
// remainder together are what the rationals say.
func TestSettleIsWithinOneMicroTokenOfExactRationals(t *testing.T) {
	t.Parallel()
	one := big.NewRat(1, 1)
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t, "limit")
		stored := drawBucket(t, "stored", someInstant, limit)
		changed := someInstant - Instant(drawSpan(t, "since change"))

		level, stamp := Settle(someInstant, changed, stored, limit)
		exact := settleExactly(someInstant, changed, stored, limit)

		difference := new(big.Rat).Sub(exact, big.NewRat(int64(level), 1))
		if difference.Cmp(one) >= 0 || difference.Cmp(new(big.Rat).Neg(one)) <= 0 {
			t.Fatalf("Settle = %d, exactly %s", level, exact.FloatString(6))
		}
		if level < 0 || level > limit.Burst || stamp > someInstant || stamp < min(stored.Stamp, someInstant) {
			t.Fatalf("Settle = (%d, %d) with burst %d at %d, stored %+v", level, stamp, limit.Burst, someInstant, stored)
		}
		kept := new(big.Rat).SetFloat64(float64(limit.Rate))
		kept.Mul(kept, big.NewRat(int64(someInstant-stamp), 1))
		if kept.Cmp(one) >= 0 {
			t.Fatalf("the stamp %d µs before now holds back %s micro-tokens", someInstant-stamp, kept.FloatString(6))
		}
	})
}

// One bucket under one limit follows the fluid bucket, which has no rounding at all, through any sequence of
// charges: it never holds more but for rounding, and less by under one micro-token a charge.
func TestTrajectoryLosesLessThanOneMicroTokenACharge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t, "limit")
		rate := new(big.Rat).SetFloat64(float64(limit.Rate))
		burst := big.NewRat(int64(limit.Burst), 1)
		fluid, at, charges := new(big.Rat).Set(burst), someInstant, int64(0)
		step := LevelLimit{"acme", limit}
		var set Set
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			elapsed := drawSpan(t, "elapsed")
			at += Instant(elapsed)
			fluid.Add(fluid, new(big.Rat).Mul(rate, big.NewRat(int64(elapsed), 1)))
			if fluid.Cmp(burst) > 0 {
				fluid.Set(burst)
			}
			level := set.LevelAt(at, 0, step)
			difference, _ := new(big.Rat).Sub(fluid, big.NewRat(int64(level), 1)).Float64()
			if difference < -0.5 || difference >= float64(charges+1) {
				t.Fatalf("after %d charges the bucket is %g micro-tokens below the fluid one", charges, difference)
			}
			cost := rapid.Int64Range(1, max(1, int64(limit.Burst.Tokens())/3)).Draw(t, "cost")
			if set.Take(at, 0, []LevelLimit{step}, tokens(cost)).Err() == nil {
				fluid.Sub(fluid, big.NewRat(int64(MicroOf(tokens(cost))), 1))
				charges++
			}
		}
	})
}
