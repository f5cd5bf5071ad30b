package shown

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/store"
)

// Adaptive is a limit that moves by itself.
type Adaptive struct {
	// Name is that of what moves it in the policy, Gate whose limit it is.
	Name string         `json:"name"`
	Gate store.GateName `json:"gate"`
	// Limit is what is in force, between Min and Max, instead of the policy's own MaxRunning. Running is how many jobs workers hold.
	Limit      int `json:"limit"`
	Min        int `json:"min"`
	Max        int `json:"max"`
	MaxRunning int `json:"max_running"`
	Running    int `json:"running"`
	// Cause is what came of the last look, at Looked; absent where there was none.
	Cause  string     `json:"cause,omitempty"`
	Looked *time.Time `json:"looked,omitempty"`
	// Before, Why and Changed are of the last change; Raised and Lowered how many there were.
	Before  int        `json:"before,omitempty"`
	Why     string     `json:"why,omitempty"`
	Changed *time.Time `json:"changed,omitempty"`
	Raised  int64      `json:"raised"`
	Lowered int64      `json:"lowered"`
	Frozen  *Frozen    `json:"frozen,omitempty"`
}

// Frozen is who keeps a limit from moving.
type Frozen struct {
	Author string     `json:"author,omitempty"`
	Reason string     `json:"reason,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
}

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
	v := Adaptive{
		Name: a.Name, Gate: a.Gate, Limit: a.Limit, Min: a.Least, Max: a.Most, MaxRunning: a.Own, Running: a.Held, Cause: a.Cause, Looked: Stamp(a.At),
		Before: a.Before, Why: a.Why, Changed: Stamp(a.Changed), Raised: a.Raised, Lowered: a.Lowered,
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

// LastStep tells for people what came of a limit that moves by itself.
func (v Adaptive) LastStep() string {
	switch {
	case v.Frozen != nil:
		return "frozen"
	case v.Looked == nil:
		return "nobody has looked at it yet"
	case v.Changed == nil:
		return "unchanged: " + control.Cause(v.Cause).Words()
	}
	text := fmt.Sprintf("%d to %d: %s", v.Before, v.Limit, control.Cause(v.Why).Words())
	if v.Cause != v.Why {
		text += "; since then " + control.Cause(v.Cause).Words()
	}
	return text
}
