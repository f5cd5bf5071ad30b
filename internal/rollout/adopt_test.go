package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// Whom an adoption is about. zeta is in no document.
var (
	adoptTenants = []string{"acme", "bolt", "core", "zeta"}
	adoptQueues  = []string{"mail", "fax"}
	adoptClasses = []admission.Priority{admission.High, admission.Medium, admission.Low}
	adoptTypes   = []string{"report", "invoice", policy.Every}
)

// errCut is what whoever is cut off hears.
var errCut = errors.New("cut off")

// cutting is a store whose caller is cut off once it has written so many records, and policies. before is called before each, and
// when records are looked at.
type cutting struct {
	store.Deployment
	left, looks atomic.Int64
	before      func(what string)
}

func (c *cutting) write(what string) error {
	if c.before != nil {
		c.before(what)
	}
	if c.left.Add(-1) < 0 {
		return errCut
	}
	return nil
}

func (c *cutting) PutRecord(ctx context.Context, e store.RecordEdit) (int64, error) {
	if err := c.write(e.Tenant); err != nil {
		return 0, err
	}
	return c.Deployment.PutRecord(ctx, e)
}

func (c *cutting) PutPolicy(ctx context.Context, u store.PolicyUpdate) error {
	if err := c.write("policy"); err != nil {
		return err
	}
	return c.Deployment.PutPolicy(ctx, u)
}

func (c *cutting) Records(ctx context.Context, tenants ...string) ([]store.TenantRecord, error) {
	if look := c.looks.Add(1); c.before != nil {
		c.before(fmt.Sprint("look ", look))
	}
	return c.Deployment.Records(ctx, tenants...)
}

func cutAfter(s store.Deployment, writes int64) *cutting {
	c := &cutting{Deployment: s}
	c.left.Store(writes)
	return c
}

// drawOwn draws what a tenant has of its own: of the policy where record is false.
func drawOwn(t *rapid.T, record bool) (r policy.OwnLimits) {
	some := func(name string) bool { return rapid.IntRange(0, 2).Draw(t, name) == 0 }
	limit := func(name string) admission.Limit {
		n := rapid.IntRange(0, 4).Draw(t, name)
		return []admission.Limit{few(1), few(2), few(3), {Disabled: true}, {Tokens: 5, Per: few(1).Per, Burst: 5, Disabled: true}}[n]
	}
	r.Tier = rapid.SampledFrom([]string{"", "", "gold", "tin"}).Draw(t, "tier")
	if record && rapid.IntRange(0, 9).Draw(t, "gone") == 0 {
		r.Tier = "lead" // The policy has it no more.
	}
	for _, class := range adoptClasses {
		if some("weight") {
			r.Weights = with(r.Weights, class, admission.Weight(rapid.IntRange(1, 3).Draw(t, "share")))
		}
	}
	r.MaxRunning = rapid.SampledFrom([]int{0, 0, 1, 7}).Draw(t, "cap")
	if some("rated") {
		r.Dispatch = new(limit("rate"))
	}
	for _, name := range []string{"gpu", "disk", policy.Every} {
		if rapid.IntRange(0, 3).Draw(t, "semaphore") == 0 {
			r.Semaphores = with(r.Semaphores, name, policy.SemaphoreRules{Max: rapid.IntRange(0, 3).Draw(t, "permits")})
		}
	}
	if some("bounded over all") {
		r.Overflow = policy.Overflow{Policy: policy.Reject, MaxJobs: rapid.IntRange(3, 5).Draw(t, "jobs")}
	}
	if some("lifted over all") {
		r.Overflow = policy.Overflow{Policy: policy.NoBound}
	}
	for _, queue := range adoptQueues {
		if limit := rapid.SampledFrom([]int{0, 0, 1, 7}).Draw(t, "cap in a queue"); limit > 0 {
			r.MaxRunningIn = with(r.MaxRunningIn, queue, limit)
		}
		if bound := rapid.SampledFrom([]policy.OverflowPolicy{"", policy.NoBound, policy.Reject, policy.Spillover}).Draw(t, "bound"); bound == policy.NoBound {
			r.Overflows = with(r.Overflows, queue, policy.Overflow{Policy: bound})
		} else if bound != "" {
			r.Overflows = with(r.Overflows, queue, policy.Overflow{Policy: bound, MaxJobs: rapid.IntRange(1, 3).Draw(t, "jobs")})
		}
	}
	if some("limited") {
		r.Limit = new(limit("limit"))
	}
	for _, queue := range adoptQueues {
		var in policy.EachTenant
		if some("in queue") {
			in.Limit = limit("queue limit")
		}
		for _, class := range adoptClasses {
			if some("class") {
				in.PriorityLimits = with(in.PriorityLimits, class, limit("class limit"))
			}
		}
		for _, jobType := range adoptTypes {
			if some("type") {
				in.TypeLimits = with(in.TypeLimits, jobType, limit("type limit"))
			}
		}
		if in.Limit != (admission.Limit{}) || len(in.PriorityLimits)+len(in.TypeLimits) > 0 {
			r.Queues = with(r.Queues, queue, in)
		}
	}
	return r
}

