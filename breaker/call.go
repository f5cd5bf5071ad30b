package breaker

import "sync/atomic"

// Call is one call that a breaker let through. It must be ended once, by SuccessAt, FailureAt or IgnoreAt; further
// ends do nothing, so that a deferred IgnoreAt may follow any of them. Several goroutines may use it. It must
// not be copied once used. The zero Call, which stands for a refused one, does nothing.
type Call struct {
	breaker *Breaker
	began   Instant
	period  uint32
	// progress is running, slow or ended.
	progress atomic.Uint32
	// place is the probe's, if the call is one.
	place int
}

// The values of Call.progress.
const (
	running uint32 = iota
	slow
	ended
)

// event is what happened to a call.
type event struct {
	outcome outcome
	// slow says that the call becomes slow with this event, wasSlow that it had before.
	slow, wasSlow bool
}

// verdict reports whether the event ends the call with a verdict on the downstream.
func (e event) verdict() bool { return e.outcome == succeeded || e.outcome == failed }

// outcome is how a call ended, if it has.
type outcome uint8

const (
	unfinished outcome = iota
	succeeded
	failed
	ignored
)

// SuccessAt ends the call: the downstream answered well. While the breaker is closed it takes no lock.
func (c *Call) SuccessAt(now Instant) Transition {
	b := c.breaker
	if b == nil {
		return Transition{}
	}
	was := c.progress.Swap(ended)
	if was == running && now.Sub(c.began) < b.config.SlowCallDuration {
		s := b.live.Load()
		if s != nil && s.period == c.period && s.covers(now) && s.successes.add() {
			if b.streak.Load() != 0 {
				b.streak.Store(0)
			}
			return Transition{}
		}
	}
	return c.end(was, succeeded, now)
}

// FailureAt ends the call: the downstream failed, or gave no answer in time.
func (c *Call) FailureAt(now Instant) Transition {
	if c.breaker == nil {
		return Transition{}
	}
	return c.end(c.progress.Swap(ended), failed, now)
}

// IgnoreAt ends the call without a verdict: it was cancelled, refused on this side, or ended by a shutdown. A probe
// gives its place back. That the call was slow still counts.
func (c *Call) IgnoreAt(now Instant) Transition {
	if c.breaker == nil {
		return Transition{}
	}
	return c.end(c.progress.Swap(ended), ignored, now)
}

// MarkSlowAt says that the call has been running for Config.SlowCallDuration: the caller's timer calls it. It counts once
// and does nothing for a call that has ended. A call never marked is counted as slow when it ends, if it was.
func (c *Call) MarkSlowAt(now Instant) Transition {
	if c.breaker == nil || !c.progress.CompareAndSwap(running, slow) {
		return Transition{}
	}
	return c.breaker.report(c, event{slow: true}, now)
}

// Probe reports whether the call decides about a half-open breaker. The zero Call is none.
func (c *Call) Probe() bool { return c.place != 0 }

// BeganAt returns the instant at which the call was let through.
func (c *Call) BeganAt() Instant { return c.began }

// end counts the end of the call, unless it had ended.
func (c *Call) end(was uint32, how outcome, now Instant) Transition {
	if was == ended {
		return Transition{}
	}
	lasted := now.Sub(c.began)
	return c.breaker.report(c, event{
		outcome: how,
		slow:    was == running && lasted >= c.breaker.config.SlowCallDuration,
		wasSlow: was == slow,
	}, now)
}

// report counts an event of a call and makes the change that it leads to.
func (b *Breaker) report(c *Call, e event, now Instant) Transition {
	jitter := b.config.Rand()
	b.mu.Lock()
	defer b.mu.Unlock()
	inner, change := b.advanceLocked(now, jitter)
	if c.period != b.mu.period {
		if e.outcome != unfinished {
			b.mu.totals.Late++
		}
		return change
	}
	// The period is the call's own: nothing changed by time alone, and the state is the one that let it through.
	if e.outcome == ignored {
		b.mu.totals.Ignored++
	}
	if b.mu.state == HalfOpen {
		return b.reportProbeLocked(c.place, e, inner, jitter)
	}
	return b.countLocked(e, inner, jitter)
}
