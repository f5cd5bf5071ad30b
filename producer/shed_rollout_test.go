package producer_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
)

// shedTenants is how many send a job of each class.
const shedTenants = 16

func shedTenant(n int) string { return fmt.Sprint("t", n) }

// shedByTier sheds low jobs of tenants of the tier standard at HIGH, and those of all at CRITICAL. All tenants are standard; a candidate, with a share or in
// shadow, has them premium.
func shedByTier(percent int, shadow bool) policy.Policy {
	off := policy.Tier{Limit: admission.Limit{Disabled: true}}
	p := policy.Policy{
		Tiers: map[string]policy.Tier{policy.StandardTier: off, "premium": off}, Tenants: map[string]policy.Tenant{},
		Queues: map[string]policy.Queue{"mail": {Pressure: &policy.PressureRules{MaxDepth: 9}}},
		Shedding: &policy.Shedding{
			Order: []admission.Priority{"low"}, Reserve: []admission.Priority{"high", "medium"}, Tiers: []string{policy.StandardTier, "premium"},
			At: map[string][]string{"HIGH": {"low:standard"}, "CRITICAL": {"low"}},
		},
		Rollout: &policy.Rollout{ID: "dearer", Percent: percent, Shadow: shadow, Rules: policy.Rules{Tenants: map[string]policy.Tenant{}}},
	}
	for n := range shedTenants {
		p.Tenants[shedTenant(n)] = policy.Tenant{Tier: policy.StandardTier, Limit: &admission.Limit{Tokens: 100, Per: policy.MaxDedupWindow, Burst: 100}}
		p.Rollout.Rules.Tenants[shedTenant(n)] = policy.Tenant{Tier: "premium", Limit: &admission.Limit{Tokens: 100, Per: policy.MaxDedupWindow, Burst: 1}}
	}
	return p
}

// TestSheddingGoesByTheSideOfARollout: who is in a roll-out is shed by the tier that the candidate gives, all others by their own; of a candidate in shadow
// nobody is, and it is asked nothing of jobs that were shed. What a dry run takes for the demand of the last hour has none of those either.
func TestSheddingGoesByTheSideOfARollout(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		percent int
		shadow  bool
	}{{0, false}, {50, false}, {100, false}, {50, true}, {100, true}} {
		t.Run(fmt.Sprintf("%d %%, shadow %t", row.percent, row.shadow), func(t *testing.T) {
			t.Parallel()
			document := shedByTier(row.percent, row.shadow)
			s, press := openPressedBy(t, document)
			p := newProducer(t, s, producer.Config{})
			let, limited := 0, 0
			for _, level := range []admission.PressureLevel{admission.PressureMedium, admission.PressureHigh, admission.PressureCritical} {
				press(level)
				for n := range shedTenants {
					in, not := shedAt(t, p, &document, n, level)
					let, limited = let+in, limited+not
				}
			}
			if c := census(t, s); c.Accepted != int64(let)+1 { // openPressedBy has one in.
				t.Errorf("%d jobs are in, want %d", c.Accepted, let+1)
			}
			if demand := demandOf(t, p, s, document); demand != admission.Tokens(let+limited) {
				t.Errorf("a dry run goes by a demand of %d, %d jobs are in and %d were refused by a limit", demand, let, limited)
			}
			checkShadow(t, s, &document)
		})
	}
}

// shedAt sends a tenant's low and high job at a level, and returns how many are in, and how many a limit has refused.
func shedAt(t *testing.T, p *producer.Producer, document *policy.Policy, n int, level admission.PressureLevel) (let, limited int) {
	t.Helper()
	tier, from := policy.StandardTier, admission.PressureHigh
	if !document.Rollout.Shadow && document.Rollout.Has(shedTenant(n)) {
		tier, from = "premium", admission.PressureCritical
	}
	for _, class := range []admission.Priority{"high", "low"} {
		j := job(shedTenant(n))
		j.Priority, j.ID = class, fmt.Sprint(class, level) // With an ID of its own it goes to Redis, which knows the level.
		v, err := p.Enqueue(t.Context(), j)
		switch {
		case err == nil:
			let++
			if class == "low" && level >= from {
				t.Errorf("%s, %s: a low job is let in at %s", j.Tenant, tier, level)
			}
		case errors.Is(err, admission.ErrShed) && class == "low" && level >= from:
			if v.Detail != tier || v.Pressure.Level != level {
				t.Errorf("%s, %s: told %+v at %s", j.Tenant, tier, v, level)
			}
		case tier == "premium" && errors.Is(err, admission.ErrLimited): // The candidate lets one job of each in.
			limited++
		default:
			t.Errorf("%s, %s: %s job at %s: %+v, %v", j.Tenant, tier, class, level, v, err)
		}
	}
	return let, limited
}

// demandOf is the demand of those who send, in the last hour, by which a dry run goes.
func demandOf(t *testing.T, p *producer.Producer, s store.Deployment, document policy.Policy) (sum admission.Tokens) {
	t.Helper()
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen, err := rollout.Foresee(t.Context(), s, document)
	if err != nil {
		t.Fatal(err)
	}
	for n := range shedTenants {
		for _, scope := range seen.Scopes {
			if scope.Scope == admission.Scope(shedTenant(n)) {
				sum += scope.Demand
			}
		}
	}
	return sum
}

// checkShadow asserts that a candidate in shadow was asked of the jobs that are in alone.
func checkShadow(t *testing.T, s store.Deployment, document *policy.Policy) {
	t.Helper()
	if !document.Rollout.Shadow {
		return
	}
	in, acme := int64(0), int64(0)
	if document.Rollout.Has("acme") { // whose job openPressedBy has in
		acme = 1
	}
	for n := range shedTenants {
		if document.Rollout.Has(shedTenant(n)) {
			in++
		}
	}
	counts, err := s.ShadowCounts(t.Context())
	// Three high jobs and one low one of each, of which its bucket takes one.
	if want := [admission.Levels]int64{admission.LevelTenant: 3 * in}; err != nil || counts.Allowed != in+acme || counts.Refused != want {
		t.Errorf("in shadow %+v, %v, want %d allowed and %v refused", counts, err, in+acme, want)
	}
}
