package buckets

import (
	"math"

	"github.com/headgate/headgate/admission"
)

// OpenWindow is the window that a limit of fixed windows is in at a time. It never changes.
type OpenWindow struct {
	// Rule says when windows begin, and Length is about as long as one is: of the calendar's days and months some are shorter or longer.
	Rule   admission.Window
	Length Span
	// At is the time by the clock of Redis, which unlike the time of token buckets may go back. The window began at Start, and at End the next
	// one does.
	At, Start, End Instant
}

// LimitAt returns what an enabled and valid limit is at a time by the clock of Redis.
func LimitAt(limit admission.Limit, at Instant) Limit {
	l := LimitOf(limit)
	if l.Sliding = slidingAt(limit, at); l.Sliding == nil && !limit.Window.IsZero() {
		start, end := limit.Window.Bounds(at.Time())
		l.Window = &OpenWindow{Rule: limit.Window, Length: Span(limit.Per.Microseconds()), At: at, Start: InstantOf(start), End: InstantOf(end)}
	}
	return l
}

// Windowed reports whether what is stored is the count of a fixed window: Stamp is its end, Fill its length, Quota what it held as it began.
func (b Bucket) Windowed() bool { return b.Quota != 0 && b.Grain == 0 }

// FullAt is when a stored bucket is as good as absent: by the buckets' time now, which is at by the clock of Redis. A debt goes over to the
// window that follows, which may be longer.
func (b Bucket) FullAt(now, at Instant) Instant {
	if b.Sliding() {
		return b.newest() + Instant(b.Fill)
	}
	if !b.Windowed() {
		return b.Stamp + Instant(b.Fill)
	}
	full := b.Stamp - at + now
	if b.Level < 0 {
		full += 2 * Instant(b.Fill)
	}
	return full
}

// Since is from when on a stored bucket is known to be what it is, by the same times: since it was written, or since its window began.
func (b Bucket) Since(now, at Instant) Instant {
	if b.Sliding() {
		return b.newest() - Instant(b.Grain) + 1
	}
	if !b.Windowed() {
		return b.Stamp
	}
	return b.Stamp - Instant(b.Fill) - at + now
}

// settleWindow is Settle for a limit of fixed windows: what is left of the window, and its end.
//
// What is stored counts where it belongs to the window of now. That is one which ends with it; one that ends one window later, or almost two,
// where the clock was set back, so that none is begun twice; and in the window in which the policy was changed what the one before left: a
// window that ended in this one, or would have later, and a token bucket as it stood at the change. What they had taken is taken here too. A
// refusal stores nothing, so all that goes by no more than what is stored and by the time of the change.
func (l Limit) settleWindow(now, changed Instant, stored Bucket) (Micro, Instant) {
	w := l.Window
	switch {
	case stored.Absent():
		return l.Burst, w.End
	case stored.Sliding():
		count := Micro(stored.countAt(min(now, changed))) * MicroPerToken
		if now-changed >= w.At-w.Start || count == 0 {
			return l.Burst, w.End
		}
		return l.lessTaken(count, stored.Quota-count), w.End
	case !stored.Windowed():
		elapsed := Span(max(min(now, changed)-stored.Stamp, 0))
		if now-changed >= w.At-w.Start || elapsed >= stored.Fill {
			return l.Burst, w.End
		}
		rate := float64(stored.Rate)
		came := Micro(math.Floor(float64(float64(elapsed) * rate)))
		return l.lessTaken(Micro(math.Ceil(float64(float64(stored.Fill)*rate)))-came, stored.Level+came), w.End
	case stored.Stamp < w.Start || stored.Stamp == w.Start && stored.Level >= 0:
		return l.Burst, w.End
	case stored.Stamp == w.Start:
		return l.lessTaken(-stored.Level, stored.Level), w.End
	}
	end, ahead := w.End, Span(stored.Stamp-w.End)
	switch {
	case ahead == 0:
	case ahead > 0 && ahead < 2*w.Length && stored.Fill == w.Length:
		end = stored.Stamp
	case now-changed >= w.At-w.Start:
		return l.Burst, end
	}
	return l.lessTaken(stored.Quota-stored.Level, stored.Level), end
}

// lessTaken is what is left of a window of which so much was taken: nothing where that is all or more, unless there was a debt, and none
// deeper than the burst.
func (l Limit) lessTaken(taken, left Micro) Micro {
	return max(l.Burst-taken, min(left, 0), -l.Burst)
}

// waitWindow returns the time from Window.At until a window holds cost, at least 1 µs: until it ends, or the one does that pays its debt.
func (l Limit) waitWindow(level Micro, end Instant, cost Micro) Span {
	if level < 0 && l.Burst+level < cost {
		_, next := l.Window.Rule.Bounds(end.Time())
		end = InstantOf(next)
	}
	return max(Span(end-l.Window.At), 1)
}
