package policy

import (
	"testing"
	"time"
)

// TestATenantsCapIsItsOwnThenItsTiers: a tenant's cap wins over its tier's, and one whose tier has none is not bounded by that of the
// standard tier.
func TestATenantsCapIsItsOwnThenItsTiers(t *testing.T) {
	t.Parallel()
	tier := func(most int) Tier { return Tier{Limit: noLimit, MaxRunning: most} }
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

// TestMaxRetryAfter is the downstream's own, or that of any, and from a second to an hour.
func TestMaxRetryAfter(t *testing.T) {
	t.Parallel()
	p, err := Unmarshal([]byte(`{"tiers": {"standard": {"limit": {"enabled": false}}}, "any_downstream": {"max_retry_after": "30s"},
		"downstreams": {"smtp": {"max_retry_after": "5m"}, "sms": {"max_running": 3}}}`))
	if err != nil {
		t.Fatal(err)
	}
	c, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]time.Duration{"smtp": 5 * time.Minute, "sms": 30 * time.Second, "push": 30 * time.Second} {
		if got := c.MaxRetryAfter(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	for d, want := range map[time.Duration]string{
		time.Millisecond: "invalid downstreams.smtp.max_retry_after 1ms: allowed is 1s to 1h", 2 * time.Hour: "invalid downstreams.smtp.max_retry_after 2h: allowed is 1s to 1h",
	} {
		p.Downstreams["smtp"] = Downstream{MaxRetryAfter: d}
		if err := p.Validate(); err == nil || err.Error() != want {
			t.Errorf("got %v", err)
		}
	}
	if err := (Policy{AnyDownstream: Downstream{MaxRetryAfter: -1}}).Validate(); err == nil {
		t.Error("a time below zero")
	}
}