// drawAdoptable draws a policy that has something of single tenants.
func drawAdoptable(t *rapid.T) policy.Policy {
	p := policy.Unlimited()
	p.TenantRecords = true
	p.Tiers["gold"] = policy.Tier{Limit: few(9), Weights: policy.Weights{admission.High: 9}, MaxRunning: 4, Queues: map[string]policy.TierQueue{"mail": {Limit: few(8), TypeLimits: map[string]admission.Limit{"report": few(6)}}}}
	p.Tiers["tin"] = policy.Tier{Limit: few(7), Overflow: policy.Overflow{Policy: policy.Reject, MaxJobs: 5}}
	p.Queues = map[string]policy.Queue{"fax": {
		MaxRunningPerTenant: 5,
		EachTenant:          policy.EachTenant{PriorityLimits: map[admission.Priority]admission.Limit{admission.Low: few(4)}, TypeLimits: map[string]admission.Limit{policy.Every: few(4)}},
		Pressure:            &policy.PressureRules{MaxDepth: 10},
	}}
	p.Shedding = &policy.Shedding{
		Order: []admission.Priority{admission.Low, admission.Medium, admission.High}, Tiers: []string{"tin", "basic", "standard", "premium", "gold"},
		At: map[string][]string{"HIGH": {"low:tin"}, "CRITICAL": {"low", "medium:tin"}},
	}
	p.Tenants, p.QueueLimits, p.PriorityLimits = map[string]policy.Tenant{}, map[admission.Scope]admission.Limit{}, map[admission.Scope]admission.Limit{}
	p.Overflows, p.MaxRunning = map[admission.Scope]policy.Overflow{}, map[admission.Scope]int{}
	for _, name := range adoptTenants[:3] {
		own := drawOwn(t, false)
		entry := policy.Tenant{Tier: own.Tier, Weights: own.Weights, MaxRunning: own.MaxRunning, Dispatch: own.Dispatch, Limit: own.Limit}
		for queue, in := range own.Queues {
			if len(in.TypeLimits) > 0 {
				entry.Queues = with(entry.Queues, queue, policy.TenantQueue{TypeLimits: in.TypeLimits})
			}
			if in.Limit != (admission.Limit{}) {
				p.QueueLimits[admission.Scope(name+":"+queue)] = in.Limit
			}
			for class, limit := range in.PriorityLimits {
				p.PriorityLimits[admission.Scope(name+":"+queue+":"+string(class))] = limit
			}
		}
		if rapid.IntRange(0, 4).Draw(t, "entry") > 0 {
			p.Tenants[name] = entry
		}
		for queue, limit := range own.MaxRunningIn {
			p.MaxRunning[admission.Scope(name+":"+queue)] = limit
		}
		p.Semaphores = with(with(p.Semaphores, "gpu", policy.SemaphoreRules{Max: 8}), policy.Every, policy.SemaphoreRules{Max: 9})
		for semaphore, rule := range own.Semaphores {
			p.Semaphores = with(p.Semaphores, name+":"+semaphore, rule)
		}
		for queue, bound := range own.Overflows {
			if p.Overflows[admission.Scope(name+":"+queue)] = bound; bound.Policy == policy.NoBound && rapid.Bool().Draw(t, "said of nothing") {
				p.Overflows[admission.Scope(name+":"+queue)] = policy.Overflow{}
			}
		}
		if own.Overflow != (policy.Overflow{}) {
			p.Overflows[admission.Scope(name)] = own.Overflow
		}
	}
	return p
}

