package shown

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Adaptive is a limit that moves by itself.
type Adaptive struct {
	// Name is that of what moves it in the policy, Gate whose limit it is.
	Name string         `json:"name"`
	Gate store.GateName `json:"gate"`
	// Moves is which limit of the downstream it is, policy.MovesMaxRunning or policy.MovesDispatch, or MovesLimits. Limit is what is in force, between Min and
	// Max, instead of the policy's own: MaxRunning jobs at a time, or Dispatch jobs a second, or 100 percent of what it says. Running is how many jobs workers hold, where they
	// count against it.
	Moves      string  `json:"moves"`
	Limit      float64 `json:"limit"`
	Min        float64 `json:"min"`
	Max        float64 `json:"max"`
	MaxRunning int     `json:"max_running,omitempty"`
	Dispatch   float64 `json:"dispatch,omitempty"`
	Running    int     `json:"running"`
	// Cause is what came of the last look, at Looked; absent where there was none.
	Cause  string     `json:"cause,omitempty"`
	Looked *time.Time `json:"looked,omitempty"`
	// Before, Why and Changed are of the last change; Raised and Lowered how many there were. DeadBand is how many looks left the limit alone, since what
	// would have changed was too little to make; the last of them are a minute late at most.
	Before   float64    `json:"before,omitempty"`
	Why      string     `json:"why,omitempty"`
	Changed  *time.Time `json:"changed,omitempty"`
	Raised   int64      `json:"raised"`
	Lowered  int64      `json:"lowered"`
	DeadBand int64      `json:"dead_band"`
	Frozen   *Frozen    `json:"frozen,omitempty"`
	// Override is until when an operator, Frozen, has set Limit, and what comes back then.
	Override *Override `json:"override,omitempty"`
	// Signal is by what it goes instead of its own measurement; absent where it does not.
	Signal *Signal `json:"signal,omitempty"`
	// Pushback is how much the receiver asks for less, and InForce what of Limit is left by it; absent where it does not.
	Pushback string  `json:"pushback,omitempty"`
	InForce  float64 `json:"in_force,omitempty"`
}

