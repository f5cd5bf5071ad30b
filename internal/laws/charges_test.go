package laws_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// TestChargesAreExactUnderManyProducers asserts L1 and L2 with limits that hardly refill: after 32 producers have asked
// for far more than there is, each bucket holds its burst less what was admitted, to the micro-token; so no refusal
// charged anything anywhere, and no two charges were lost in one another.
func TestChargesAreExactUnderManyProducers(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	p := policy.Default()
	p.Version = 1
	day := func(burst int) admission.Limit {
		return admission.Limit{Tokens: admission.Tokens(burst/100 + 1), Per: 24 * time.Hour, Burst: admission.Tokens(burst)}
	}
	p.Global = day(3000)
	p.Tenants = map[string]policy.Tenant{}
	p.QueueLimits, p.PriorityLimits = map[admission.Scope]admission.Limit{}, map[admission.Scope]admission.Limit{}
	for _, tenant := range crowdTenants {
		limit := day(c.between(300, 1200))
		p.Tenants[tenant] = policy.Tenant{Limit: &limit}
		for _, queue := range crowdQueues {
			p.QueueLimits[admission.ScopeAt(admission.LevelQueue, tenant, queue, "")] = day(c.between(100, 600))
			for _, class := range c.classes {
				p.PriorityLimits[admission.ScopeAt(admission.LevelPriority, tenant, queue, class.Name)] = day(c.between(30, 300))
			}
		}
	}
	text, err := policy.Marshal(p)
	c.check(err)
	compiled, err := p.Prepare()
	c.check(err)
	c.putPolicy(store.PolicyUpdate{Text: text})
	c.mu.eras = append(c.mu.eras, era{compiled: compiled})
	c.fixed = true
	c.produce()

	spent, bursts := map[admission.Scope]admission.Tokens{}, map[admission.Scope]admission.Tokens{}
	for _, a := range c.mu.sent {
		limits := compiled.LimitsFor(a.job.Tenant, a.job.Queue, a.job.Priority)
		for level := range admission.Level(admission.Levels) {
			scope := admission.ScopeAt(level, a.job.Tenant, a.job.Queue, a.job.Priority)
			spent[scope] += a.job.Cost
			bursts[scope] = limits[level].Burst
		}
	}
	stored := c.buckets(crowdTenants...)
	for scope, cost := range spent {
		left := buckets.MicroOf(bursts[scope] - cost)
		minute := buckets.MicroOf(bursts[scope]/100+1) / (24 * 60)
		if level := stored[scope].Level; level < left || level > left+minute {
			c.Errorf("scope %s: burst %d, %d tokens admitted, but the bucket holds %d micro-tokens", scope, bursts[scope], cost, level)
		}
	}
	for scope := range stored {
		if spent[scope] == 0 {
			c.Errorf("scope %s was charged, and nothing was admitted there", scope)
		}
	}
}
