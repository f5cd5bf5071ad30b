package headgate_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// aDay is a limit by which no token comes back while a test runs.
func aDay(burst headgate.Tokens) headgate.Limit {
	return headgate.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: burst}
}

// TestTenThousandTenantsHaveBucketsFromOneEntry: each of 10,000 tenants that nobody named has its own tokens in the queue, an edit of the one
// entry is in force for all of them, for those who have a bucket at least of the old level and the new burst, and the policy in between has
// no entry more.
func TestTenThousandTenantsHaveBucketsFromOneEntry(t *testing.T) {
	t.Parallel()
	const tenants = 10_000
	ctx := t.Context()
	hg := open(t, headgate.Config{})
	put := func(limit headgate.Limit) {
		t.Helper()
		check(t, hg.Policy().Change(ctx, headgate.Edit{Author: "ada"}, func(p *headgate.Policy) {
			p.Tier("standard").Limit = headgate.Limit{Disabled: true}
			p.Queue("mail").EachTenant.Limit = limit
		}))
	}
	// each asks for a job of every tenant and returns how many were admitted; all others were refused by the tenant's own scope.
	each := func(round string, from, to int) (admitted int) {
		t.Helper()
		jobs := make([]headgate.Job, 0, to-from)
		for i := from; i < to; i++ {
			jobs = append(jobs, headgate.Job{Tenant: fmt.Sprintf("tenant-%d", i), Queue: "mail", ID: round, Args: welcome{}})
		}
		results, _ := hg.EnqueueBatch(ctx, jobs) // What failed is in the results.
		for i, r := range results {
			no, refused := errors.AsType[*headgate.Refusal](r.Err)
			switch {
			case r.Err == nil:
				admitted++
			case !refused || no.Scope != headgate.Scope(jobs[i].Tenant+":mail"):
				t.Fatalf("%s: %v", jobs[i].Tenant, r.Err)
			}
		}
		return admitted
	}
	put(aDay(3))
	if got := each("a", 0, tenants); got != tenants {
		t.Fatalf("%d of %d tenants had a first token", got, tenants)
	}
	put(aDay(1)) // Of the two that are left one stays.
	if got := each("b", 0, tenants); got != tenants {
		t.Errorf("%d of %d tenants kept a token under the lower burst", got, tenants)
	}
	if got := each("c", 0, tenants); got != 0 {
		t.Errorf("%d tenants had a token above the burst of the edit", got)
	}
	put(aDay(2)) // It holds at once where no bucket is.
	for i, want := range []int{100, 100, 0} {
		if got := each(fmt.Sprint("d", i), tenants, tenants+100); got != want {
			t.Errorf("%d of 100 new tenants had token %d, want %d", got, i+1, want)
		}
	}
	now, err := hg.Policy().Current(ctx)
	check(t, err)
	if len(now.Tenants)+len(now.QueueLimits) != 0 || len(now.Queues) != 1 {
		t.Errorf("the policy has %d tenants, %d limits and %d queues", len(now.Tenants), len(now.QueueLimits), len(now.Queues))
	}
}

// TestJobsAndChecksGoByTheSameLimitOfEachTenant: of a tier in a queue, of a class in every queue, and of a queue that nobody named.
func TestJobsAndChecksGoByTheSameLimitOfEachTenant(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	hg := open(t, headgate.Config{})
	check(t, hg.Policy().Change(ctx, headgate.Edit{}, func(p *headgate.Policy) {
		p.Tier("standard").Limit = headgate.Limit{Disabled: true}
		p.Tier("gold").Limit = headgate.Limit{Disabled: true}
		p.TierQueue("gold", "mail").Limit = aDay(4)
		p.TierQueue("gold", policy.Every).PriorityLimits = map[headgate.Priority]headgate.Limit{headgate.High: aDay(2)}
		p.Queue("mail").EachTenant.Limit = aDay(2)
		p.Queue(policy.Every).EachTenant.Limit = aDay(3)
		p.Tenant("acme").Tier = "gold"
	}))
	limiter, err := hg.Limiter(headgate.LimiterConfig{Strict: true, Timeout: 10 * time.Second})
	check(t, err)
	for _, c := range []struct {
		tenant, queue string
		class         headgate.Priority
		most          int
		scope         headgate.Scope
	}{
		{"acme", "mail", headgate.Low, 4, "acme:mail"},
		{"acme", "sms", headgate.High, 2, "acme:sms:high"},
		{"bolt", "mail", headgate.High, 2, "bolt:mail"},
		{"bolt", "sms", headgate.High, 3, "bolt:sms"},
	} {
		for i := range c.most + 1 {
			ask := func() error {
				if i%2 == 0 {
					_, err := limiter.Check(ctx, headgate.Request{Tenant: c.tenant, Queue: c.queue, Class: c.class, Cost: 1})
					return err
				}
				_, err := hg.Enqueue(ctx, headgate.Job{Tenant: c.tenant, Queue: c.queue, Priority: c.class, Args: welcome{}})
				return err
			}
			err := ask()
			no, refused := errors.AsType[*headgate.Refusal](err)
			if i < c.most && err != nil || i == c.most && (!refused || no.Scope != c.scope) {
				t.Errorf("%s, number %d: %v", c.scope, i+1, err)
			}
		}
	}
}

// TestTheDepthOfATierIsBounded: a tier's own bound in a queue goes before the queue's, and a change of tier is a change of bound.
func TestTheDepthOfATierIsBounded(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	hg := open(t, headgate.Config{})
	check(t, hg.Policy().Change(ctx, headgate.Edit{}, func(p *headgate.Policy) {
		p.Tier("gold").Limit = headgate.Limit{Disabled: true}
		p.TierQueue("gold", "mail").Overflow = policy.Overflow{Policy: policy.Reject, MaxJobs: 4}
		p.Queue("mail").Overflow = policy.Overflow{Policy: policy.Reject, MaxJobs: 2}
		p.Tenant("acme").Tier = "gold"
	}))
	fill := func(tenant string) (in int) {
		t.Helper()
		for range 10 {
			_, err := hg.Enqueue(ctx, headgate.Job{Tenant: tenant, Queue: "mail", Args: welcome{}})
			no, refused := errors.AsType[*headgate.Refusal](err)
			switch {
			case err == nil:
				in++
			case !refused || no.Reason != headgate.ReasonOverflow:
				t.Fatal(err)
			}
		}
		return in
	}
	if got := [2]int{fill("acme"), fill("bolt")}; got != [2]int{4, 2} {
		t.Errorf("%d jobs of the tier gold and %d of another wait, want 4 and 2", got[0], got[1])
	}
	check(t, hg.Policy().Change(ctx, headgate.Edit{}, func(p *headgate.Policy) { p.Tenant("bolt").Tier = "gold" }))
	if got := fill("bolt"); got != 2 {
		t.Errorf("%d more jobs wait after the tenant has moved to gold, want 2", got)
	}
}
