package policy

import (
	"testing"
)

// TestATenantsCapIsItsOwnThenItsTiers: a tenant's cap wins over its tier's, and one whose tier has none is not bounded by that of the
// standard tier.
func TestATenantsCapIsItsOwnThenItsTiers(t *testing.T) {
	t.Parallel()
	tier := func(cap int) Tier { return Tier{Limit: noLimit, MaxRunning: cap} }
	c, err := Policy{
		Tiers:   map[string]Tier{StandardTier: tier(5), "gold": tier(20), "free": tier(0)},
		Tenants: map[string]Tenant{"own": {Tier: "gold", MaxRunning: 7}, "tiers": {Tier: "gold"}, "none": {Tier: "free"}, "plain": {}},
	}.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, of := range c.Caps() {
		got[of.Tenant] = of.MaxRunning
	}
	want := map[string]int{Every: 5, "own": 7, "tiers": 20, "none": MaxMaxRunning}
	for tenant, most := range want {
		if got[tenant] != most {
			t.Errorf("%s has the cap %d, want %d", tenant, got[tenant], most)
		}
	}
	if len(got) != len(want) {
		t.Errorf("caps %v", got)
	}
}
