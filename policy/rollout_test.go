package policy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// TestTheShareOfARolloutIsWhatItSays: of 10,000 tenants, whatever they are called, within two in a hundred are in.
func TestTheShareOfARolloutIsWhatItSays(t *testing.T) {
	t.Parallel()
	const tenants = 10_000
	for _, pattern := range []string{"%d", "tenant-%05d", "%x.example.com", "%[1]d@%[1]d", "org/%b"} {
		var names [tenants]string
		for i := range names {
			names[i] = fmt.Sprintf(pattern, i)
		}
		for _, id := range []string{"a", "b", "2026-11-21", "raise-basic"} {
			for percent := 0; percent <= MaxPercent; percent += 5 {
				r, in := &Rollout{ID: id, Percent: percent}, 0
				for _, name := range names {
					if r.Has(name) {
						in++
					}
				}
				if off := math.Abs(float64(in)/tenants*100 - float64(percent)); off > 2 || percent%MaxPercent == 0 && off != 0 {
					t.Errorf("%s of %s at %d %%: %d of %d are in", pattern, id, percent, in, tenants)
				}
			}
		}
	}
}

// TestATenantThatIsInStaysIn while the share grows, and two roll-outs choose independently.
func TestATenantThatIsInStaysIn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id, tenant := rapid.StringMatching(`[a-z0-9-]{1,20}`).Draw(t, "id"), rapid.StringMatching(`[A-Za-z0-9._@/-]{1,40}`).Draw(t, "tenant")
		in := 0
		for percent := range MaxPercent + 1 {
			if (&Rollout{ID: id, Percent: percent}).Has(tenant) {
				in++
			} else if in > 0 {
				t.Fatalf("%s was in below %d %% of %s", tenant, percent, id)
			}
		}
		if in == 0 || in > MaxPercent {
			t.Fatalf("%s is in at %d shares of %d", tenant, in, MaxPercent+1)
		}
	})
	both := 0
	for i := range 10_000 {
		tenant := fmt.Sprintf("t%d", i)
		if (&Rollout{ID: "a", Percent: 50}).Has(tenant) && (&Rollout{ID: "b", Percent: 50}).Has(tenant) {
			both++
		}
	}
	if both < 2300 || both > 2700 {
		t.Errorf("%d of 10,000 are in two halves, want a quarter", both)
	}
}

// TestTheChoiceOfTenantsNeverChanges pins who is in: with another hash tenants would change sides at an upgrade.
func TestTheChoiceOfTenantsNeverChanges(t *testing.T) {
	t.Parallel()
	var in []string
	for i := range 40 {
		if tenant := fmt.Sprintf("tenant-%d", i); (&Rollout{ID: "raise", Percent: 20}).Has(tenant) {
			in = append(in, tenant)
		}
	}
	if got := strings.Join(in, " "); got != pinned {
		t.Errorf("in are %s", got)
	}
}

const pinned = "tenant-3 tenant-20 tenant-30 tenant-34 tenant-35 tenant-38 tenant-39"

// TestWhatRedisIsToldFollowsTheChoice: weights, caps and bounds of each tenant are those of its side, and promoting is
// what everybody being in is, abandoning what nobody.
func TestWhatRedisIsToldFollowsTheChoice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := drawPolicy(t)
		if p.Rollout == nil {
			p.Rollout = drawRollout(t, &p)
		}
		told := toldOf(t, p)
		for tenant, got := range told {
			if want := toldOf(t, sideOf(p, tenant))[tenant]; !slices.Equal(got, want) {
				t.Fatalf("of %s (in: %t) Redis is told %q, want %q", tenant, p.Rollout.Has(tenant), got, want)
			}
		}
		all, none := p, p
		all.Rollout, none.Rollout = new(*p.Rollout), new(*p.Rollout)
		all.Rollout.Percent, none.Rollout.Percent = MaxPercent, 0
		abandoned := p
		abandoned.Rollout = nil
		for _, same := range [][2]Policy{{all, p.Promoted()}, {none, abandoned}} {
			if a, b := toldOf(t, same[0]), toldOf(t, same[1]); !maps.EqualFunc(a, b, slices.Equal) {
				t.Fatalf("%q and %q", a, b)
			}
			for _, tenant := range append([]string{"stranger"}, someTenants...) {
				a, b := prepared(t, same[0]), prepared(t, same[1])
				if a.LimitsFor(tenant, "mail", admission.High) != b.LimitsFor(tenant, "mail", admission.High) {
					t.Fatalf("limits of %s differ", tenant)
				}
			}
		}
	})
}

func prepared(t *rapid.T, p Policy) *Compiled {
	c, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// toldOf returns what Redis is told of single tenants.
func toldOf(t *rapid.T, p Policy) map[string][]string {
	c, told := prepared(t, p), map[string][]string{}
	add := func(tenant, format string, args ...any) {
		told[tenant] = append(told[tenant], fmt.Sprintf(format, args...))
	}
	for share, weight := range c.ConfiguredWeights() {
		add(share.Tenant, "weight %s %d", share.Class, weight)
	}
	for _, limit := range c.Caps() {
		if limit.Tenant != "" && limit.Tenant != Every {
			add(limit.Tenant, "cap %s %d", limit.Queue, limit.MaxRunning)
		}
	}
	for _, rate := range c.DispatchRates() {
		add(rate.Tenant, "rate %v", rate.Limit)
	}
	for _, scope := range sortedKeys(c.Overflows()) {
		tenant, _, _ := strings.Cut(string(scope), ":")
		add(tenant, "bound %s %v", scope, c.Overflows()[scope])
	}
	delete(told, "") // Rates of downstreams.
	return told
}

func TestARolloutThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"rollout":{"id":"","percent":5,"rules":{"tiers":{"gold":{}}}}}`:                                                                             "rollout.id",
		`{"rollout":{"id":"a","percent":101,"rules":{"tenants":{"acme":{}}}}}`:                                                                        "invalid rollout.percent 101: allowed is 0 to 100",
		`{"rollout":{"id":"a","percent":5,"rules":{}}}`:                                                                                               "invalid rollout.rules none",
		`{"rollout":{"id":"a","percent":5,"rules":{"tenants":{"acme":{"tier":"gold"}}}}}`:                                                             "rollout.rules: invalid tenants.acme.tier",
		`{"rollout":{"id":"a","percent":5,"rules":{"queue_limits":{"acme:m":{"per":"x"}}}}}`:                                                          "rollout.rules.queue_limits.acme:m.per",
		`{"rollout":{"id":"a","percent":5,"rules":{"global":{}}}}`:                                                                                    "global",
		`{"rollout":{"id":"a","percent":5,"rules":{"tiers":{"standard":{"limit":{"tokens":1,"per":"1s","burst":1}}}}}}`:                               "rollout.rules.tiers.standard.priority_weights.high 1: allowed is 2",
		`{"rollout":{"id":"a","percent":5,"rules":{"tiers":{"standard":{"limit":{"enabled":false},"max_running":3,"priority_weights":{"high":2}}}}}}`: "rollout.rules.tiers.standard.max_running 3: allowed is 0",
	} {
		if _, err := Unmarshal([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
