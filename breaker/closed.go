package breaker

// closeLocked begins a closed period with an empty window.
func (b *Breaker) closeLocked(cause Cause, inner Instant) Transition {
	change := b.enterLocked(Closed, cause, inner)
	b.mu.window.restart(inner, &b.mu.totals)
	b.publishLocked()
	return change
}

// forceClosedLocked begins a closed period that never trips and ends at until.
func (b *Breaker) forceClosedLocked(inner, until Instant) Transition {
	change := b.enterLocked(Closed, CauseForced, inner)
	b.mu.window.restart(inner, &b.mu.totals)
	b.mu.until, b.mu.forced = until, true
	b.publishLocked()
	change.Until = b.mu.clock.outer(until)
	return change
}

// slideLocked moves the window on to the slice in force. After a step of the clock the same slice needs other bounds.
func (b *Breaker) slideLocked(inner Instant, stepped bool) {
	w := &b.mu.window
	index := w.indexAt(inner)
	if index > w.index {
		w.slide(index, &b.mu.totals)
		b.mu.clock.mark = w.beginning(index)
	} else if !stepped {
		return
	}
	b.publishLocked()
}

// publishLocked lets calls be counted in the window's newest slice without the lock, until the slice or
// the forced state ends, or the clock is set back.
func (b *Breaker) publishLocked() {
	w := &b.mu.window
	begins, ends := w.beginning(w.index), w.beginning(w.index+1)
	if b.mu.forced {
		ends = min(ends, b.mu.until)
	}
	fresh := &slice{hi: b.mu.clock.outer(ends), period: b.mu.period}
	fresh.lo = b.mu.clock.outer(begins.Add(-MaxLag))
	if ends <= begins {
		// The forced state was over before it began: late callers must not find it in force.
		fresh.lo = fresh.hi
	}
	w.put(fresh)
	b.live.Store(fresh)
}

// countLocked counts an event of a call in the newest slice, and trips if that is bad news enough.
func (b *Breaker) countLocked(e event, inner Instant, jitter float64) Transition {
	s := b.mu.window.newest()
	switch e.outcome {
	case succeeded:
		s.successes.add()
		b.streak.Store(0)
	case failed:
		s.failures++
		b.streak.Add(1)
	case ignored, unfinished:
	}
	if e.slow {
		s.slow++
	}
	if e.verdict() && (e.slow || e.wasSlow) {
		s.slowEnds++
	}
	if b.mu.forced || !e.slow && e.outcome != failed {
		return Transition{}
	}
	w := &b.mu.window
	if cause := b.config.judge(w.countsAt(w.index), b.streak.Load()); cause != CauseNone {
		return b.tripLocked(cause, inner, jitter)
	}
	return Transition{}
}
