package policy

import "github.com/headgate/headgate/admission"

// rolloutJSON is a roll-out as it is written.
type rolloutJSON struct {
	ID      string    `json:"id"`
	Percent int       `json:"percent"`
	Shadow  bool      `json:"shadow,omitempty"`
	Rules   rulesJSON `json:"rules"`
}

func (r *Rollout) wire() *rolloutJSON {
	if r == nil {
		return nil
	}
	return &rolloutJSON{ID: r.ID, Percent: r.Percent, Shadow: r.Shadow, Rules: r.Rules.wire()}
}

// rollout returns what was written, if anything was, and adds what cannot be read to bad.
func (w *rolloutJSON) rollout(bad *problems) *Rollout {
	if w == nil {
		return nil
	}
	return &Rollout{ID: w.ID, Percent: w.Percent, Shadow: w.Shadow, Rules: w.Rules.rules("rollout.rules.", bad)}
}

// rules returns what the policy itself says of tenants.
func (p Policy) rules() Rules {
	return Rules{p.Tiers, p.Tenants, p.QueueLimits, p.PriorityLimits, p.Overflows, p.MaxRunning}
}

// withRules returns the policy with these rules instead of its own.
func (p Policy) withRules(r Rules) Policy {
	p.Tiers, p.Tenants, p.QueueLimits, p.PriorityLimits = r.Tiers, r.Tenants, r.QueueLimits, r.PriorityLimits
	p.Overflows, p.MaxRunning = r.Overflows, r.MaxRunning
	return p
}

func (r Rules) wire() rulesJSON {
	limit := func(_ admission.Scope, limit admission.Limit) limitJSON { return *newLimitJSON(limit) }
	return rulesJSON{
		Tiers: convert(r.Tiers, func(_ string, tier Tier) tierJSON {
			queues := convert(tier.Queues, func(_ string, in TierQueue) tierQueueJSON { return tierQueueJSON{in.limits().wire(), in.Overflow} })
			return tierJSON{Limit: newLimitJSON(tier.Limit), Weights: tier.Weights, MaxRunning: tier.MaxRunning, Overflow: tier.Overflow, Queues: queues}
		}),
		Tenants: convert(r.Tenants, func(_ string, tenant Tenant) tenantJSON {
			written := tenantJSON{
				Limit: optional(tenant.Limit), Weights: tenant.Weights, MaxRunning: tenant.MaxRunning, Dispatch: optional(tenant.Dispatch),
			}
			if tenant.Tier != StandardTier { // What it has without saying so is nothing of its own.
				written.Tier = tenant.Tier
			}
			return written
		}),
		QueueLimits: convert(r.QueueLimits, limit), PriorityLimits: convert(r.PriorityLimits, limit),
		Overflows: r.Overflows, MaxRunning: r.MaxRunning,
	}
}

// rules returns what was written, and adds what cannot be read to bad. at is what the path to each field begins with.
func (w rulesJSON) rules(at string, bad *problems) Rules {
	limits := func(field string) func(admission.Scope, limitJSON) admission.Limit {
		return func(scope admission.Scope, limit limitJSON) admission.Limit {
			return limit.limit(at+field+string(scope), bad)
		}
	}
	return Rules{
		Tiers: convert(w.Tiers, func(name string, tier tierJSON) Tier {
			read := Tier{Weights: tier.Weights, MaxRunning: tier.MaxRunning, Overflow: tier.Overflow}
			if tier.Limit != nil {
				read.Limit = tier.Limit.limit(at+"tiers."+name+".limit", bad)
			}
			read.Queues = convert(tier.Queues, func(queue string, in tierQueueJSON) TierQueue {
				each := in.eachTenant(at+"tiers."+name+".queues."+queue+".", bad)
				return TierQueue{Limit: each.Limit, PriorityLimits: each.PriorityLimits, Overflow: in.Overflow}
			})
			return read
		}),
		Tenants: convert(w.Tenants, func(name string, tenant tenantJSON) Tenant {
			return Tenant{
				Tier: tenant.Tier, Limit: bad.limit(at+"tenants."+name+".limit", tenant.Limit), Weights: tenant.Weights,
				MaxRunning: tenant.MaxRunning, Dispatch: bad.limit(at+"tenants."+name+".dispatch", tenant.Dispatch),
			}
		}),
		QueueLimits: convert(w.QueueLimits, limits("queue_limits.")), PriorityLimits: convert(w.PriorityLimits, limits("priority_limits.")),
		Overflows: w.Overflows, MaxRunning: w.MaxRunning,
	}
}
