package breaker

// FleetSnapshot is a fleet's breaker at one instant.
type FleetSnapshot struct {
	// State is the present one, Cause why it was taken, Since when, and Period its number.
	State  State
	Cause  Cause
	Since  Instant
	Period uint64
	// Until is when the state ends by time alone; it means something only if Ends. A slow start and a probe's time-out
	// are not among it.
	Until Instant
	Ends  bool
	// Forced says that an operator chose the state; Reason is the one given with the last force or reset.
	Forced bool
	Reason string
	// Window is what the fleet's window holds; unless the breaker is closed, what it held when it was last closed.
	Window Counts
	// Callers is the workers that called the downstream in that window, Voters those whose own calls meet a
	// rule, however few they are.
	Callers, Voters int
	// Tenants is how many groups of tenants called in it, FailingTenants of how many as large a part failed as
	// FailureRate.
	Tenants, FailingTenants int
	// FailureStreak is the failures since any worker's last success, of the last closed period.
	FailureStreak uint64
	// ProbesPassed and SlowProbes are of the half-open period, 0 in other states.
	ProbesPassed, SlowProbes uint64
	// Doubt is when the vote of a worker that is the only caller counts; 0 if there is none.
	Doubt Instant
	// Ramp is the step of the slow start, from 1; 0 for none.
	Ramp int
	// Trips counts how often the breaker opened of itself; TripsInRow is what the next cooldown grows with.
	Trips, TripsInRow uint64
}

// SnapshotAt returns the breaker as it is. It changes nothing.
func (f *Fleet) SnapshotAt(now Instant) FleetSnapshot {
	index := f.shownIndex(now)
	s := FleetSnapshot{
		State: f.state, Cause: f.cause, Since: f.since, Period: f.period, Until: f.until, Ends: f.ends, Forced: f.forced,
		Reason: f.reason, FailureStreak: f.streak, ProbesPassed: f.passed, SlowProbes: f.slow, Ramp: f.ramp, Doubt: f.doubt,
		Trips: f.trips, TripsInRow: f.inRow, Window: f.window.sum(index, f.config.Buckets),
	}
	s.Callers, s.Voters = f.votes(index, rules[:]...)
	half, kept := f.config.half(index)
	for i := range f.groups {
		own := f.groups[i].window.sum(half, kept)
		if own.Ended() == 0 && own.Slow == 0 {
			continue
		}
		s.Tenants++
		if own.FailureRate() >= f.config.FailureRate {
			s.FailingTenants++
		}
	}
	return s
}
