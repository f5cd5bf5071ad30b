package breaker

import "math"

// trial is what a half-open breaker knows about its probes. The breaker's lock guards it.
type trial struct {
	// probes has one entry a place; its length is Config.MaxProbes.
	probes []probe
	// passed counts the probes that ended well, slow those that were slow.
	passed, slow int
}

// probe is one place.
type probe struct {
	taken bool
	// began is an inner instant.
	began Instant
}

// restart gives every place back and forgets every verdict.
func (t *trial) restart() {
	clear(t.probes)
	t.passed, t.slow = 0, 0
}

// take finds a probe that begins now a place, numbered from 1; false if all are taken.
func (t *trial) take(inner Instant) (place int, ok bool) {
	for i := range t.probes {
		if !t.probes[i].taken {
			t.probes[i] = probe{taken: true, began: inner}
			return i + 1, true
		}
	}
	return 0, false
}

// release gives a place back.
func (t *trial) release(place int) { t.probes[place-1] = probe{} }

// inFlight returns the number of places taken.
func (t *trial) inFlight() int {
	n := 0
	for _, p := range t.probes {
		if p.taken {
			n++
		}
	}
	return n
}

// oldest returns when the oldest probe in flight began; false if there is none.
func (t *trial) oldest() (Instant, bool) {
	began, ok := Instant(math.MaxInt64), false
	for _, p := range t.probes {
		if p.taken {
			began, ok = min(began, p.began), true
		}
	}
	return began, ok
}

// halfOpenLocked begins a half-open period with every place free.
func (b *Breaker) halfOpenLocked(cause Cause, inner Instant) Transition {
	b.mu.trial.restart()
	return b.enterLocked(HalfOpen, cause, inner)
}

// reportProbeLocked counts an event of the probe at a place, and opens or closes the breaker if that decides it. A
// probe is charged to the totals only: the window is that of the last closed period.
func (b *Breaker) reportProbeLocked(place int, e event, inner Instant, jitter float64) Transition {
	t := &b.mu.trial
	if e.outcome != unfinished {
		t.release(place)
	}
	if e.slow {
		t.slow++
		b.mu.totals.Slow++
	}
	switch e.outcome {
	case succeeded:
		t.passed++
		b.mu.totals.Successes++
	case failed:
		b.mu.totals.Failures++
		return b.tripLocked(CauseProbeFailed, inner, jitter)
	case ignored, unfinished:
	}
	// Of the probes that are needed, as large a part may be slow as would not trip a closed breaker.
	if ratio(uint64(t.slow), uint64(b.config.SuccessThreshold)) >= b.config.SlowCallRate {
		return b.tripLocked(CauseProbesSlow, inner, jitter)
	}
	if t.passed >= b.config.SuccessThreshold {
		return b.closeLocked(CauseProbesPassed, inner)
	}
	return Transition{}
}
