package shown

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
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
	// Pressure is how near it is to opening.
	Pressure Pressure `json:"pressure"`
	// Window is what is counted, or was when the breaker was closed last.
	Window Window `json:"window"`
	// Callers are the workers that called in that window, Voters those of them whose own calls were bad enough.
	Callers []string `json:"callers"`
	Voters  []string `json:"voters"`
	// Tenants is about how many tenants called in that window, FailingTenants how many of them failed as often as opens.
	Tenants        int    `json:"tenants"`
	FailingTenants int    `json:"failing_tenants"`
	Probes         Probes `json:"probes"`
	// Ramp is the step of the slow start, 0 for none.
	Ramp       int    `json:"ramp"`
	Trips      uint64 `json:"trips"`
	TripsInRow uint64 `json:"trips_in_row"`
	Rules      Rules  `json:"rules"`
	Life       Life   `json:"life"`
	// Errors are the last kinds of errors, the newest first; for operators alone, since they are what a receiver has said.
	Errors []CallError `json:"errors,omitempty"`
}

// Pressure is a level, and the score that it comes from, 0 to 1.
type Pressure struct {
	Level string  `json:"level"`
	Score float64 `json:"score"`
}

// Rules are those of a breaker, and where they are from.
type Rules struct {
	// Origin is default, worker or policy; PolicyVersion the last one that a worker followed which reported.
	Origin           string  `json:"origin"`
	PolicyVersion    int64   `json:"policy_version"`
	Window           string  `json:"window"`
	Buckets          int     `json:"buckets"`
	MinCalls         int     `json:"min_calls"`
	FailureRate      float64 `json:"failure_rate"`
	FailureThreshold int     `json:"failure_threshold"`
	SlowCallRate     float64 `json:"slow_call_rate"`
	SuccessThreshold int     `json:"success_threshold"`
	MaxProbes        int     `json:"max_probes"`
	ProbeTimeout     string  `json:"probe_timeout"`
	OpenBase         string  `json:"open_base"`
	OpenMax          string  `json:"open_max"`
	ResetAfter       string  `json:"reset_after"`
	// Differs is who reported with other rules within the last minute, which are not in force.
	Differs *Differs `json:"differs,omitempty"`
}

// Differs is a worker with other rules than those in force.
type Differs struct {
	Worker string    `json:"worker"`
	At     time.Time `json:"at"`
	// Fields are those of its rules that are others, with the worker's value.
	Fields map[string]string `json:"fields"`
}

// Life is what a breaker counted since it was made.
type Life struct {
	TotalCalls  int64   `json:"total_calls"`
	FailedCalls int64   `json:"failed_calls"`
	SuccessRate float64 `json:"success_rate"`
	// AverageRunMS is how long a call took in the mean, in milliseconds.
	AverageRunMS float64       `json:"average_run_ms"`
	LastFailure  *time.Time    `json:"last_failure_time,omitempty"`
	Transitions  []Transitions `json:"transitions"`
}

// Transitions counts those from one state to another.
type Transitions struct {
	From  string `json:"from"`
	To    string `json:"to"`
	Count int64  `json:"count"`
}

// CallError is one kind of error.
type CallError struct {
	Text  string    `json:"text"`
	Count int64     `json:"count"`
	At    time.Time `json:"at"`
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
func BreakerOf(b *store.BreakerState) Breaker {
	v := Breaker{
		Downstream: b.Downstream, State: b.State.String(), Cause: b.Cause.String(), Since: Moment(b.Since), Until: Stamp(b.Until),
		Forced: b.Forced, Reason: b.Reason, Waiting: b.Waiting,
		Window: Window{
			Successes: b.Window.Successes, Failures: b.Window.Failures, Slow: b.Window.Slow,
			FailureRate: float64(b.Window.FailureRate()), SlowCallRate: float64(b.Window.SlowCallRate()), FailureStreak: b.FailureStreak,
		},
		Callers: append([]string{}, b.Callers...), Voters: append([]string{}, b.Voters...), Probes: Probes{b.ProbesPassed, b.SlowProbes},
		Ramp: b.Ramp, Trips: b.Trips, TripsInRow: b.TripsInRow, Tenants: b.Tenants, FailingTenants: b.FailingTenants,
		Rules: rulesOf(&b.Rules), Life: lifeOf(&b.Life),
	}
	for _, e := range b.Errors {
		v.Errors = append(v.Errors, CallError{e.Text, e.Count, Moment(e.At)})
	}
	if b.Limit != store.Unlimited {
		v.Limit = new(b.Limit)
	}
	p, _ := b.Pressure()
	v.Pressure = Pressure{p.Level.String(), p.Score}
	return v
}

// BreakersOf shows several.
func BreakersOf(states []store.BreakerState) Breakers {
	v := Breakers{Breakers: make([]Breaker, len(states))}
	for i := range states {
		v.Breakers[i] = BreakerOf(&states[i])
	}
	return v
}

func rulesOf(r *store.BreakerRules) Rules {
	v := configOf(&r.Config)
	v.Origin, v.PolicyVersion = r.Origin.String(), r.Version
	if d := r.Differs; d != nil {
		other := configOf(&d.Config)
		v.Differs = &Differs{Worker: d.Worker, At: Moment(d.At), Fields: map[string]string{}}
		mine, theirs := reflect.ValueOf(v), reflect.ValueOf(other)
		for i := range mine.NumField() {
			name, _, _ := strings.Cut(mine.Type().Field(i).Tag.Get("json"), ",")
			if at := fmt.Sprint(theirs.Field(i)); name != "origin" && name != "policy_version" && name != "differs" && at != fmt.Sprint(mine.Field(i)) {
				v.Differs.Fields[name] = at
			}
		}
	}
	return v
}

func configOf(c *breaker.Config) Rules {
	return Rules{
		Window: c.Window.String(), Buckets: c.Buckets, MinCalls: c.MinCalls, FailureRate: float64(c.FailureRate),
		FailureThreshold: c.FailureThreshold, SlowCallRate: float64(c.SlowCallRate), SuccessThreshold: c.SuccessThreshold,
		MaxProbes: c.MaxProbes, ProbeTimeout: c.ProbeTimeout.String(), OpenBase: c.OpenBase.String(), OpenMax: c.OpenMax.String(),
		ResetAfter: c.ResetAfter.String(),
	}
}

func lifeOf(l *store.BreakerLife) Life {
	v := Life{TotalCalls: l.Calls, FailedCalls: l.Failures, LastFailure: Stamp(l.LastFailure), Transitions: []Transitions{}}
	if l.Calls > 0 {
		v.SuccessRate = float64(l.Calls-l.Failures) / float64(l.Calls)
		v.AverageRunMS = float64(l.Ran.Microseconds()) / 1000 / float64(l.Calls)
	}
	for _, t := range l.Transitions {
		v.Transitions = append(v.Transitions, Transitions{t.From.String(), t.To.String(), t.Count})
	}
	return v
}

// BreakersIn shows those that are in a state; "" for all.
func BreakersIn(states []store.BreakerState, state string) Breakers {
	return BreakersOf(slices.DeleteFunc(slices.Clone(states), func(b store.BreakerState) bool { return state != "" && b.State.String() != state }))
}
