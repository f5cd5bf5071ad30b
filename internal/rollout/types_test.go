package rollout

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// TestALimitOfATypeIsForeseenAsByHand: acme asks for 600 in mail, 300 of them of type report, and 200 of class low. Its reports had 10 a second, and are to have one.
func TestALimitOfATypeIsForeseenAsByHand(t *testing.T) {
	t.Parallel()
	of := func(second admission.Tokens) policy.Policy {
		p := limits(admission.Limit{}, nil, nil)
		p.Tenants["acme"] = policy.Tenant{Tier: "basic", Queues: map[string]policy.TenantQueue{"mail": {TypeLimits: map[string]admission.Limit{"report": admission.PerSecond(second).WithBurst(1)}}}}
		return p
	}
	hour := []store.Recorded{recorded(3, map[admission.Scope]int64{admission.Global: 1000, "acme": 700, "acme:mail": 600, "acme:mail:low": 200, "acme:mail:type=report": 300})}
	before, after := of(10), of(1)
	// Of 300 reports 1 + 60 pass in a minute: 239 of the 600 in mail are refused, and as large a part of those of class low.
	equal(t, allowedOf(foresee(hour, prepare(t, before), prepare(t, after))), map[admission.Scope][2]admission.Tokens{
		admission.Global: {1000, 761}, "acme": {700, 461}, "acme:mail": {600, 361}, "acme:mail:low": {200, whole(200 * 361.0 / 600)}, "acme:mail:type=report": {300, 61},
	})
	// What class low may have is taken evenly from the types: 61 of 200 × 361/600, so 59.33 more are refused.
	after.PriorityLimits = map[admission.Scope]admission.Limit{"acme:mail:low": admission.PerSecond(1).WithBurst(1)}
	left := 361 - (200*361.0/600 - 61)
	equal(t, allowedOf(foresee(hour, prepare(t, before), prepare(t, after))), map[admission.Scope][2]admission.Tokens{
		admission.Global: {1000, whole(400 + left)}, "acme": {700, whole(100 + left)}, "acme:mail": {600, whole(left)}, "acme:mail:low": {200, 61}, "acme:mail:type=report": {300, whole(61 * left / 361)},
	})
}

// TestAForecastWithTypesAddsUp: where all classes are recorded they are together what their queue is allowed, also where types are limited beside them, no type is
// allowed more than its limit lets through, and limits of types that are never short change nothing.
func TestAForecastWithTypesAddsUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		limit := func(name string) admission.Limit {
			return admission.PerMinute(admission.Tokens(rapid.IntRange(1, 900).Draw(rt, name))).WithBurst(admission.Tokens(rapid.IntRange(1, 90).Draw(rt, name+" burst")))
		}
		own := limits(limit("global"), map[admission.Scope]admission.Limit{"a": limit("a")}, map[admission.Scope]admission.Limit{"a:m": limit("a:m")})
		own.PriorityLimits = map[admission.Scope]admission.Limit{"a:m:high": limit("high")}
		without := own
		types := map[string]admission.Limit{"x": limit("x"), policy.Every: limit("any")}
		ample := map[string]admission.Limit{policy.Every: admission.PerSecond(100_000)}
		with := func(types map[string]admission.Limit) policy.Policy {
			p := own
			p.Tenants = map[string]policy.Tenant{"a": {Tier: "basic", Limit: own.Tenants["a"].Limit, Queues: map[string]policy.TenantQueue{"m": {TypeLimits: types}}}}
			return p
		}
		var hour []store.Recorded
		for minute := range rapid.IntRange(1, 4).Draw(rt, "minutes") {
			demand := map[admission.Scope]int64{}
			for _, class := range []string{"high", "low"} {
				for _, jobType := range []string{"x", "y"} {
					n := int64(rapid.IntRange(0, 500).Draw(rt, fmt.Sprint(class, jobType, minute)))
					for _, scope := range []admission.Scope{admission.Global, "a", "a:m", admission.Scope("a:m:" + class), admission.Scope("a:m:type=" + jobType)} {
						demand[scope] += n
					}
				}
			}
			hour = append(hour, recorded(minute, demand))
		}
		limited := with(types)
		got := foresee(hour, prepare(t, without), prepare(t, limited))
		flows, classes := map[admission.Scope]Flow{}, admission.Tokens(0)
		for _, one := range got.Scopes {
			flows[one.Scope] = one.Flow
			if one.After.Allowed < 0 || one.After.Allowed > one.Demand {
				rt.Fatalf("%+v", one)
			}
			if tenant, queue, class, _ := one.Scope.Parts(); tenant != "" && queue != "" && class != "" && !isOfType(one.Scope) {
				classes += one.After.Allowed
			}
			if jobType, ofType := jobTypeOf(one.Scope).JobType(); ofType {
				named, is := types[jobType]
				if !is {
					named = types[policy.Every]
				}
				if most := float64(named.Burst) + float64(len(hour))*float64(named.Tokens); float64(one.After.Allowed) > math.Ceil(most) {
					rt.Fatalf("%s is allowed %d, its limit lets %v through", one.Scope, one.After.Allowed, most)
				}
			}
		}
		if queue := flows["a:m"].After.Allowed; max(queue-classes, classes-queue) > 2 { // Each is rounded.
			rt.Fatalf("mail is allowed %d, its classes %d", queue, classes)
		}
		never := with(ample)
		for _, one := range foresee(hour, prepare(t, without), prepare(t, never)).Scopes {
			if one.After != one.Before {
				rt.Fatalf("limits that are never short change %+v", one)
			}
		}
	})
}

func jobTypeOf(scope admission.Scope) admission.Priority {
	_, _, class, _ := scope.Parts()
	return class
}

// TestADryRunForeseesLimitsOfTypesOfARecord of a tenant, in the store's own counts.
func TestADryRunForeseesLimitsOfTypesOfARecord(t *testing.T) {
	t.Parallel()
	s, _ := recordedOf(t, 1)
	typed := func(burst int64) policy.OwnLimits {
		return policy.OwnLimits{Queues: map[string]policy.EachTenant{"mail": {TypeLimits: map[string]admission.Limit{"report": few(burst)}}}}
	}
	var counts []store.ScopeCount
	for _, scope := range []admission.Scope{"bolt:mail", "bolt:mail:low", "bolt:mail:type=report"} {
		counts = append(counts, store.ScopeCount{Scope: scope, Refused: 50, Tokens: 50})
	}
	if _, err := s.Count(t.Context(), counts); err != nil {
		t.Fatal(err)
	}
	would, f, err := TryRecord(t.Context(), s, "bolt", Edit{Expected: AnyVersion}, func(policy.OwnLimits) (policy.OwnLimits, error) { return typed(20), nil })
	if err != nil || len(would.Changes) != 3 {
		t.Fatalf("%+v, %v", would, err)
	}
	if got := allowedOf(f)["bolt:mail:type=report"]; got != [2]admission.Tokens{5, 2} { // Of all that bolt asks for its own limit lets a tenth through.
		t.Errorf("of 50 reports %v are allowed, want 5, and then 2 of the 20 that the type's limit lets through", got)
	}
}