// inForce tells, a line each, all that is in force for the tenants by what the store holds now.
func inForce(ctx context.Context, s store.Deployment) (lines []string, err error) {
	rules, err := ReadRules(ctx, s)
	if err != nil {
		return nil, err
	}
	c := rules.Compiled
	for _, tenant := range adoptTenants {
		if err := store.LearnRecord(ctx, s, c, tenant); err != nil {
			return nil, err
		}
		tell := func(what string, value ...any) { lines = append(lines, fmt.Sprint(tenant, " ", what, " ", value)) }
		tell("tier", c.TierOf(tenant))
		tell("cap", c.MaxRunningOf(tenant))
		tell("semaphores", c.SemaphoreMax(tenant+":gpu"), c.SemaphoreMax(tenant+":disk"), c.SemaphoreMax(tenant+":other"), c.SemaphoreMax("gpu"))
		tell("rate", fmt.Sprintf("%+v", cmp.Or(c.DispatchOf(tenant), &admission.Limit{Disabled: true})))
		for _, queue := range append([]string{"", "other"}, adoptQueues...) {
			for _, class := range append([]admission.Priority{""}, adoptClasses...) {
				tell(fmt.Sprint("in ", queue, " ", class), fmt.Sprintf("%+v", c.LimitsFor(tenant, queue, class)), c.WeightOf(tenant, class))
				from, over, tier := c.PressureFor(tenant, queue, class)
				tell("shed", from, over, tier)
			}
			for _, jobType := range []string{"report", "invoice", "other"} {
				limit := c.TypeLimit(tenant, queue, jobType)
				tell(fmt.Sprint("type ", queue, " ", jobType), limit != nil)
				if limit != nil {
					tell("which", fmt.Sprintf("%+v", *limit))
				}
			}
		}
	}
	for _, part := range s.Partitions() {
		gates, err := part.Gates(ctx)
		if err != nil {
			return nil, err
		}
		rates, caps := map[store.GateName]string{}, map[store.GateName]int{}
		for _, g := range gates {
			rates[g.Name], caps[g.Name] = fmt.Sprint(g.Rate, " ", g.Burst), g.Limit
		}
		for _, tenant := range adoptTenants {
			if part == s.Partitions()[s.PartitionOf(tenant)] {
				lines = append(lines, fmt.Sprintf("rate of %s in Redis: %s", tenant, rates[store.TenantRateGate(tenant)]))
				for _, queue := range adoptQueues {
					lines = append(lines, fmt.Sprintf("cap of %s in %s in Redis: %d", tenant, queue, caps[store.TenantQueueGate(tenant, queue)]))
				}
			}
		}
	}
	all := c.Overflows()
	for _, tenant := range adoptTenants {
		own := c.RecordOf(tenant)
		for _, queue := range append([]string{""}, adoptQueues...) {
			bound, said := own.OverflowAt(queue), true
			if bound == (policy.Overflow{}) {
				bound, said = all[admission.Scope(strings.TrimSuffix(tenant+":"+queue, ":"))]
				bound.Policy = cmp.Or(bound.Policy, policy.NoBound) // What is there and says nothing lifts that of all.
			}
			lines = append(lines, fmt.Sprintf("bound of %s in %q: %+v, %t", tenant, queue, bound, said))
		}
	}
	return lines, nil
}

// newAdoptable has a deployment with a policy, and records.
func newAdoptable(t *testing.T, p policy.Policy, records map[string]policy.OwnLimits) (store.Deployment, error) {
	t.Helper()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 2})
	if err != nil {
		return nil, err
	}
	before := p
	before.Tiers = with(maps.Clone(p.Tiers), "lead", policy.Tier{Limit: few(1)})
	if p.Shedding != nil {
		before.Shedding = nil
	}
	if _, err := Put(t.Context(), s, before, Edit{Expected: AnyVersion}); err != nil {
		return nil, err
	}
	for tenant, r := range records {
		if _, err := EditRecord(t.Context(), s, rulesOf(s), tenant, Edit{Expected: AnyVersion}, func(policy.OwnLimits) (policy.OwnLimits, error) { return r, nil }); err != nil {
			return nil, err
		}
	}
	// A tier that records name may go by a process of an older release alone: it stores the policy without asking.
	current, err := Current(t.Context(), s)
	if err != nil {
		return nil, err
	}
	next, err := planChange(t.Context(), s, current.Version, func(policy.Policy) (policy.Policy, error) { return p, nil })
	if err != nil {
		return nil, err
	}
	next.update.Edit = "without lead"
	return s, s.PutPolicy(t.Context(), next.update)
}

