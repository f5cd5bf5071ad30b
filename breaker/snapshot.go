package breaker

// Snapshot is a breaker at one instant, for people and metrics. Its Instants are of the caller's clock.
type Snapshot struct {
	// State is the state that the last call with a time left, Cause why the breaker took it, and Since when.
	State State
	Cause Cause
	Since Instant
	// Until is when the state ends by time alone: a cooldown, a forced state, the oldest probe's time-out. It means
	// something only if Ends.
	Until Instant
	Ends  bool
	// Forced says that an operator chose the state; Reason is the one given with the last force or reset.
	Forced bool
	Reason string
	// Window is what the window holds; unless the breaker is closed, what it held when it was last closed.
	Window Counts
	// FailureStreak is the number of failures since the last success, while closed.
	FailureStreak uint64
	// ProbesInFlight, ProbesPassed and SlowProbes are of the half-open period, 0 in other states.
	ProbesInFlight, ProbesPassed, SlowProbes int
	// Trips counts how often the breaker opened of itself; TripsInRow is what the next cooldown grows with.
	Trips, TripsInRow uint64
	// Totals counts since the breaker was made.
	Totals Totals
}

// SnapshotAt returns the breaker as it is now. It changes nothing, not even what is due: call AdvanceAt first for that.
func (b *Breaker) SnapshotAt(now Instant) Snapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	ahead := b.mu.clock
	inner, _ := ahead.read(now)
	until, ends := b.nextChangeLocked()
	snapshot := Snapshot{
		State: b.mu.state, Cause: b.mu.cause, Since: ahead.outer(b.mu.since),
		Forced: b.mu.forced, Reason: b.mu.reason,
		FailureStreak: b.streak.Load(),
		Trips:         b.mu.trips, TripsInRow: b.mu.inRow,
		Ends: ends,
	}
	if b.stableLocked(inner) {
		snapshot.TripsInRow = 0
	}
	if ends {
		snapshot.Until = ahead.outer(until)
	}
	if b.mu.state == HalfOpen {
		t := &b.mu.trial
		snapshot.ProbesInFlight, snapshot.ProbesPassed, snapshot.SlowProbes = t.inFlight(), t.passed, t.slow
	}
	snapshot.Window, snapshot.Totals = b.countsLocked(inner)
	return snapshot
}

// countsLocked returns what the window holds at an inner instant, and the totals with it.
func (b *Breaker) countsLocked(inner Instant) (Counts, Totals) {
	w := &b.mu.window
	all := w.countsAt(w.index)
	totals := b.mu.totals
	totals.Successes += all.Successes
	totals.Failures += all.Failures
	totals.Slow += all.Slow
	if b.mu.state != Closed {
		return all, totals
	}
	return w.countsAt(w.indexAt(inner)), totals
}
