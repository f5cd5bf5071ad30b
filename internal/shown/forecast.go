package shown

import (
	"math"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/rollout"
)

// Forecast is what a policy would have made of the last hour.
type Forecast struct {
	Minutes  int             `json:"minutes"`
	Coverage float64         `json:"coverage"`
	All      Flow            `json:"all"`
	Tiers    map[string]Flow `json:"tiers"`
	Scopes   []ScopeFlow     `json:"scopes"`
}

// Flow is demand in tokens, and how much of it is allowed and refused by the policy in force and by the other.
type Flow struct {
	Demand admission.Tokens `json:"demand"`
	Before Split            `json:"before"`
	After  Split            `json:"after"`
}

// Split is demand that was split.
type Split struct {
	Allowed admission.Tokens `json:"allowed"`
	Refused admission.Tokens `json:"refused"`
}

// ScopeFlow is the flow of a scope, with the tier of a tenant.
type ScopeFlow struct {
	Scope admission.Scope `json:"scope"`
	Tier  string          `json:"tier,omitempty"`
	Flow
}

// ForecastOf shows a forecast. The coverage is rounded down, to four digits: all is said of all alone.
func ForecastOf(f rollout.Forecast) Forecast {
	v := Forecast{
		Minutes: f.Minutes, Coverage: math.Floor(f.Coverage*1e4) / 1e4, All: flowOf(f.All), Tiers: map[string]Flow{}, Scopes: []ScopeFlow{},
	}
	for tier, flow := range f.Tiers {
		v.Tiers[tier] = flowOf(flow)
	}
	for _, one := range f.Scopes {
		v.Scopes = append(v.Scopes, ScopeFlow{one.Scope, one.Tier, flowOf(one.Flow)})
	}
	return v
}

func flowOf(f rollout.Flow) Flow {
	return Flow{f.Demand, Split{f.Before, f.Demand - f.Before}, Split{f.After, f.Demand - f.After}}
}
