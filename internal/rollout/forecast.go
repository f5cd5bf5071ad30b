package rollout

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// forecastBudget is how long reading what was recorded may take.
const forecastBudget = 2 * time.Second

// Forecast is what a policy would have made of the demand that was recorded in the last hour, beside what the one in force
// makes of it by the same reckoning. Demand is taken to be spread evenly over its minute, whether it was admitted or refused,
// and buckets to be full an hour ago. Who is refused is taken not to come again.
type Forecast struct {
	// Minutes is how many of the hour had any.
	Minutes int `json:"minutes"`
	// Coverage is the part of all demand whose tenants were recorded, 0 to 1: the rest is known in sum alone. It is rounded down, to four
	// digits: all is said of all alone.
	Coverage float64 `json:"coverage"`
	// All is the demand of the whole deployment, Tiers that of the recorded tenants, by the tier that the policy would give
	// them.
	All   Flow            `json:"all"`
	Tiers map[string]Flow `json:"tiers"`
	// Scopes are all that were recorded, those first for which most would change.
	Scopes []ScopeFlow `json:"scopes"`
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

// Foresee returns what a document would have made of the last hour, beside the records that tenants have. It changes nothing.
func Foresee(ctx context.Context, store store.Deployment, document policy.Policy) (Forecast, error) {
	current, err := Current(ctx, store)
	if err != nil {
		return Forecast{}, err
	}
	before, err := current.Prepare()
	if err != nil {
		return Forecast{}, err
	}
	after, err := document.Prepare()
	if err != nil {
		return Forecast{}, err
	}
	hour, err := store.LastHour(ctx, forecastBudget)
	if err != nil {
		return Forecast{}, err
	}
	if err := learn(ctx, store, hour, before, after); err != nil {
		return Forecast{}, err
	}
	return foresee(hour, before, after), nil
}

// recordsPortion is how many records are read at a time.
const recordsPortion = 256

// learn has policies know the records of the tenants that were recorded: theirs go before what a document says.
func learn(ctx context.Context, s store.Deployment, hour []store.Recorded, before, after *policy.Compiled) error {
	if !before.HasRecords() { // Then there are none.
		return nil
	}
	tenants := map[string]bool{}
	for i := range hour {
		for scope := range hour[i].Scopes {
			if tenant, _, _, err := scope.Parts(); err == nil && tenant != "" {
				tenants[tenant] = true
			}
		}
	}
	for some := range slices.Chunk(slices.Sorted(maps.Keys(tenants)), recordsPortion) {
		all, err := s.Records(ctx, some...)
		if err != nil {
			return err
		}
		for _, r := range all {
			if err := errors.Join(before.Learn(r.Tenant, r.Version, r.Text), after.Learn(r.Tenant, r.Version, r.Text)); err != nil {
				return err
			}
		}
	}
	return nil
}

func foresee(hour []store.Recorded, before, after *policy.Compiled) Forecast {
	demand := map[admission.Scope]float64{}
	was, would := newReplay(before), newReplay(after)
	for i := range hour {
		var levels [admission.Levels][]admission.Scope
		for scope, count := range hour[i].Scopes {
			demand[scope] += float64(count.Tokens)
			level := scope.Level()
			levels[level] = append(levels[level], scope)
		}
		was.minute(&hour[i], &levels)
		would.minute(&hour[i], &levels)
	}
	f := Forecast{Minutes: len(hour), Tiers: map[string]Flow{}, Scopes: []ScopeFlow{}}
	type sum struct{ demand, before, after float64 }
	flow := func(s sum) Flow { return flowOf(whole(s.demand), whole(s.before), whole(s.after)) }
	tiers, recorded := map[string]sum{}, 0.0
	for scope, tokens := range demand {
		one := ScopeFlow{Scope: scope, Flow: flow(sum{tokens, was.allowed[scope], would.allowed[scope]})}
		if scope.Level() == admission.LevelTenant {
			one.Tier = after.TierOf(string(scope))
			t := tiers[one.Tier]
			tiers[one.Tier] = sum{t.demand + tokens, t.before + was.allowed[scope], t.after + would.allowed[scope]}
			recorded += tokens
		}
		f.Scopes = append(f.Scopes, one)
	}
	for tier, s := range tiers {
		f.Tiers[tier] = flow(s)
	}
	all := demand[admission.Global]
	f.All = flow(sum{all, was.allowed[admission.Global], would.allowed[admission.Global]})
	if all > 0 {
		f.Coverage = math.Floor(min(1, recorded/all)*1e4) / 1e4
	}
	slices.SortFunc(f.Scopes, func(a, b ScopeFlow) int {
		return cmp.Or(cmp.Compare(b.changed(), a.changed()), cmp.Compare(b.Demand, a.Demand), strings.Compare(string(a.Scope), string(b.Scope)))
	})
	return f
}

// changed is how much more or less would be allowed.
func (f Flow) changed() admission.Tokens {
	return max(f.After.Allowed-f.Before.Allowed, f.Before.Allowed-f.After.Allowed)
}

// flowOf returns the flow of a demand of which so much is allowed before and after.
func flowOf(demand, before, after admission.Tokens) Flow {
	return Flow{demand, Split{before, demand - before}, Split{after, demand - after}}
}

func whole(tokens float64) admission.Tokens { return admission.Tokens(math.Round(tokens)) }