// TestAnAdoptionChangesNothingInForce: whatever a policy says of single tenants, and their records beside it, each has the same limits, weights, tier, caps and bounds
// before and after, and wherever it is cut off; what a record can say is then not in the policy, and to run it again changes nothing.
func TestAnAdoptionChangesNothingInForce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		records := map[string]policy.OwnLimits{}
		for _, tenant := range adoptTenants {
			if rapid.Bool().Draw(rt, "record") {
				records[tenant] = drawOwn(rt, true)
			}
		}
		s, err := newAdoptable(t, drawAdoptable(rt), records)
		if err != nil {
			rt.Fatal(err)
		}
		want, err := inForce(ctx, s)
		if err != nil {
			rt.Fatal(err)
		}
		same := func(when string) {
			rt.Helper()
			got, err := inForce(ctx, s)
			if err != nil {
				rt.Fatal(err)
			}
			for i, line := range want {
				if got[i] != line {
					rt.Fatalf("%s: %s, before %s", when, got[i], line)
				}
			}
		}
		spec := AdoptSpec{}
		if rapid.Bool().Draw(rt, "of some") {
			spec.Tenants = adoptTenants[:rapid.IntRange(1, 2).Draw(rt, "how many")]
		}
		spec.DryRun = true
		would, err := Adopt(ctx, s, spec)
		if err != nil {
			rt.Fatal(err)
		}
		same("after a dry run")
		spec.DryRun = false
		first := cutAfter(s, int64(rapid.IntRange(0, 3).Draw(rt, "writes")))
		cut, err := Adopt(ctx, first, spec)
		if err != nil && !errors.Is(err, errCut) {
			rt.Fatal(err)
		}
		same(fmt.Sprintf("cut off: %v", err))
		done, err := Adopt(ctx, s, spec)
		if err != nil {
			rt.Fatal(err)
		}
		same("at the end")
		if cut.Stored+done.Stored != would.Stored {
			rt.Fatalf("%d and %d records were stored, a dry run says %d", cut.Stored, done.Stored, would.Stored)
		}
		checkAdopted(rt, s, spec, done)
		again, err := Adopt(ctx, s, spec)
		if err != nil || again.Tenants+again.Stored != 0 || again.To != done.To || fmt.Sprint(again.Left) != fmt.Sprint(done.Left) {
			rt.Fatalf("again: %+v, %v, after %+v", again, err, done)
		}
	})
}

// checkAdopted looks for values that records could have, and for such that are told to stay and do not.
func checkAdopted(rt *rapid.T, s store.Deployment, spec AdoptSpec, done Adopted) {
	rt.Helper()
	current, err := Current(rt.Context(), s)
	if err != nil {
		rt.Fatal(err)
	}
	stays := map[string]bool{}
	for _, one := range done.Left {
		stays[one.Tenant] = stays[one.Tenant] || strings.Contains(one.Reason, "would not be valid")
		found, err := current.At(strings.Split(one.Path, "/")[1:]...)
		if err != nil || found == nil || one.Reason == "" {
			rt.Fatalf("%+v is not there: %v", one, err)
		}
	}
	for tenant := range saidOf(current, spec.Tenants) {
		if !stays[tenant] {
			rt.Fatalf("the policy still has something of %s, and nobody is told why: %+v", tenant, done)
		}
	}
	if len(spec.Tenants) > 0 && slices.ContainsFunc(append(done.Left, done.Overruled...), func(v PolicyValue) bool { return !slices.Contains(spec.Tenants, v.Tenant) }) {
		rt.Fatalf("%+v are not of %v", done, spec.Tenants)
	}
}
