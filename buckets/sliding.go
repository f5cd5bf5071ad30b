package buckets

import (
	"cmp"
	"math"
	"slices"

	"github.com/headgate/headgate/admission"
)

// OpenSliding is what Settle must know of a limit of sliding windows: what was taken counts until it is Length old. It is a plain value.
type OpenSliding struct {
	// Length is how long the window is. All that was taken in the same Grain counts as if it had been taken in its last microsecond: a tenth of the
	// window, and of a log a microsecond.
	Length, Grain Span
	// At is the time by the clock of Redis; sliding windows themselves go by the buckets' time.
	At Instant
}

// taken is what a sliding window knows of some tokens: when they were, which is the last microsecond of a grain.
type taken struct {
	stamp  Instant
	tokens int64
}

// mostTaken is the largest number that is kept of one grain, what four bytes hold: of the largest limit and its deepest debt a half.
const mostTaken = math.MaxUint32

// slidingAt returns what a limit of sliding windows is at a time by the clock of Redis; nil for another one.
func slidingAt(limit admission.Limit, at Instant) *OpenSliding {
	grain := limit.Window.Grain()
	if grain == 0 {
		return nil
	}
	return &OpenSliding{Length: Span(limit.Per.Microseconds()), Grain: Span(grain.Microseconds()), At: at}
}

// endOf is the last microsecond of the grain that a time lies in.
func endOf(stamp Instant, grain Span) Instant {
	return stamp - stamp%Instant(grain) + Instant(grain) - 1
}

// Sliding reports whether what is stored is that of a sliding window: Fill is its length, Quota what it admits, and Taken what it did.
func (b Bucket) Sliding() bool { return b.Grain != 0 }

// newest is the time of what was taken last, 0 where all has been given back.
func (b Bucket) newest() Instant {
	if all := b.all(); len(all) > 0 {
		return all[len(all)-1].stamp
	}
	return 0
}

// countAt is what a stored sliding window counts at a time by its own length, in whole tokens.
func (b Bucket) countAt(at Instant) (sum int64) {
	for _, one := range b.all() {
		if one.stamp+Instant(b.Fill) > at {
			sum += one.tokens
		}
	}
	return sum
}

// slide returns what of a stored bucket counts at now in a sliding window, oldest first.
//
// Of one that was stored under the same window it is what is not yet as old as that. In another, the first that is asked after a change of the
// limit, it is what counted at the change: until it is as old as the longer of both windows, yet of a longer one that went before no longer than the
// new one from the change on. What a fixed window or a token bucket lacks at the change counts as taken then, of a window that had ended as it
// ended. So no time that is shorter than both windows admits more than the larger of both limits.
func (l Limit) slide(now, changed Instant, stored Bucket) []taken {
	w := l.Sliding
	changed = min(changed, now)
	var all []taken
	switch same := stored.Fill == w.Length && stored.Grain == w.Grain; {
	case stored.Absent():
	case stored.Sliding() && same:
		for _, one := range stored.all() {
			all = append(all, taken{min(one.stamp, endOf(now, w.Grain)), one.tokens})
		}
	case stored.Sliding():
		for _, one := range stored.all() {
			one.stamp = min(one.stamp, changed)
			one.stamp = max(one.stamp, min(one.stamp+Instant(stored.Fill-w.Length), changed))
			all = append(all, one)
		}
	case stored.Windowed():
		if lacks := stored.Quota - stored.Level; lacks > 0 {
			all = append(all, taken{max(min(stored.Stamp-w.At+now, changed), 0), wholeTokens(lacks)})
		}
	default:
		elapsed := Span(max(changed-stored.Stamp, 0))
		if elapsed < stored.Fill {
			came := Micro(math.Floor(float64(float64(elapsed) * float64(stored.Rate))))
			lacks := Micro(math.Ceil(float64(float64(stored.Fill)*float64(stored.Rate)))) - came
			all = append(all, taken{min(now, max(changed, stored.Stamp)), wholeTokens(lacks)})
		}
	}
	return w.counted(all, now)
}

// wholeTokens rounds up.
func wholeTokens(amount Micro) int64 { return int64((amount + MicroPerToken - 1) / MicroPerToken) }

// counted leaves out what is as old as the window, and puts together what is of one grain.
func (w *OpenSliding) counted(all []taken, now Instant) (kept []taken) {
	for _, one := range all {
		one.stamp = endOf(one.stamp, w.Grain)
		switch n := len(kept); {
		case one.stamp+Instant(w.Length) <= now || one.tokens <= 0:
		case n > 0 && kept[n-1].stamp == one.stamp:
			kept[n-1].tokens += one.tokens
		default:
			kept = append(kept, one)
		}
	}
	return kept
}

// levelOf is what a sliding window has left.
func (l Limit) levelOf(all []taken) Micro {
	level := l.Burst
	for _, one := range all {
		level -= Micro(one.tokens) * MicroPerToken
	}
	return level
}