// Frozen is who keeps a limit from moving.
type Frozen struct {
	Author string     `json:"author,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
}

// Override is a limit that an operator has set for a time.
type Override struct {
	Until *time.Time `json:"until"`
	Back  float64    `json:"back"`
}

// Signal is what a limit goes by: a name of the policy, where it is held, and what was told of it last, absent where nobody knows.
type Signal struct {
	Name    string   `json:"name"`
	Target  float64  `json:"target"`
	Reading *float64 `json:"reading,omitempty"`
}

// MovesLimits is Adaptive.Moves of how much of limits of admission is in force.
const MovesLimits = "limits"

// Adaptives are all of them.
type Adaptives struct {
	Adaptive []Adaptive `json:"adaptive"`
}

// ReadAdaptives returns every limit that moves by itself. Signals of a policy that is of a release to come are left out.
func ReadAdaptives(ctx context.Context, s store.Deployment) (Adaptives, error) {
	all, err := s.Adaptations(ctx)
	v := Adaptives{Adaptive: make([]Adaptive, len(all))}
	for i := range all {
		v.Adaptive[i] = AdaptiveOf(&all[i])
	}
	if err != nil || len(all) == 0 {
		return v, err
	}
	text, err := s.Policy(ctx)
	if err != nil {
		return v, err
	}
	compiled, err := policy.PrepareStored(text)
	if err != nil {
		return v, nil //nolint:nilerr // What is in force is to be seen all the same.
	}
	signals := SignalsOf(s)
	for _, m := range compiled.Moving() {
		for i := range v.Adaptive {
			if a := &v.Adaptive[i]; a.Name == m.Name && err == nil {
				a.Signal, err = signals.Read(ctx, &m)
			}
		}
	}
	return v, err
}

// Signals reads by what limits go as their loop does: what workers tell once, however many limits go by it, and how near a downstream's breaker is to opening.
// It is for one goroutine.
type Signals struct {
	store   store.Deployment
	samples []load.Sample
	known   bool
}

// SignalsOf returns those of a deployment, of which nothing is read yet.
func SignalsOf(s store.Deployment) *Signals { return &Signals{store: s} }

// Read returns the signal of a limit, nil for one that goes by none: then it reads nothing.
func (of *Signals) Read(ctx context.Context, m *policy.Moving) (*Signal, error) {
	if m.Signal == "" {
		return nil, nil //nolint:nilnil // It goes by none.
	}
	v, value := &Signal{Name: m.Signal, Target: m.Target()}, math.NaN()
	var err error
	if m.Metric() == "" && !m.Limits {
		value, err = store.BreakerPressure(of.store.Breaker(ctx, m.Downstream))
	} else if m.Metric() == "" {
		value, err = of.pressure(ctx, m.Queue)
	} else if err = of.read(ctx); err == nil {
		value = load.MetricOf(m.Metric(), m.Queue, m.Downstream, of.samples)
	}
	if !math.IsNaN(value) {
		v.Reading = &value
	}
	return v, err
}

// read reads what workers tell, once.
func (of *Signals) read(ctx context.Context) error {
	if of.known {
		return nil
	}
	told, err := of.store.WorkerLoads(ctx)
	of.samples, of.known = SamplesOf(told), err == nil
	return err
}

// pressure is the score of a queue, for "" of the one that is pressed most, as long as it holds; NaN where nobody knows.
func (of *Signals) pressure(ctx context.Context, queue string) (float64, error) {
	names, most := []string{queue}, math.NaN()
	now, err := of.store.Time(ctx)
	if err == nil && queue == "" {
		names, err = of.store.QueueNames(ctx)
	}
	if err != nil {
		return most, err
	}
	for _, name := range names {
		q, err := of.store.Queue(ctx, name)
		if err != nil {
			return most, err
		}
		if q.Pressure != nil && q.Pressure.Until.After(now) && !(q.Pressure.Score <= most) {
			most = q.Pressure.Score
		}
	}
	return most, nil
}

// InWords tells of a signal for people.
func (s *Signal) InWords() string {
	number := func(x float64) string {
		text := strconv.FormatFloat(x, 'g', 3, 64)
		if s.Name == policy.SignalRunP95 || s.Name == policy.SignalWaitP95 {
			text += " s"
		}
		return text
	}
	if s.Reading == nil {
		return s.Name + " is not known, its target is " + number(s.Target)
	}
	return s.Name + " is " + number(*s.Reading) + ", its target " + number(s.Target)
}

// AdaptiveOf shows a limit that moves by itself.
func AdaptiveOf(a *store.Adaptation) Adaptive {
	of := func(limit int) float64 { return float64(limit) / a.Gate.Unit() }
	v := Adaptive{
		Name: a.Name, Gate: a.Gate, Moves: policy.MovesMaxRunning, Limit: of(a.Limit), Min: of(a.Least), Max: of(a.Most), Running: a.Held,
		Cause: a.Cause, Looked: Stamp(a.At), Before: of(a.Before), Why: a.Why, Changed: Stamp(a.Changed), Raised: a.Raised, Lowered: a.Lowered, DeadBand: a.DeadBand,
	}
	switch {
	case a.IsLimits():
		v.Moves = MovesLimits
	case a.IsRate():
		v.Moves, v.Dispatch = policy.MovesDispatch, of(a.Own)
		if a.Push > 0 {
			v.Pushback, v.InForce = a.Push.String(), of(a.InForce())
		}
	default:
		v.MaxRunning = a.Own
	}
	if o := a.Override; o != nil {
		v.Override = &Override{Stamp(o.Until), of(o.Back)}
	}
	if a.Frozen != nil {
		v.Frozen = &Frozen{a.Frozen.Author, a.Frozen.Reason, Stamp(a.Frozen.Since)}
	}
	return v
}

// FindAdaptive returns the gate of the limit that something of a name moves. There being none is store.ErrNotAdaptive.
func FindAdaptive(ctx context.Context, s store.Deployment, name string) (store.GateName, error) {
	all, err := s.Adaptations(ctx)
	for i := range all {
		if all[i].Name == name {
			return all[i].Gate, nil
		}
	}
	if err == nil {
		err = fmt.Errorf("%w is called %s", store.ErrNotAdaptive, name)
	}
	return "", err
}

// OverrideLimit returns a limit that an operator wants, in jobs at a time or jobs a second, as the store takes it.
func OverrideLimit(gate store.GateName, limit float64) (int, error) {
	unit := gate.Unit()
	whole := math.Round(limit * unit)
	if !(whole >= 1 && whole <= math.MaxInt32*store.RateUnit) || unit == 1 && whole != limit {
		return 0, &admission.FieldError{Field: "limit", Value: strconv.FormatFloat(limit, 'g', -1, 64), Allowed: "a whole number of jobs at a time, of a dispatch jobs a second, or of limits percent, above 0"}
	}
	return int(whole), nil
}

// InWords tells one of its limits for people: a number, of a rate with /s behind it, of limits of admission with %.
func (v Adaptive) InWords(limit float64) string {
	switch v.Moves {
	case policy.MovesDispatch:
		return strconv.FormatFloat(limit, 'g', 4, 64) + "/s"
	case MovesLimits:
		return strconv.FormatFloat(limit, 'g', 4, 64) + "%"
	}
	return strconv.FormatFloat(limit, 'f', -1, 64)
}

// LastStep tells for people what came of a limit that moves by itself.
func (v Adaptive) LastStep() string {
	switch {
	case v.Pushback != "":
		return "the receiver pushes back, " + v.Pushback + ": " + v.InWords(v.InForce) + " of it are in force"
	case v.Override != nil:
		return "set by an operator for a time"
	case v.Frozen != nil:
		return "frozen"
	case v.Looked == nil:
		return "nobody has looked at it yet"
	case v.Changed == nil:
		return "unchanged: " + control.Cause(v.Cause).Words()
	}
	text := fmt.Sprintf("%s to %s: %s", v.InWords(v.Before), v.InWords(v.Limit), control.Cause(v.Why).Words())
	if v.Cause != v.Why {
		text += "; since then " + control.Cause(v.Cause).Words()
	}
	return text
}
