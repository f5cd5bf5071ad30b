package rollout

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

var hourAgo = time.Unix(1_800_000_000, 0)

// recorded is a whole minute, so many after hourAgo. Each scope's demand is in jobs of a token.
func recorded(minute int, demand map[admission.Scope]int64) store.Recorded {
	m := store.Recorded{At: hourAgo.Add(time.Duration(minute) * time.Minute), Lasted: time.Minute, Scopes: map[admission.Scope]store.Minute{}}
	for scope, n := range demand {
		m.Scopes[scope] = store.Minute{At: m.At, Allowed: n / 2, Refused: n - n/2, Tokens: admission.Tokens(n)}
	}
	return m
}

// limits is a policy without other limits than these.
func limits(global admission.Limit, tenants, inQueues map[admission.Scope]admission.Limit) policy.Policy {
	p := policy.Unlimited()
	p.Global, p.QueueLimits, p.Tenants = global, inQueues, map[string]policy.Tenant{}
	for tenant, limit := range tenants {
		p.Tenants[string(tenant)] = policy.Tenant{Tier: "basic", Limit: &limit}
	}
	return p
}

func prepare(tb testing.TB, p policy.Policy) *policy.Compiled {
	tb.Helper()
	compiled, err := p.Prepare()
	if err != nil {
		tb.Fatal(err)
	}
	return compiled
}

// TestAHalvedLimitIsForeseenAsByHand: acme asks for 600 in each of two minutes, 400 of it in mail, and bolt, that is not
// recorded, for the rest of 2,000 in all. Now acme has 10 a second and mail there 8; then 5, and all have 24.
func TestAHalvedLimitIsForeseenAsByHand(t *testing.T) {
	t.Parallel()
	mail := map[admission.Scope]admission.Limit{"acme:mail": admission.PerSecond(8).WithBurst(1)}
	before := limits(admission.Limit{}, map[admission.Scope]admission.Limit{"acme": admission.PerSecond(10)}, mail)
	after := limits(admission.PerSecond(24).WithBurst(100), map[admission.Scope]admission.Limit{"acme": admission.PerSecond(5).WithBurst(10)}, mail)
	var hour []store.Recorded
	for _, minute := range []int{3, 4} {
		hour = append(hour, recorded(minute, map[admission.Scope]int64{admission.Global: 2000, "acme": 600, "acme:mail": 400}))
	}
	got := foresee(hour, prepare(t, before), prepare(t, after))
	// mail passes all 400 (8 × 60 = 480), so acme is asked for 600. Before: 600 of 10 + 600, twice. After: 10 + 300, then 300.
	// Of the 2,000 acme's limit then keeps 290 and 300 from the global one, which has 100 + 1,440, then 1,440, for 1,710 and 1,700.
	first, second := 1540.0/1710, 1440.0/1700
	want := map[admission.Scope]Flow{
		admission.Global: flowOf(4000, 4000, 2980),
		"acme":           flowOf(1200, 1200, whole(310*first+300*second)),
		"acme:mail":      flowOf(800, 800, whole(400*310.0/600*first+400*300.0/600*second)),
	}
	if got.Minutes != 2 || got.Coverage != 0.3 || got.All != want[admission.Global] || len(got.Scopes) != len(want) {
		t.Errorf("%+v", got)
	}
	for _, one := range got.Scopes {
		if one.Flow != want[one.Scope] {
			t.Errorf("%s: %+v, by hand %+v", one.Scope, one.Flow, want[one.Scope])
		}
	}
	if got.Scopes[0].Scope != admission.Global || got.Scopes[1].Tier != "basic" || len(got.Tiers) != 1 || got.Tiers["basic"] != want["acme"] {
		t.Errorf("%+v", got)
	}
	tooCostly := limits(admission.Limit{}, map[admission.Scope]admission.Limit{"acme": admission.PerSecond(10).WithBurst(1)}, nil)
	hour[0].Scopes["acme"] = store.Minute{Allowed: 300, Tokens: 600}
	if got := foresee(hour[:1], prepare(t, before), prepare(t, tooCostly)); got.Tiers["basic"].After.Allowed != 0 {
		t.Errorf("jobs of 2 tokens with a burst of 1: %+v", got.Tiers)
	}
}

