package breaker

import "time"

// AdvanceAt makes the change that is due by time alone, if any: the end of a cooldown or of a forced state, a probe's
// time-out, the vote of an only caller, and without a Transition the steps of the slow start. oldest is when the oldest probe in flight began, if ok.
func (f *Fleet) AdvanceAt(now Instant, jitter float64, oldest Instant, ok bool) Transition {
	switch {
	case f.ends && now >= f.until && f.state == Closed:
		return f.close(CauseForceEnded, now)
	case f.ends && now >= f.until && f.forced:
		return f.enter(HalfOpen, CauseForceEnded, now)
	case f.ends && now >= f.until:
		return f.enter(HalfOpen, CauseCooldownOver, now)
	case f.state == HalfOpen && ok && now.Sub(oldest) >= f.config.ProbeTimeout:
		return f.trip(CauseProbeTimeout, now, jitter)
	}
	if f.ramp > 0 {
		f.ramp = 1 + int(now.Sub(f.since)/RampStep)
		if f.ramp > RampSteps {
			f.ramp = 0
		}
	}
	if f.doubt != 0 && now >= f.doubt {
		return f.judge(now, jitter, false)
	}
	return Transition{}
}

// NextChangeAt returns when AdvanceAt has something to do. false means that it has nothing before it hears of something.
func (f *Fleet) NextChangeAt(oldest Instant, ok bool) (Instant, bool) {
	switch {
	case f.ends:
		return f.until, true
	case f.state == HalfOpen && ok:
		return oldest.Add(f.config.ProbeTimeout), true
	}
	next, ok := f.doubt, f.doubt != 0
	if step := f.since.Add(time.Duration(f.ramp) * RampStep); f.ramp > 0 && (!ok || step < next) {
		next, ok = step, true
	}
	return next, ok
}

// HeardAt returns when something last happened: a report or a transition. Quiet after that nobody need remember the
// breaker any more; false while it is open or forced.
func (f *Fleet) HeardAt() (Instant, bool) {
	return f.heard, f.state != Open && !f.forced
}

// Gate returns the number of jobs that may be in workers' hands at a time, 0 for none; false means any number.
func (f *Fleet) Gate() (limit int, gated bool) {
	switch {
	case f.state == Open:
		return 0, true
	case f.state == HalfOpen:
		return f.config.MaxProbes, true
	case f.ramp > 0:
		return f.config.MaxProbes << f.ramp, true
	}
	return 0, false
}

// ForceOpenAt lets no call pass for a length of time, 0 for ever, whatever happens; then the breaker is half-open. The
// reason is kept.
func (f *Fleet) ForceOpenAt(now Instant, length time.Duration, reason string) Transition {
	return f.force(now, Open, length, reason)
}

// ForceClosedAt lets every call pass for a length of time, 0 for ever, whatever happens; then the breaker is closed with
// an empty window. The reason is kept.
func (f *Fleet) ForceClosedAt(now Instant, length time.Duration, reason string) Transition {
	return f.force(now, Closed, length, reason)
}

func (f *Fleet) force(now Instant, to State, length time.Duration, reason string) Transition {
	change := f.enter(to, CauseForced, now)
	if to == Closed {
		f.restart()
	}
	f.forced, f.reason = true, reason
	if length > 0 {
		f.until, f.ends = now.Add(length), true
		change.Until = f.until
	}
	return change
}

// ResetAt closes the breaker with an empty window and forgets its trips in a row. One that was not closed starts
// slowly. The reason is kept.
func (f *Fleet) ResetAt(now Instant, reason string) Transition {
	was := f.state
	change := f.close(CauseReset, now)
	f.inRow, f.reason = 0, reason
	if was != Closed {
		f.ramp = 1
	}
	return change
}

func (f *Fleet) close(cause Cause, now Instant) Transition {
	change := f.enter(Closed, cause, now)
	f.restart()
	return change
}

// trip opens the breaker for a cooldown that doubles with each trip in a row. The window stays as it was, for whoever
// wants to know why.
func (f *Fleet) trip(cause Cause, now Instant, jitter float64) Transition {
	if f.state == Closed && now.Sub(f.since) >= f.config.ResetAfter {
		f.inRow = 0
	}
	until := now.Add(f.config.fleetCooldown(f.inRow, jitter))
	f.trips++
	f.inRow++
	change := f.enter(Open, cause, now)
	f.until, f.ends = until, true
	change.Until = until
	return change
}

// enter begins a new period in the given state, unforced and without an end.
func (f *Fleet) enter(to State, cause Cause, now Instant) Transition {
	change := Transition{From: f.state, To: to, Cause: cause, At: now}
	f.state, f.cause, f.since, f.heard = to, cause, now, now
	f.period++
	f.forced, f.ends, f.until = false, false, 0
	f.passed, f.slow, f.trial, f.ramp, f.doubt = 0, 0, fleetTrial{}, 0, 0
	return change
}
