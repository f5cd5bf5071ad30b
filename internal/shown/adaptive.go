package shown

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/control"
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

// MovesLimits is Adaptive.Moves of how much of limits of admission is in force.
const MovesLimits = "limits"

// Adaptives are all of them.
type Adaptives struct {
	Adaptive []Adaptive `json:"adaptive"`
}

// ReadAdaptives returns every limit that moves by itself.
func ReadAdaptives(ctx context.Context, s store.Deployment) (Adaptives, error) {
	all, err := s.Adaptations(ctx)
	v := Adaptives{Adaptive: make([]Adaptive, len(all))}
	for i := range all {
		v.Adaptive[i] = AdaptiveOf(&all[i])
	}
	return v, err
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
