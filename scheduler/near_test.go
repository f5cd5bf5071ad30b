package scheduler_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// nearBy has a policy in force in a deployment of its own, of three partitions, and returns what looks at its limits.
func nearBy(t *testing.T, change func(*policy.Policy)) (store.Deployment, *scheduler.Near) {
	t.Helper()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	p := policy.Unlimited()
	p.Anomalies, p.TenantRecords = &policy.AnomalyRules{WarnAt: 0.8}, true
	change(&p)
	if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	return s, scheduler.NewNear(inForce(t, s))
}

// inForce is the policy in force, which knows no records of tenants.
func inForce(t *testing.T, s store.Deployment) *policy.Compiled {
	t.Helper()
	text, err := s.Policy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := policy.PrepareStored(text)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// take takes tokens of a tenant, and reports whether there were enough.
func take(t *testing.T, s store.Deployment, by *policy.Compiled, tenant string, cost admission.Tokens) bool {
	t.Helper()
	if err := store.LearnRecord(t.Context(), s, by, tenant); err != nil {
		t.Fatal(err)
	}
	q := store.Question{Tenant: tenant, Cost: cost}
	q.Limits, q.Record = by.WayFor(tenant, "", "")
	granted, _, err := s.Check(t.Context(), by.Version(), false, []store.Question{q})
	if err != nil {
		t.Fatal(err)
	}
	return granted
}

// told is what a look finds, each with its part in hundredths.
func told(t *testing.T, s store.Deployment, n *scheduler.Near, counted map[admission.Scope]store.Minute) string {
	t.Helper()
	found, err := n.Look(t.Context(), s, counted)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestWhoIsNearALimit: by its bucket where that is slow, its own record and its scale heeded, over all partitions of the deployment's; by what was
// admitted in a minute where it is fast.
func TestWhoIsNearALimit(t *testing.T) {
	t.Parallel()
	daily := admission.Limit{Tokens: 1000, Per: 24 * time.Hour, Burst: 1000}
	s, n := nearBy(t, func(p *policy.Policy) {
		p.Global = admission.Limit{Tokens: 6000, Per: 24 * time.Hour, Burst: 6000}
		p.Tenants = map[string]policy.Tenant{}
		for _, tenant := range []string{"much", "some", "scaled", "own"} {
			p.Tenants[tenant] = policy.Tenant{Limit: &daily}
		}
		fast := admission.PerSecond(10)
		for _, tenant := range []string{"quick", "refused"} {
			p.Tenants[tenant] = policy.Tenant{Limit: &fast}
		}
	})
	small := admission.Limit{Tokens: 200, Per: 24 * time.Hour, Burst: 200}
	_, err := rollout.EditRecord(t.Context(), s, func(ctx context.Context) (rollout.Rules, error) { return rollout.ReadRules(ctx, s) }, "own",
		rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}, func(policy.OwnLimits) (policy.OwnLimits, error) { return policy.OwnLimits{Limit: &small}, nil })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ScaleLimits(t.Context(), store.TenantGate("scaled"), 0.5, time.Hour, store.Intervention{Author: "ada", Reason: "test"}); err != nil {
		t.Fatal(err)
	}
	by := inForce(t, s)
	for tenant, cost := range map[string]admission.Tokens{"much": 850, "some": 700, "scaled": 420, "own": 180} {
		if !take(t, s, by, tenant, cost) {
			t.Fatalf("%s has too little", tenant)
		}
	}
	counted := map[admission.Scope]store.Minute{
		admission.Global: {Allowed: 10}, "much": {Allowed: 1}, "some": {Allowed: 1}, "scaled": {Allowed: 1}, "own": {Allowed: 1}, "free": {Allowed: 9000, Tokens: 9000},
		"quick": {Allowed: 540, Tokens: 540}, "refused": {Allowed: 300, Refused: 300, Tokens: 600}, "+ip:10.0.0.1": {Allowed: 1000, Tokens: 1000},
	}
	if got, want := told(t, s, n, counted), "much 85, own 90, quick 90, scaled 84"; got != want {
		t.Errorf("near are %s, want %s", got, want)
	}
	for i, taken := 0, 0; taken < 2700; i++ { // Then 4,850 of 6,000 are gone, of each partition a part.
		if take(t, s, by, fmt.Sprint("other", i), 50) {
			taken += 50
		}
	}
	if got, want := told(t, s, n, counted), "global 81, much 85, own 90, quick 90, scaled 84"; got != want {
		t.Errorf("near are %s, want %s", got, want)
	}
}

// TestALimitIsNearUntilWellBelow what is told, also in a minute in which nothing was decided.
func TestALimitIsNearUntilWellBelow(t *testing.T) {
	t.Parallel()
	s, n := nearBy(t, func(p *policy.Policy) {
		daily, fast := admission.Limit{Tokens: 1000, Per: 24 * time.Hour, Burst: 1000}, admission.PerSecond(10)
		p.Tenants = map[string]policy.Tenant{"slow": {Limit: &daily}, "quick": {Limit: &fast}}
	})
	take(t, s, inForce(t, s), "slow", 900)
	for _, step := range []struct {
		tokens admission.Tokens
		slow   bool
		want   string
	}{
		{450, false, ""}, {480, true, "quick 80, slow 90"}, {440, false, "quick 73, slow 90"}, {430, false, "slow 90"}, {470, false, "slow 90"}, {600, false, "quick 100, slow 90"},
	} {
		counted := map[admission.Scope]store.Minute{"quick": {Allowed: int64(step.tokens), Tokens: step.tokens}}
		if step.slow {
			counted["slow"] = store.Minute{Allowed: 1, Tokens: 900}
		}
		if got := told(t, s, n, counted); got != step.want {
			t.Errorf("with %d in the minute %q are near, want %q", step.tokens, got, step.want)
		}
	}
	if got := told(t, s, n, nil); got != "slow 90" {
		t.Errorf("of a minute of nothing %q", got)
	}
}

// TestATypeIsNearItsLimit as a class is: by its own bucket, beside which those above have plenty.
func TestATypeIsNearItsLimit(t *testing.T) {
	t.Parallel()
	daily := admission.Limit{Tokens: 1000, Per: 24 * time.Hour, Burst: 1000}
	s, n := nearBy(t, func(p *policy.Policy) {
		p.Tenants = map[string]policy.Tenant{"acme": {Queues: map[string]policy.TenantQueue{"mail": {TypeLimits: map[string]admission.Limit{"report": daily, "send": daily}}}}}
	})
	by := inForce(t, s)
	for jobType, cost := range map[string]admission.Tokens{"report": 900, "send": 700} {
		q := store.Question{Tenant: "acme", Queue: "mail", Class: admission.High, Cost: cost}
		limits, ofType, record := by.WayOfType("acme", "mail", admission.High, jobType)
		q.Limits, q.Record, q.TypeLimit = limits, record, store.TypeLimitOf(jobType, ofType)
		if granted, _, err := s.Check(t.Context(), by.Version(), false, []store.Question{q}); err != nil || !granted {
			t.Fatalf("%v of type %s: %v", granted, jobType, err)
		}
	}
	counted := map[admission.Scope]store.Minute{}
	for _, scope := range []admission.Scope{"acme", "acme:mail", "acme:mail:high", "acme:mail:type=report", "acme:mail:type=send", "acme:mail:type=other"} {
		counted[scope] = store.Minute{Allowed: 1}
	}
	if got := told(t, s, n, counted); got != "acme:mail:type=report 90" {
		t.Errorf("near are %s", got)
	}
}

// TestWhichValuesAreNearTheirLimits: values of dimensions, by their buckets or by the minute, over the partitions that have them; the bucket that values share, of which each
// partition has one; a tier's and a key's own limit heeded. One without room for a bucket is not near by that of others.
func TestWhichValuesAreNearTheirLimits(t *testing.T) {
	t.Parallel()
	daily, fast := admission.Limit{Tokens: 100, Per: 24 * time.Hour, Burst: 100}, admission.PerSecond(10)
	s, n := nearBy(t, func(p *policy.Policy) {
		p.Dimensions = map[string]policy.DimensionRules{
			"user": {Limit: daily, Keys: map[string]admission.Limit{"root": {Tokens: 10, Per: 24 * time.Hour, Burst: 10}}}, "route": {Limit: fast}, "one": {Limit: daily, MaxKeys: 1}, "seen": {},
		}
	})
	by := inForce(t, s)
	ask := func(name, value string, cost admission.Tokens) bool {
		t.Helper()
		owner, key, err := by.Dimension(name, value, "")
		if err != nil {
			t.Fatal(err)
		}
		q := store.Question{Tenant: owner, Queue: key, Cost: cost, Record: by.RecordVersion(owner)}
		q.Limits, q.MaxKeys, _ = by.DimensionLimits(owner, key)
		granted, _, err := s.Check(t.Context(), by.Version(), false, []store.Question{q})
		if err != nil {
			t.Fatal(err)
		}
		return granted
	}
	take := func(name, value string, cost admission.Tokens) {
		t.Helper()
		if !ask(name, value, cost) {
			t.Fatalf("%s %s has too little", name, value)
		}
	}
	counted, one := map[admission.Scope]store.Minute{}, store.Minute{Allowed: 1, Tokens: 1}
	for i := range 9 { // Of all partitions.
		value := fmt.Sprint("u", i)
		take("user", value, admission.Tokens(10*(i+1)+1))
		counted[admission.Scope("+user:"+value)] = one
	}
	take("user", "root", 9)
	for _, scope := range []admission.Scope{"+user:root", "+user:nobody", "+seen:x", "+gone:x", "+one"} {
		counted[scope] = one
	}
	counted["+route:quick"], counted["+route:calm"] = store.Minute{Allowed: 540, Tokens: 540}, store.Minute{Allowed: 300, Tokens: 300}
	counted["+route"] = store.Minute{Allowed: 1620, Tokens: 1620} // Of the three buckets that values may share.
	if got, want := told(t, s, n, counted), "+route 90, +route:quick 90, +user:root 90, +user:u7 81, +user:u8 91"; got != want {
		t.Errorf("near are %s, want %s", got, want)
	}
	for i := range 80 { // Each partition has room for one key, and what others share is nearly used in each.
		ask("one", fmt.Sprint("k", i), 7)
		counted[admission.Scope(fmt.Sprint("+one:k", i))] = one
	}
	if got := told(t, s, n, counted); !strings.Contains(got, "+one 98") || strings.Contains(got, "+one:") {
		t.Errorf("near are %s", got)
	}
	for i := range 100 {
		counted[admission.Scope(fmt.Sprint("+route:many", i))] = store.Minute{Allowed: 600, Tokens: admission.Tokens(600 + i)}
	}
	counted["quick"] = store.Minute{Allowed: 540, Tokens: 540}
	got := strings.Split(told(t, s, n, counted), ", ")
	if len(got) != 64 || !slices.Contains(got, "+route:many99 116") || slices.Contains(got, "+user:u7 81") {
		t.Errorf("%d values are near: %s", len(got), got)
	}
}
