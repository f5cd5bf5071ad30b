package load

import (
	"math"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// The global limit is globalRoom times the rate, with the burst of globalBurst seconds of the rate.
const (
	globalRoom  = 2
	globalBurst = 0.25
)

// Smallest bursts, so that a slow run does not stumble over its own chance.
const (
	minTenantBurst = 20
	minGlobalBurst = 50
)

// maxScopes is how many scopes below the tenant's are given a limit of their own; above it there are none.
const maxScopes = 10_000

// limits puts limits on every level of the way of the first n tenants: a tenant's is share of the rate, and those of its
// queues and of its classes there are the same again, so that they are checked and refuse nobody first.
func (b *builder) limits(share float64, n int) {
	p := policy.Default()
	tenant := limit(orElse(b.spec.TenantLimit, share*b.spec.Rate), 1, minTenantBurst)
	p.Global = limit(orElse(b.spec.GlobalLimit, globalRoom*b.spec.Rate), globalBurst/globalRoom, minGlobalBurst)
	p.Tiers = map[string]policy.Tier{policy.StandardTier: {Limit: tenant}}
	p.Queues = map[string]policy.Queue{}
	for _, queue := range b.plan.Queues {
		p.Queues[queue] = policy.Queue{Classes: b.plan.Classes}
	}
	b.plan.Levels = 2
	if n*len(b.plan.Queues)*(1+len(b.plan.Classes)) <= maxScopes {
		b.plan.Levels = admission.Levels
		p.QueueLimits, p.PriorityLimits = map[admission.Scope]admission.Limit{}, map[admission.Scope]admission.Limit{}
		for _, name := range b.plan.Tenants[:n] {
			for _, queue := range b.plan.Queues {
				p.QueueLimits[admission.ScopeAt(admission.LevelQueue, name, queue, "")] = tenant
				for _, class := range b.plan.Classes {
					p.PriorityLimits[admission.ScopeAt(admission.LevelPriority, name, queue, class.Name)] = tenant
				}
			}
		}
	}
	b.plan.Policy = p
}

// orElse returns a limit that was given, else another one.
func orElse(given int64, other float64) float64 {
	if given > 0 {
		return float64(given)
	}
	return other
}

// limit returns a limit of so many tokens a second with the burst of so many seconds.
func limit(tokens, seconds, minBurst float64) admission.Limit {
	most := float64(admission.MaxLimitTokens)
	l := admission.Limit{Tokens: 1, Per: time.Second, Burst: admission.Tokens(min(most, max(minBurst, math.Ceil(tokens*seconds))))}
	if tokens >= 1 {
		l.Tokens = admission.Tokens(min(most, math.Ceil(tokens)))
		return l
	}
	l.Per = time.Duration(float64(time.Second) / tokens)
	return l
}
