package examples_test

import (
	"context"
	"errors"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// eachTenant says what each tenant may send into a queue.
func eachTenant(ctx context.Context, hg *headgate.Client) error {
	//snippet:begin each
	return hg.Policy().Change(ctx, headgate.Edit{Author: "ada", Reason: "limits by kind"}, func(p *headgate.Policy) {
		p.Queue("llm").EachTenant.Limit = headgate.PerMinute(20).WithBurst(5)
		p.Queue("mail").EachTenant.TypeLimits = map[string]headgate.Limit{"welcome": headgate.PerMinute(10).WithBurst(5)} // by type of job
		p.Tier("gold").Limit = headgate.PerSecond(500).WithBurst(1000)
		p.TenantQueue("acme", "mail").TypeLimits = map[string]headgate.Limit{"welcome": headgate.PerMinute(60).WithBurst(30)}
		p.TierQueue("gold", "llm").Limit = headgate.PerMinute(120).WithBurst(30)
		p.TierQueue("gold", "llm").Overflow = policy.Overflow{Policy: policy.Reject, MaxJobs: 5000}
		p.Queue(policy.Every).EachTenant.Limit = headgate.PerSecond(50).WithBurst(100) // in each queue of which nothing nearer is said
		p.Tenant("acme").Tier = "gold"
	})
	//snippet:end
}

func TestEachTenantHasALimitInAQueue(t *testing.T) {
	t.Parallel()
	hg := open(t)
	ctx := t.Context()
	check(t, eachTenant(ctx, hg))
	for _, row := range []struct {
		tenant, queue string
		burst         headgate.Tokens
		scope         headgate.Scope
	}{{"acme", "llm", 30, "acme:llm"}, {"bolt", "llm", 5, "bolt:llm"}, {"bolt", "mail", 5, "bolt:mail:type=welcome"}, {"bolt", "hook", 50, "bolt"}} {
		_, err := hg.Enqueue(ctx, headgate.Job{Tenant: row.tenant, Queue: row.queue, Args: Welcome{}, Cost: row.burst + 1})
		no, refused := errors.AsType[*headgate.Refusal](err)
		if !refused || no.Scope != row.scope || no.Burst != row.burst {
			t.Errorf("%s in %s: %v", row.tenant, row.queue, err)
		}
	}
}
