package rollout

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// inMail is a policy of one limit of each tenant in mail, and of each of tier basic there.
func inMail(each, basic admission.Limit) policy.Policy {
	p := policy.Unlimited()
	p.Queues = map[string]policy.Queue{"mail": {EachTenant: policy.EachTenant{Limit: each}}}
	tier := p.Tiers["basic"]
	tier.Queues = map[string]policy.TierQueue{"mail": {Limit: basic}}
	p.Tiers["basic"] = tier
	p.Tenants = map[string]policy.Tenant{"tin": {Tier: "basic"}}
	return p
}

// TestAForecastGoesByWhatEachTenantHas: of three tenants that ask for 600 in a minute each, two of which nobody named.
func TestAForecastGoesByWhatEachTenantHas(t *testing.T) {
	t.Parallel()
	before, after := inMail(admission.PerSecond(5).WithBurst(10), admission.PerSecond(2).WithBurst(10)), inMail(admission.PerSecond(8).WithBurst(10), admission.PerSecond(2).WithBurst(10))
	demand := map[admission.Scope]int64{admission.Global: 1800}
	for _, tenant := range []admission.Scope{"acme", "bolt", "tin"} {
		demand[tenant], demand[tenant+":mail"] = 600, 600
	}
	got := foresee([]store.Recorded{recorded(3, demand)}, prepare(t, before), prepare(t, after))
	want := map[admission.Scope]Flow{"acme:mail": flowOf(600, 310, 490), "bolt:mail": flowOf(600, 310, 490), "tin:mail": flowOf(600, 130, 130)}
	for _, one := range got.Scopes {
		if flow, is := want[one.Scope]; is && one.Flow != flow {
			t.Errorf("%s: %+v, by hand %+v", one.Scope, one.Flow, flow)
		}
	}
	if got.Tiers["standard"] != flowOf(1200, 620, 980) || got.Tiers["basic"] != flowOf(600, 130, 130) {
		t.Errorf("%+v", got.Tiers)
	}
}

// TestADryRunNamesTheOneEntryThatDiffers, and the edit is known to be one of buckets, so that a lowered rate forgets none of them.
func TestADryRunNamesTheOneEntryThatDiffers(t *testing.T) {
	t.Parallel()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	bound := func(p policy.Policy) policy.Policy {
		tier := p.Tiers["basic"]
		tier.Queues = map[string]policy.TierQueue{"mail": {Limit: tier.Queues["mail"].Limit, Overflow: policy.Overflow{Policy: policy.Reject, MaxJobs: 5}}}
		p.Tiers["basic"] = tier
		return p
	}
	fast, slow := admission.PerSecond(50), admission.Limit{Tokens: 1, Per: time.Hour, Burst: 50}
	base := inMail(fast, fast)
	if _, err := Put(t.Context(), s, base, Edit{Expected: AnyVersion}); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		next policy.Policy
		same bool
		want []string
	}{
		"each tenant's rate": {inMail(slow, fast), false, []string{"/queues/mail/each_tenant/limit/per", "/queues/mail/each_tenant/limit/tokens"}},
		"a tier's rate":      {inMail(fast, slow), false, []string{"/tiers/basic/queues/mail/limit/per", "/tiers/basic/queues/mail/limit/tokens"}},
		"a tier's bound":     {bound(inMail(fast, fast)), true, []string{"/tiers/basic/queues/mail/overflow/max_jobs", "/tiers/basic/queues/mail/overflow/policy"}},
	} {
		done, err := DryRun(t.Context(), s, row.next)
		if err != nil {
			t.Fatal(err)
		}
		paths := make([]string, len(done.Changes))
		for i, c := range done.Changes {
			paths[i] = c.Path
		}
		if !slices.Equal(paths, row.want) {
			t.Errorf("%s: %q changes, want %q", name, paths, row.want)
		}
		if got := sameBuckets(done.Changes); got != row.same {
			t.Errorf("%s: buckets stay as they are: %t, want %t", name, got, row.same)
		}
	}
	if now, err := Current(context.WithoutCancel(t.Context()), s); err != nil || now.Version != 1 {
		t.Errorf("version %d is in force after dry runs, %v", now.Version, err)
	}
}

// TestAnUpdateHasTheBoundsOfTiers: with the queue's settings and with *:*, the tiers of named tenants where they matter, and settings of
// queues nobody named.
func TestAnUpdateHasTheBoundsOfTiers(t *testing.T) {
	t.Parallel()
	reject := func(jobs int) policy.Overflow { return policy.Overflow{Policy: policy.Reject, MaxJobs: jobs} }
	p := policy.Unlimited()
	for tier, in := range map[string]map[string]policy.TierQueue{
		"basic": {"mail": {Overflow: reject(2)}, "sms": {Overflow: policy.Overflow{Policy: policy.NoBound}}}, "premium": {policy.Every: {Overflow: reject(9)}},
	} {
		of := p.Tiers[tier]
		of.Queues = in
		p.Tiers[tier] = of
	}
	plain := p.Tiers["basic"]
	plain.Overflow = reject(3)
	p.Tiers["basic"] = plain
	p.Queues = map[string]policy.Queue{"mail": {Overflow: reject(5)}, policy.Every: {MaxWait: time.Hour, Overflow: reject(7)}}
	p.Tenants = map[string]policy.Tenant{"tin": {Tier: "basic"}, "gold": {Tier: "premium"}, "plain": {MaxRunning: 3}}
	p.MaxRunning = map[admission.Scope]int{"other:mail": 3}
	update, err := newUpdate(0, p, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := update.Tiers; len(got) != 2 || got["tin"] != "basic" || got["gold"] != "premium" {
		t.Errorf("the tiers are %v", got)
	}
	in := map[string]store.QueueSettings{}
	for _, q := range update.Queues {
		in[q.Queue] = q
	}
	each, over := store.TenantOverflow{}, store.TenantOverflow{}
	for _, o := range update.Overflows {
		if o.Queue == "" {
			over = o
		} else {
			each = o
		}
	}
	jobs := func(o store.Overflow, tiers map[string]store.Overflow) [3]int {
		return [3]int{o.MaxJobs, tiers["basic"].MaxJobs, tiers["premium"].MaxJobs}
	}
	if got := jobs(in["mail"].Overflow, in["mail"].Tiers); got != [3]int{5, 2, 0} {
		t.Errorf("in mail %v", got)
	}
	// premium's own of every queue goes before that of queues nobody named, and basic has none in sms.
	if got := jobs(in["sms"].Overflow, in["sms"].Tiers); got != [3]int{7, 0, 9} || in["sms"].Tiers["basic"].Policy != store.NoBound {
		t.Errorf("in sms %v: %+v", got, in["sms"])
	}
	if got := jobs(over.Overflow, over.Tiers); over.Tenant != store.Every || got != [3]int{0, 3, 0} {
		t.Errorf("over all queues %v: %+v", got, over)
	}
	if got := jobs(each.Overflow, each.Tiers); len(update.Overflows) != 2 || got != [3]int{7, 0, 9} {
		t.Errorf("in others %v: %+v", got, update.Overflows)
	}
	if every := in[store.Every]; every.MaxWait != time.Hour || every.Overflow.Policy != "" || in["sms"].MaxWait != time.Hour || in["mail"].MaxWait != 0 || len(in) != 3 {
		t.Errorf("%+v", in)
	}
}
