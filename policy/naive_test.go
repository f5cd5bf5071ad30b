package policy

import (
	"slices"

	"github.com/headgate/headgate/admission"
)

// naiveLimits is LimitsFor as the documentation says it, on the document itself.
func naiveLimits(p Policy, tenant, queue string, class admission.Priority) Limits {
	p = sideOf(p, tenant)
	limits := Limits{p.Global, p.Tiers[StandardTier].Limit, noLimit, noLimit}
	if r := p.GlobalReserved; r != nil && !slices.Contains(r.Classes, class) {
		limits[0] = limits[0].Keeping(r.Percent)
		if r.Lend {
			limits[0] = limits[0].Lending()
		}
	}
	if b := p.Bypass; b != nil && slices.Contains(b.Classes, class) {
		limits[0] = p.Global.Bypassing(b.ReservePercent, b.SharePercent)
	}
	if own, ok := p.Tenants[tenant]; ok {
		limits[admission.LevelTenant] = p.Tiers[own.Tier].Limit
		if own.Limit != nil {
			limits[admission.LevelTenant] = *own.Limit
		}
	}
	tier, each, every := p.Tiers[p.TierOf(tenant)].Queues, p.Queues[queue].EachTenant, p.Queues[Every].EachTenant
	limits[admission.LevelQueue] = naiveFirst(
		p.QueueLimits[admission.Scope(tenant+":"+queue)], tier[queue].Limit, each.Limit, tier[Every].Limit, every.Limit)
	limits[admission.LevelPriority] = naiveFirst(
		p.PriorityLimits[admission.Scope(tenant+":"+queue+":"+string(class))], tier[queue].PriorityLimits[class], each.PriorityLimits[class],
		tier[Every].PriorityLimits[class], every.PriorityLimits[class])
	return limits
}

// naiveFirst is the first limit that is there.
func naiveFirst(limits ...admission.Limit) admission.Limit {
	for _, l := range limits {
		if l != (admission.Limit{}) {
			return l
		}
	}
	return noLimit
}

// naiveBound is what bounds a tenant's depth in a queue, as doc.go says it.
func naiveBound(p Policy, tenant, queue string) Overflow {
	p = sideOf(p, tenant)
	if own, ok := p.Overflows[admission.Scope(tenant+":"+queue)]; ok {
		return own
	}
	tier := p.Tiers[p.TierOf(tenant)].Queues
	for _, bound := range []Overflow{tier[queue].Overflow, p.Queues[queue].Overflow, tier[Every].Overflow, p.Queues[Every].Overflow, p.Overflows["*:*"]} {
		if bound != (Overflow{}) {
			return bound
		}
	}
	return Overflow{}
}

func naiveWeight(p Policy, tenant string, class admission.Priority) admission.Weight {
	p = sideOf(p, tenant)
	tier := StandardTier
	if own, ok := p.Tenants[tenant]; ok {
		if weight, ok := own.Weights[class]; ok {
			return weight
		}
		tier = own.Tier
	}
	if weight, ok := p.Tiers[tier].Weights[class]; ok {
		return weight
	}
	return 1
}
