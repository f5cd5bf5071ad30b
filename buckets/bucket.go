package buckets

import (
	"math"

	"github.com/headgate/headgate/admission"
)

// Bucket is the stored value of one scope. The zero Bucket is absent, which means full under any limit. It is a
// plain value: copies are independent.
type Bucket struct {
	// Level is what the bucket held at Stamp, up to its burst; below zero is a debt, which Set.Debit and TrueUp make.
	Level Micro
	// Stamp is the time up to which the refill is counted in Level.
	Stamp Instant
	// Fill is the time from Stamp until the bucket is full, by the rate and burst in force when it was written.
	Fill Span
	// Rate is the refill rate in force when the bucket was written, in tokens a second; zero only when absent.
	Rate admission.TokensPerSecond
	// Quota is what a fixed window holds as it begins, or a sliding one admits; zero of a token bucket: see Windowed and Sliding.
	Quota Micro
	// Grain is how exactly a sliding window knows when something was taken, zero of others, and Taken what was: packed, so that buckets compare.
	Grain Span
	Taken string
}

// Absent reports whether the bucket is not stored.
func (b Bucket) Absent() bool { return b.Rate == 0 && b.Quota == 0 }

// NewBucket returns what is stored for a level and a stamp, as Settle returns them, under a limit that is none of sliding windows: Limit.Store
// does for each.
func NewBucket(level Micro, stamp Instant, limit Limit) Bucket {
	if limit.Window != nil {
		return Bucket{Level: level, Stamp: stamp, Fill: limit.Window.Length, Quota: limit.Burst}
	}
	fill := Span(math.Ceil(float64(limit.Burst-level) / float64(limit.Rate)))
	return Bucket{Level: level, Stamp: stamp, Fill: fill, Rate: limit.Rate}
}

// Settle returns the level of a stored bucket at now under the limit in force, and the stamp that belongs to that
// level, which is now or a little before it. changed is the time of the latest policy change; a time before the
// stamp says that nothing changed since. The package documentation derives the six steps.
func Settle(now, changed Instant, stored Bucket, limit Limit) (Micro, Instant) {
	changed = max(changed, limit.Changed)
	if limit.Window != nil {
		return limit.settleWindow(now, changed, stored)
	}
	if limit.Sliding != nil {
		return limit.levelOf(limit.slide(now, changed, stored)), now
	}
	if stored.Absent() {
		return limit.Burst, now
	}
	if stored.Sliding() { // As behind a fixed window; one that had all left is as good as absent.
		count := stored.countAt(min(changed, now))
		if count == 0 {
			return limit.Burst, now
		}
		stored = Bucket{Level: stored.Quota - Micro(count)*MicroPerToken, Fill: math.MaxInt64}
	}
	if stored.Windowed() { // Of a policy before this one: what it left is refilled from the change on.
		stored = Bucket{Level: stored.Level, Fill: math.MaxInt64}
	}
	stamp := min(stored.Stamp, now)
	elapsed := Span(now - stamp)
	if elapsed >= stored.Fill && limit.Rate >= stored.Rate {
		return limit.Burst, now
	}
	level := min(stored.Level, limit.Burst)
	rate := float64(limit.Rate)
	if limit.Rate == stored.Rate {
		gained := math.Floor(float64(float64(elapsed) * rate))
		if reaches(level, gained, limit.Burst) {
			return limit.Burst, now
		}
		used := min(float64(elapsed), math.Ceil(gained/rate))
		return level + Micro(gained), stamp + Instant(used)
	}
	slow := float64(min(limit.Rate, stored.Rate))
	before := min(max(Span(changed-stamp), 0), elapsed)
	after := elapsed - before
	gained := math.Floor(float64(float64(before)*slow) + float64(float64(after)*rate))
	if reaches(level, gained, limit.Burst) {
		return limit.Burst, now
	}
	return level + Micro(gained), now
}

// TrueUp returns what a settled bucket holds once work that reserved some tokens of it elapsed ago has turned out to cost actual tokens. What
// it lacks is taken, down to one burst below zero: the debt is refilled before the bucket holds anything again. What it did not need
// comes back, as far as the bucket had room for it: it is never left above what it would hold had actual been taken at first. The limit
// must be the one of the reservation. room is what the bucket is known to have had room for, 0 where nobody noted it.
//
// What is known without a note: had only the actual costs been taken, the bucket would have held at most B when the reservation c was taken,
// so B-c after it, and at most B-c+R·elapsed at any time since. So c-R·elapsed more would never have been above B, whatever else was taken
// or given back. With a note of the level L that the reservation left it would have held at most L+R·elapsed and what was given back since,
// so B less that is room as well.
//
// A fixed window gets back what was reserved in it, and nothing of what was in the one before. A sliding one takes more here in whole tokens; what it
// gets back says Limit.GiveBack.
func TrueUp(level Micro, limit Limit, reserved, actual admission.Tokens, elapsed Span, room Micro) Micro {
	if actual > reserved {
		to := max(level-MicroOf(actual-reserved), min(level, -limit.Burst))
		if limit.Sliding != nil {
			to = level - (level-to)/MicroPerToken*MicroPerToken
		}
		return to
	}
	if limit.Sliding != nil {
		return level
	}
	if w := limit.Window; w != nil {
		if w.At-Instant(elapsed) < w.Start {
			return level
		}
		return max(level, min(limit.Burst, level+MicroOf(reserved-actual)))
	}
	owed := min(MicroOf(reserved-actual), max(0, MicroOf(reserved)-limit.Came(elapsed), room))
	return max(level, min(limit.Burst, level+owed))
}

// reaches reports whether level and gained together fill the burst. gained may be far beyond what an integer
// holds, so it is compared alone first.
func reaches(level Micro, gained float64, burst Micro) bool {
	return gained >= float64(burst-level)
}

// waitFor returns the time from now until a settled level reaches cost, at least 1 µs. The level is below cost and cost is within the burst,
// of a limit that is scaled within the policy's.
func (l Limit) waitFor(now Instant, level Micro, stamp Instant, cost Micro) Span {
	if l.Whole != nil {
		return l.waitScaled(now, level, stamp, cost)
	}
	if l.Window != nil {
		return l.waitWindow(level, stamp, cost)
	}
	rate := l.Rate
	missing := float64(cost - level)
	wait := max(Span(stamp-now)+Span(math.Ceil(missing/float64(rate))), 1)
	if math.Floor(float64(float64(wait+Span(now-stamp))*float64(rate))) < missing {
		wait++ // the quotient was rounded down to the microsecond before
	}
	return wait
}
