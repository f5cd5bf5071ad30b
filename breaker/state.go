package breaker

// State is what a breaker does with calls.
type State uint8

// The states.
const (
	// Closed lets every call pass and counts how it ends.
	Closed State = iota
	// Open lets no call pass.
	Open
	// HalfOpen lets a few probes pass and is decided by how they end.
	HalfOpen
)

// Severity orders states by how few calls they let through: closed, half-open, open.
func (s State) Severity() int {
	switch s {
	case Open:
		return 2
	case HalfOpen:
		return 1
	case Closed:
	}
	return 0
}

// String returns "closed", "open" or "half-open".
func (s State) String() string {
	switch s {
	case Closed:
		return "closed"
	case Open:
		return "open"
	case HalfOpen:
		return "half-open"
	}
	return "unknown"
}

// Cause is why a breaker changed its state.
type Cause uint8

// The causes.
const (
	// CauseNone is the cause of no change: of the zero Transition and of a new breaker.
	CauseNone Cause = iota
	// CauseFailureRate tripped a closed breaker: too large a part of the calls that ended in the window failed.
	CauseFailureRate
	// CauseFailureStreak tripped a closed breaker: too many verdicts in a row were failures.
	CauseFailureStreak
	// CauseSlowCallRate tripped a closed breaker: too large a part of the calls in the window were slow.
	CauseSlowCallRate
	// CauseProbeFailed opened a half-open breaker: a probe failed.
	CauseProbeFailed
	// CauseProbeTimeout opened a half-open breaker: a probe had not ended in time.
	CauseProbeTimeout
	// CauseProbesSlow opened a half-open breaker: too many probes were slow.
	CauseProbesSlow
	// CauseCooldownOver made an open breaker half-open.
	CauseCooldownOver
	// CauseProbesPassed closed a half-open breaker.
	CauseProbesPassed
	// CauseForced means that an operator forced the state.
	CauseForced
	// CauseForceEnded means that the time of a forced state was over.
	CauseForceEnded
	// CauseReset means that an operator reset the breaker.
	CauseReset
)

var causeNames = [...]string{
	CauseNone: "none", CauseFailureRate: "failure rate", CauseFailureStreak: "failure streak",
	CauseSlowCallRate: "slow-call rate", CauseProbeFailed: "probe failed", CauseProbeTimeout: "probe timeout",
	CauseProbesSlow: "probes slow", CauseCooldownOver: "cooldown over", CauseProbesPassed: "probes passed",
	CauseForced: "forced", CauseForceEnded: "force ended", CauseReset: "reset",
}

// String returns the cause in words, "failure rate" for one; they are few enough to label a metric.
func (c Cause) String() string {
	if int(c) < len(causeNames) {
		return causeNames[c]
	}
	return "unknown"
}

// Transition is one change of state, handed to the one caller whose call made it. The zero value is no
// change. An operator may force a state that a breaker already has: From and To are then equal.
type Transition struct {
	// From is the state that ended and To the one that began.
	From, To State
	// Cause is CauseNone in the zero value only.
	Cause Cause
	// At is when, on the caller's clock.
	At Instant
	// Until is when To ends by time alone, on the caller's clock; it means something for an open breaker and
	// for a forced one.
	Until Instant
	// Callers is how many workers called the downstream in the window of a Fleet that tripped, and Voters how many of
	// them voted for it.
	Callers, Voters int
}

// Happened reports whether there was a change.
func (t Transition) Happened() bool { return t.Cause != CauseNone }
