package producer_test

import (
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
)

// TestACandidateInShadowIsAskedAndRefusesNobody: the tenants that are in are counted by the candidate's limits, others are
// not, nobody is refused by it, and a duplicate takes nothing.
func TestACandidateInShadowIsAskedAndRefusesNobody(t *testing.T) {
	t.Parallel()
	store := open(t, redistest.Shared(t).Client(t))
	day := admission.Limit{Tokens: 1, Per: policy.MaxDedupWindow, Burst: 2}
	strict := policy.Tier{Limit: day, Weights: policy.Default().Tiers[policy.StandardTier].Weights}
	own := policy.Default()
	own.Version = 1
	own.Rollout = &policy.Rollout{ID: "strict", Percent: 50, Shadow: true, Rules: policy.Rules{Tiers: map[string]policy.Tier{policy.StandardTier: strict}}}
	put(t, store, own)
	p := newProducer(t, store, producer.Config{})
	var allowed, refused int64
	for i := range 8 {
		tenant := id("t", i)
		for n := range 5 {
			j := job(tenant)
			j.ID = id("j", n)
			for range 2 {
				if _, err := p.Enqueue(t.Context(), j); err != nil {
					t.Fatal(err)
				}
			}
		}
		if own.Rollout.Has(tenant) {
			allowed, refused = allowed+2, refused+3
		}
	}
	counts, err := store.ShadowCounts(t.Context())
	if err != nil || counts.Allowed != allowed || counts.Refused != [admission.Levels]int64{admission.LevelTenant: refused} || allowed == 0 || allowed == 16 {
		t.Errorf("counted %+v, %v; want %d allowed and %d refused", counts, err, allowed, refused)
	}
	if c := census(t, store); c.Accepted != 40 {
		t.Errorf("%d of 40 jobs entered", c.Accepted)
	}
}

// TestWithoutAShadowNothingIsSentForIt: a call is one command, as before.
func TestWithoutAShadowNothingIsSentForIt(t *testing.T) {
	t.Parallel()
	g := newGateway(t, redistest.Shared(t))
	store := open(t, g.proxy.Client(t))
	put(t, store, policy.Policy{Version: 1})
	p := newProducer(t, store, producer.Config{})
	if _, err := p.Enqueue(t.Context(), job("acme")); err != nil { // It reads the policy, and may load the script.
		t.Fatal(err)
	}
	before := g.proxy.Commands()
	if _, err := p.Enqueue(t.Context(), job("acme")); err != nil {
		t.Fatal(err)
	}
	if n := g.proxy.Commands() - before; n != 1 {
		t.Errorf("a lone Enqueue sent %d commands", n)
	}
}
