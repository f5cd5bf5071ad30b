package shown

import (
	"time"

	"github.com/headgate/headgate/lua"
)

// Breaker is the circuit breaker of one downstream.
type Breaker struct {
	Downstream string    `json:"downstream"`
	State      string    `json:"state"`
	Cause      string    `json:"cause"`
	Since      time.Time `json:"since"`
	// Until is when the state ends by time alone.
	Until *time.Time `json:"until,omitempty"`
	// Forced says that an operator chose the state, Reason is the one that an operator gave last.
	Forced bool   `json:"forced"`
	Reason string `json:"reason,omitempty"`
	// Waiting is how many jobs of the downstream wait, Limit how many may be in workers' hands at a time; absent for any
	// number.
	Waiting int64 `json:"waiting"`
	Limit   *int  `json:"limit,omitempty"`
	// Window is what is counted, or was when the breaker was closed last.
	Window Window `json:"window"`
	// Callers are the workers that called in that window, Voters those of them whose own calls were bad enough.
	Callers []string `json:"callers"`
	Voters  []string `json:"voters"`
	Probes  Probes   `json:"probes"`
	// Ramp is the step of the slow start, 0 for none.
	Ramp       int    `json:"ramp"`
	Trips      uint64 `json:"trips"`
	TripsInRow uint64 `json:"trips_in_row"`
}

// Window is what a breaker counted.
type Window struct {
	Successes     uint64  `json:"successes"`
	Failures      uint64  `json:"failures"`
	Slow          uint64  `json:"slow"`
	FailureRate   float64 `json:"failure_rate"`
	SlowCallRate  float64 `json:"slow_call_rate"`
	FailureStreak uint64  `json:"failure_streak"`
}

// Probes counts those of the present half-open period.
type Probes struct {
	Passed uint64 `json:"passed"`
	Slow   uint64 `json:"slow"`
}

// Breakers are those of all downstreams.
type Breakers struct {
	Breakers []Breaker `json:"breakers"`
}

// BreakerOf shows a breaker.
func BreakerOf(b *lua.BreakerState) Breaker {
	v := Breaker{
		Downstream: b.Downstream, State: b.State.String(), Cause: b.Cause.String(), Since: b.Since.UTC(), Until: Stamp(b.Until),
		Forced: b.Forced, Reason: b.Reason, Waiting: b.Waiting,
		Window: Window{
			Successes: b.Window.Successes, Failures: b.Window.Failures, Slow: b.Window.Slow,
			FailureRate: float64(b.Window.FailureRate()), SlowCallRate: float64(b.Window.SlowCallRate()), FailureStreak: b.FailureStreak,
		},
		Callers: append([]string{}, b.Callers...), Voters: append([]string{}, b.Voters...), Probes: Probes{b.ProbesPassed, b.SlowProbes},
		Ramp: b.Ramp, Trips: b.Trips, TripsInRow: b.TripsInRow,
	}
	if b.Limit != lua.Unlimited {
		v.Limit = new(b.Limit)
	}
	return v
}

// BreakersOf shows several.
func BreakersOf(states []lua.BreakerState) Breakers {
	v := Breakers{Breakers: make([]Breaker, len(states))}
	for i := range states {
		v.Breakers[i] = BreakerOf(&states[i])
	}
	return v
}
