package shown

import (
	"context"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// Gate is a gate that has a limit.
type Gate struct {
	Name store.GateName `json:"name"`
	// Limit is how many jobs may be in workers' hands at a time, Held how many are; a limit of 0 is shut.
	Limit int `json:"limit"`
	Held  int `json:"held"`
	// NoShare says of a limit of 0 that it is no pause: of several partitions none has a whole unit of a cap, until it is shared out
	// anew.
	NoShare bool `json:"no_share,omitempty"`
	// Rate is jobs a second and Burst how many at once, where the gate is a rate; Limit and Held are then 0.
	Rate  float64 `json:"rate,omitempty"`
	Burst int     `json:"burst,omitempty"`
	// Shares is what each of several partitions has of the limit, or of a rate a second.
	Shares []float64 `json:"shares,omitempty"`
	// Paused says that somebody has shut it: Author, at Since, until Until if that is not nil, for a Reason.
	Paused bool       `json:"paused,omitempty"`
	Until  *time.Time `json:"until,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	Author string     `json:"author,omitempty"`
	Reason string     `json:"reason,omitempty"`
}

// GateOf shows a gate.
func GateOf(g store.GateState) Gate {
	return Gate{
		Name: g.Name, Limit: g.Limit, Held: g.Held, NoShare: g.NoShare, Rate: g.Rate, Burst: g.Burst, Shares: g.Shares,
		Paused: g.Paused(), Until: Stamp(g.Until), Since: Stamp(g.Since), Author: g.Author, Reason: g.Reason,
	}
}

// Suspension is somebody for whom enqueueing is suspended.
type Suspension struct {
	Name   store.GateName `json:"name"`
	Until  *time.Time     `json:"until,omitempty"`
	Since  *time.Time     `json:"since,omitempty"`
	Author string         `json:"author,omitempty"`
	Reason string         `json:"reason,omitempty"`
}

// SuspensionOf shows a suspension.
func SuspensionOf(s store.Suspension) Suspension {
	return Suspension{s.Name, Stamp(s.Until), Stamp(s.Since), s.Author, s.Reason}
}

// Scale is a part of the policy's limits that is in force for a time.
type Scale struct {
	// Scope is all, global or t:TENANT, Part what is left of rates and bursts.
	Scope  store.GateName `json:"scope"`
	Part   float64        `json:"part"`
	Until  *time.Time     `json:"until"`
	Since  *time.Time     `json:"since,omitempty"`
	Author string         `json:"author,omitempty"`
	Reason string         `json:"reason,omitempty"`
}

// ScaleOf shows a scale.
func ScaleOf(s store.Scale) Scale {
	return Scale{s.Target, s.Part, Stamp(s.Until), Stamp(s.Since), s.Author, s.Reason}
}

// Scales are those in force.
type Scales struct {
	Scales []Scale `json:"scales"`
}

// ReadScales returns them, all, global and then tenants by name.
func ReadScales(ctx context.Context, s store.Deployment) (Scales, error) {
	v := Scales{Scales: []Scale{}}
	all, err := s.Scales(ctx)
	for _, one := range all {
		v.Scales = append(v.Scales, ScaleOf(one))
	}
	return v, err
}

// Holds are gates, suspensions and scaled limits.
type Holds struct {
	Gates       []Gate       `json:"gates"`
	Suspensions []Suspension `json:"suspensions"`
	Scales      []Scale      `json:"scales"`
}

// Scaled returns what part of a scope's limit is in force by the scales that are held, nil for all of it.
func (h *Holds) Scaled(scope admission.Scope) *Scaled {
	scales := make([]store.Scale, len(h.Scales))
	for i, s := range h.Scales {
		scales[i] = store.Scale{Target: s.Scope, Part: s.Part}
		if s.Until != nil {
			scales[i].Until = *s.Until
		}
	}
	return scaledOf(scales, scope)
}

// ReadHolds returns the gates and suspensions whose names are wanted, with what limits are scaled to, those that are wanted and those of all.
func ReadHolds(ctx context.Context, s store.Deployment, wanted func(store.GateName) bool) (Holds, error) {
	v := Holds{Gates: []Gate{}, Suspensions: []Suspension{}, Scales: []Scale{}}
	gates, err := s.Gates(ctx)
	if err != nil {
		return v, err
	}
	for _, g := range gates {
		if wanted(g.Name) {
			v.Gates = append(v.Gates, GateOf(g))
		}
	}
	suspensions, err := s.Suspensions(ctx)
	if err != nil {
		return v, err
	}
	for _, p := range suspensions {
		if wanted(p.Name) {
			v.Suspensions = append(v.Suspensions, SuspensionOf(p))
		}
	}
	scales, err := s.Scales(ctx)
	for _, one := range scales {
		if one.Target == store.ScaleAll || one.Target == store.ScaleGlobal || wanted(one.Target) {
			v.Scales = append(v.Scales, ScaleOf(one))
		}
	}
	return v, err
}
