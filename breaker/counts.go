package breaker

// Counts is what a window holds. The doc of the package has the meaning of each in a rule: E is Ended, F Failures,
// S Slow, L SlowEnds.
type Counts struct {
	// Successes and Failures are the calls that ended with that verdict in the window.
	Successes, Failures uint64
	// Slow is the calls that passed the slow threshold in the window, most of them while they were running.
	Slow uint64
	// SlowEnds is the part of Successes and Failures that had been counted as slow, in the window or before.
	SlowEnds uint64
}

// Plus returns both together.
func (c Counts) Plus(d Counts) Counts {
	return Counts{c.Successes + d.Successes, c.Failures + d.Failures, c.Slow + d.Slow, c.SlowEnds + d.SlowEnds}
}

// Ended returns the number of verdicts in the window.
func (c Counts) Ended() uint64 { return c.Successes + c.Failures }

// Timed returns the number of calls that ended fast or became slow in the window.
func (c Counts) Timed() uint64 { return c.Ended() - c.SlowEnds + c.Slow }

// FailureRate returns the part of the verdicts that were failures, 0 if there are none.
func (c Counts) FailureRate() Ratio { return ratio(c.Failures, c.Ended()) }

// SlowCallRate returns the part of the timed calls that were slow, 0 if there are none.
func (c Counts) SlowCallRate() Ratio { return ratio(c.Slow, c.Timed()) }

func ratio(part, whole uint64) Ratio {
	if whole == 0 {
		return 0
	}
	return Ratio(float64(part) / float64(whole))
}

// Totals counts since the breaker was made, in every state, so that two of them differ by exactly what happened
// between: what a worker reports to the fleet. Every end of a call is in one of the first four.
type Totals struct {
	// Successes and Failures are verdicts that counted.
	Successes, Failures uint64
	// Ignored is calls that ended without a verdict.
	Ignored uint64
	// Late is calls that ended, whatever their outcome, in another period than they began.
	Late uint64
	// Slow is calls that became slow, except late ones.
	Slow uint64
	// Refused is calls that were not let through.
	Refused uint64
}

// rules are the causes that trip a closed breaker, in the order in which they are asked.
var rules = [...]Cause{CauseFailureStreak, CauseFailureRate, CauseSlowCallRate}

// met reports whether a rule is met. The streak is the number of failures since the last success.
func (c Config) met(rule Cause, counts Counts, streak uint64) bool {
	enough := uint64(c.MinCalls)
	switch rule { //nolint:exhaustive // the others are no rules
	case CauseFailureStreak:
		return streak >= uint64(c.FailureThreshold)
	case CauseFailureRate:
		return counts.Ended() >= enough && counts.FailureRate() >= c.FailureRate
	case CauseSlowCallRate:
		return counts.Timed() >= enough && counts.SlowCallRate() >= c.SlowCallRate
	}
	return false
}

// Nearness is how near a closed breaker is to opening, rule by rule: 0 for far, 1 for there. It says nothing of a rate by fewer calls than MinCalls.
type Nearness struct{ Streak, Failures, Slow float64 }

// Most returns the largest.
func (n Nearness) Most() float64 { return max(n.Streak, n.Failures, n.Slow) }

// Near returns how near a window and a streak of failures since the last success are to opening a breaker of such rules.
func (c Config) Near(counts Counts, streak uint64) Nearness {
	n := Nearness{Streak: min(1, float64(streak)/float64(max(1, c.FailureThreshold)))}
	if counts.Ended() >= uint64(c.MinCalls) && c.FailureRate > 0 {
		n.Failures = min(1, float64(counts.FailureRate()/c.FailureRate))
	}
	if counts.Timed() >= uint64(c.MinCalls) && c.SlowCallRate > 0 {
		n.Slow = min(1, float64(counts.SlowCallRate()/c.SlowCallRate))
	}
	return n
}

// judge says whether a closed breaker must open, and why: CauseNone if not.
func (c Config) judge(counts Counts, streak uint64) Cause {
	for _, rule := range rules {
		if c.met(rule, counts, streak) {
			return rule
		}
	}
	return CauseNone
}