// TestAForecastIsWhatBucketsSay holds a forecast to the buckets themselves: jobs of a token at even distances.
func TestAForecastIsWhatBucketsSay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		limit := admission.Limit{
			Tokens: admission.Tokens(rapid.IntRange(1, 600).Draw(rt, "tokens")), Per: time.Minute, Burst: admission.Tokens(rapid.IntRange(2, 300).Draw(rt, "burst")),
		}
		slack := 1.0
		switch algorithm := rapid.SampledFrom(policy.Algorithms).Draw(rt, "algorithm"); algorithm {
		case policy.SlidingWindow, policy.SlidingLog:
			var err error
			if limit, err = policy.WindowLimit(algorithm, limit.Burst, rapid.SampledFrom([]string{"10s", "60s", "90s", "5m", "24h"}).Draw(rt, "window"), "", ""); err != nil {
				rt.Fatal(err)
			}
			slack += 500.0/60 + float64(limit.Burst)/30 // What comes in a step, and what goes with one.
		case policy.FixedWindow:
			var err error
			if limit, err = admission.FixedWindow(limit.Burst, rapid.SampledFrom([]string{"60s", "90s", "5m", "24h"}).Draw(rt, "window"), "", ""); err != nil {
				rt.Fatal(err)
			}
		}
		own := limits(admission.Limit{}, map[admission.Scope]admission.Limit{"acme": limit}, nil)
		var hour []store.Recorded
		var set buckets.Set
		allowed := 0
		for minute := range rapid.IntRange(1, 8).Draw(rt, "minutes") {
			jobs := rapid.IntRange(0, 500).Draw(rt, "jobs")
			hour = append(hour, recorded(minute, map[admission.Scope]int64{admission.Global: int64(jobs), "acme": int64(jobs)}))
			for n := range jobs {
				at := hour[minute].At.Add(time.Minute * time.Duration(n) / time.Duration(jobs))
				now := buckets.InstantOf(at)
				path := []buckets.LevelLimit{{Scope: "acme", Limit: buckets.LimitAt(limit, now)}}
				if set.Take(now, 0, path, 1).Decision == admission.Admitted {
					allowed++
				}
			}
		}
		got := foresee(hour, prepare(t, limits(admission.Limit{}, nil, nil)), prepare(t, own)).All
		if off := math.Abs(float64(got.After.Allowed) - float64(allowed)); got.Before.Allowed != got.Demand || off > float64(len(hour))+slack {
			rt.Fatalf("foreseen of %s in %d minutes are %+v, and buckets allow %d", limit.Words(), len(hour), got, allowed)
		}
	})
}

// TestAForecastAddsUp: where all is recorded, what scopes are allowed is together what the one above is, at every level,
// nobody is allowed more than they asked for, and the same policy changes nothing.
func TestAForecastAddsUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		limit := func(name string) admission.Limit {
			return admission.Limit{Tokens: admission.Tokens(rapid.IntRange(1, 900).Draw(rt, name)), Per: time.Minute, Burst: admission.Tokens(rapid.IntRange(1, 90).Draw(rt, name+" burst"))}
		}
		own := limits(limit("global"), map[admission.Scope]admission.Limit{"a": limit("a"), "b": limit("b")}, map[admission.Scope]admission.Limit{"a:m": limit("a:m"), "b:n": limit("b:n")})
		var hour []store.Recorded
		for minute := range rapid.IntRange(1, 5).Draw(rt, "minutes") {
			demand := map[admission.Scope]int64{}
			for _, scope := range []admission.Scope{"a:m", "a:n", "b:m", "b:n"} {
				n := int64(rapid.IntRange(0, 500).Draw(rt, fmt.Sprint(scope, minute)))
				for at, ok := scope, true; ok; at, ok = parent(at) {
					demand[at] += n
				}
			}
			hour = append(hour, recorded(minute, demand))
		}
		compiled := prepare(t, own)
		got := foresee(hour, compiled, compiled)
		sums := map[admission.Scope]admission.Tokens{}
		for _, one := range got.Scopes {
			if one.After != one.Before || one.After.Allowed < 0 || one.After.Allowed > one.Demand {
				rt.Fatalf("%+v", one)
			}
			if above, ok := parent(one.Scope); ok {
				sums[above] += one.After.Allowed
			}
		}
		for _, one := range got.Scopes {
			if sum, ok := sums[one.Scope]; ok && max(sum-one.After.Allowed, one.After.Allowed-sum) > 2 { // Each is rounded.
				rt.Fatalf("%s is allowed %d, those below it %d", one.Scope, one.After.Allowed, sum)
			}
		}
		if got.Coverage != 1 && got.All.Demand > 0 {
			rt.Fatalf("coverage %v", got.Coverage)
		}
	})
}