// Store returns what is stored of a bucket that is to hold a level in the place of what Settle said, with the stamp that Settle gave. Of a sliding
// window what it lacks was taken now, and what it has more goes back from the oldest on: so nothing that was taken later is forgotten before its time.
func (l Limit) Store(now, changed Instant, before Bucket, level Micro, stamp Instant) Bucket {
	if l.Sliding == nil {
		return NewBucket(level, stamp, l)
	}
	all := l.slide(now, max(changed, l.Changed), before)
	lacks := int64(l.levelOf(all)-level) / int64(MicroPerToken)
	for i := 0; lacks < 0 && i < len(all); i++ {
		back := min(-lacks, all[i].tokens)
		all[i].tokens -= back
		lacks += back
	}
	if lacks > 0 {
		all = append(all, taken{endOf(now, l.Sliding.Grain), lacks})
	}
	return l.slidBucket(l.Sliding.counted(all, now))
}

// GiveBack returns what is stored of a sliding window once some tokens that were taken so long ago are not needed, and how many of them still
// counted; zero leaves it as it is.
func (l Limit) GiveBack(now, changed Instant, before Bucket, tokens admission.Tokens, elapsed Span) (after Bucket, back admission.Tokens) {
	all := l.slide(now, max(changed, l.Changed), before)
	stamp := endOf(max(now-Instant(elapsed), 0), l.Sliding.Grain)
	for i := range all {
		if all[i].stamp == stamp {
			back = min(admission.Tokens(all[i].tokens), tokens)
			all[i].tokens -= int64(back)
			return l.slidBucket(l.Sliding.counted(all, now)), back
		}
	}
	return before, 0
}

func (l Limit) slidBucket(all []taken) Bucket {
	return Bucket{Fill: l.Sliding.Length, Grain: l.Sliding.Grain, Quota: l.Burst, Taken: pack(all)}
}

// wait returns the time from now until a bucket that Settle gave such a level and stamp holds cost, as waitFor does.
func (l Limit) wait(now, changed Instant, stored Bucket, level Micro, stamp Instant, cost Micro) Span {
	if l.Sliding == nil {
		return l.waitFor(now, level, stamp, cost)
	}
	all := l.slide(now, max(changed, l.Changed), stored)
	wait := l.untilHolds(now, all, cost)
	if l.Whole != nil {
		whole := l
		whole.Burst = l.Whole.Burst
		wait = min(wait, max(whole.untilHolds(now, all, cost), Span(l.Whole.Ends-now)))
	}
	return max(wait, 1)
}

// untilHolds is when so much of what was taken is as old as the window that it holds cost; never, where cost is above the limit.
func (l Limit) untilHolds(now Instant, all []taken, cost Micro) Span {
	level := l.levelOf(all)
	switch {
	case l.Burst < cost:
		return math.MaxInt64
	case level >= cost:
		return 0
	}
	for _, one := range all {
		if level += Micro(one.tokens) * MicroPerToken; level >= cost {
			return Span(one.stamp-now) + l.Sliding.Length
		}
	}
	return math.MaxInt64 // Not reached: with nothing taken the level is the limit.
}

// DivideSliding returns what each of so many partitions is to have of a sliding window of which other partitions, each with an even part of the
// limit, have all, which are none where nothing is stored there. What counts is that of all, rounded up and as late as any of it.
func DivideSliding(all []Bucket, parts int) Bucket {
	var each Bucket
	var entries []taken
	found, latest := 0, Instant(0)
	for _, b := range all {
		other := found > 0 && (b.Fill != each.Fill || b.Grain != each.Grain) // Of a policy before it what a partition has is as good as none.
		if !b.Sliding() || other && b.newest() <= latest {
			continue
		}
		if found == 0 || other {
			each, entries, found = Bucket{Fill: b.Fill, Grain: b.Grain}, nil, 0
		}
		found++
		each.Quota += b.Quota
		latest = max(latest, b.newest())
		entries = append(entries, b.all()...)
	}
	if found == 0 {
		return each
	}
	slices.SortFunc(entries, func(a, b taken) int { return cmp.Compare(a.stamp, b.stamp) })
	sum, given := int64(0), int64(0)
	var kept []taken
	for i, one := range entries {
		sum += one.tokens
		part := sum / int64(parts)
		if i == len(entries)-1 {
			part = (sum + int64(parts) - 1) / int64(parts)
		}
		if part > given {
			kept = append(kept, taken{one.stamp, part - given})
			given = part
		}
	}
	merged := OpenSliding{Length: each.Fill, Grain: each.Grain}
	each.Quota = each.Quota * Micro(len(all)) / Micro(found) / Micro(parts)
	each.Taken = pack(merged.counted(kept, 0))
	return each
}
