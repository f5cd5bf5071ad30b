package policy

import (
	"time"

	"github.com/headgate/headgate/admission"
)

// LongestFill returns how long the slowest of the policy's buckets takes from empty to full, and twice as long as the longest window of
// its limits of fixed windows if that is more; 0 if nothing is limited.
func (p Policy) LongestFill() time.Duration {
	longest := time.Duration(0)
	if p.Rollout != nil {
		longest = p.Promoted().LongestFill()
	}
	see := func(l admission.Limit) { longest = max(longest, fillOf(l)) }
	see(p.Global)
	tiers := p.Tiers
	if tiers == nil {
		tiers = Default().Tiers
	}
	in := func(e EachTenant) {
		see(e.Limit)
		for _, l := range e.PriorityLimits {
			see(l)
		}
	}
	for _, tier := range tiers {
		see(tier.Limit)
		for _, queue := range tier.Queues {
			in(queue.limits())
		}
	}
	for _, queue := range p.Queues {
		in(queue.EachTenant)
	}
	for _, tenant := range p.Tenants {
		if tenant.Limit != nil {
			see(*tenant.Limit)
		}
	}
	for _, d := range p.Dimensions {
		see(d.Limit)
		for _, limits := range []map[string]admission.Limit{d.Tiers, d.Keys} {
			for _, l := range limits {
				see(l)
			}
		}
	}
	for _, limits := range []map[admission.Scope]admission.Limit{p.QueueLimits, p.PriorityLimits} {
		for _, l := range limits {
			see(l)
		}
	}
	return longest
}

// fillOf is how long the bucket of a limit takes to fill.
func fillOf(l admission.Limit) time.Duration {
	l = withBurst(l)
	if l.Disabled || l.Tokens <= 0 {
		return 0
	}
	if !l.Window.IsZero() { // What was taken of a window before may count until the first one that begins after it.
		return 2 * l.Per
	}
	return time.Duration(float64(l.Burst)/float64(l.Rate())*float64(time.Second)) + 1
}

// LongestFill is how long the slowest of the record's buckets takes to fill, as that of a policy.
func (r OwnLimits) LongestFill() time.Duration {
	longest := time.Duration(0)
	if r.Limit != nil {
		longest = fillOf(*r.Limit)
	}
	for _, in := range r.Queues {
		longest = max(longest, fillOf(in.Limit))
		for _, l := range in.PriorityLimits {
			longest = max(longest, fillOf(l))
		}
	}
	return longest
}
