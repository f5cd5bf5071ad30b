package policy

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"strconv"

	"github.com/headgate/headgate/admission"
)

// MaxPercent is all tenants.
const MaxPercent = 100

// Rollout is a candidate that is in force for a part of the tenants: rules that replace those of the policy with the same
// names, where all others stay. A tenant is in if its hash, salted with the ID, is below the share, so the share may grow
// without anyone leaving, and two roll-outs choose independently of each other.
//
// All that a tenant has of its own is chosen together: limits, weights, caps and bounds. What Redis knows of the tenants
// that nobody configured only together, the weights and MaxRunning of StandardTier, a candidate has to leave as it is.
type Rollout struct {
	// ID is the salt, a name. It stays the same while the share changes.
	ID string
	// Percent is the share of the tenants, 0 to MaxPercent.
	Percent int
	// Shadow puts none of it in force: what the candidate's limits would answer the jobs of the tenants that are in is
	// counted, from buckets of its own.
	Shadow bool
	// Rules are the candidate.
	Rules Rules
}

// Rules are what a policy says of tenants.
type Rules struct {
	Tiers          map[string]Tier
	Tenants        map[string]Tenant
	QueueLimits    map[admission.Scope]admission.Limit
	PriorityLimits map[admission.Scope]admission.Limit
	Overflows      map[admission.Scope]Overflow
	MaxRunning     map[admission.Scope]int
}

// Promoted returns the policy with the rules of its roll-out in force for everybody, and no roll-out.
func (p Policy) Promoted() Policy {
	p = p.withDefaults()
	if p.Rollout == nil {
		return p
	}
	r := p.Rollout.Rules
	p.Tiers, p.Tenants = overlay(p.Tiers, r.Tiers), overlay(p.Tenants, r.Tenants)
	p.QueueLimits, p.PriorityLimits = overlay(p.QueueLimits, r.QueueLimits), overlay(p.PriorityLimits, r.PriorityLimits)
	p.Overflows, p.MaxRunning = overlay(p.Overflows, r.Overflows), overlay(p.MaxRunning, r.MaxRunning)
	p.Rollout = nil
	return p
}

// overlay returns a copy of one map with the entries of another in it.
func overlay[K comparable, V any](below, above map[K]V) map[K]V {
	if len(above) == 0 {
		return below
	}
	all := maps.Clone(below)
	if all == nil {
		all = make(map[K]V, len(above))
	}
	maps.Copy(all, above)
	return all
}

// inForce returns the roll-out unless it is in shadow.
func (r *Rollout) inForce() *Rollout {
	if r == nil || r.Shadow {
		return nil
	}
	return r
}

// Has reports whether a tenant is in. It does not allocate.
func (r *Rollout) Has(tenant string) bool {
	if r == nil {
		return false
	}
	step, _ := bits.Mul64(mix(fnv1a(tenant, mix(fnv1a(r.ID, fnvOffset)))), MaxPercent)
	return int(step) < r.Percent
}

// The 64-bit hash FNV-1a, and the finaliser of MurmurHash3, which spreads its upper bits: names that count up differ in
// the lowest alone. Neither may ever change: tenants would change sides.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func fnv1a(text string, hash uint64) uint64 {
	for i := range len(text) {
		hash = (hash ^ uint64(text[i])) * fnvPrime
	}
	return hash
}

func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// withDefaults returns the rules as they are written out.
func (r *Rollout) withDefaults() *Rollout {
	if r == nil {
		return nil
	}
	rules := Policy{Tenants: r.Rules.Tenants, Overflows: r.Rules.Overflows, Tiers: defaultTiers()}.withDefaults()
	filled := *r
	filled.Rules.QueueLimits, filled.Rules.PriorityLimits = withBursts(r.Rules.QueueLimits), withBursts(r.Rules.PriorityLimits)
	filled.Rules.Tenants, filled.Rules.Overflows, filled.Rules.Tiers = rules.Tenants, rules.Overflows, tiersWithDefaults(r.Rules.Tiers)
	return &filled
}

func (r Rules) empty() bool {
	return len(r.Tiers)+len(r.Tenants)+len(r.QueueLimits)+len(r.PriorityLimits)+len(r.Overflows)+len(r.MaxRunning) == 0
}

const asInForce = "the bound in force, or none where there is none: Redis knows the tenants of a tier only together"

// validateRollout checks a roll-out of a policy that is valid without it.
func (p Policy) validateRollout(bad *problems) {
	r := p.Rollout
	if r == nil {
		return
	}
	bad.add(admission.ValidateName("rollout.id", r.ID, true))
	bad.integer("rollout.percent", int64(r.Percent), 0, MaxPercent)
	if r.Rules.empty() {
		bad.field("rollout.rules", "none", "tiers, tenants, limits, overflows or max_running that differ")
	}
	candidate := p.Promoted()
	if err := candidate.Validate(); err != nil {
		bad.add(fmt.Errorf("rollout.rules: %w", err))
		return
	}
	for _, scope := range []admission.Scope{Every, Every + ":" + Every} {
		if _, ok := r.Rules.Overflows[scope]; ok {
			bad.field("rollout.rules.overflows", strconv.Quote(string(scope)), "bounds of single tenants: Redis knows the others only together")
		}
	}
	for _, name := range sortedKeys(r.Rules.Tiers) {
		if was, is := p.Tiers[name].Overflow, r.Rules.Tiers[name].Overflow; was != is {
			bad.field("rollout.rules.tiers."+name+".overflow", strconv.Quote(string(is.Policy)), asInForce)
		}
		before, after := p.Tiers[name].Queues, r.Rules.Tiers[name].Queues
		for _, queue := range sortedKeys(overlay(before, after)) {
			if was, is := before[queue].Overflow, after[queue].Overflow; was != is {
				bad.field("rollout.rules.tiers."+name+".queues."+queue+".overflow", strconv.Quote(string(is.Policy)), asInForce)
			}
		}
	}
	before, after := p.Tiers[StandardTier], candidate.Tiers[StandardTier]
	if before.MaxRunning != after.MaxRunning {
		bad.field("rollout.rules.tiers.standard.max_running", strconv.Itoa(after.MaxRunning),
			strconv.Itoa(before.MaxRunning)+" as in force: Redis knows tenants that nobody configured only together")
	}
	classes := maps.Clone(before.Weights)
	if classes == nil {
		classes = Weights{}
	}
	maps.Copy(classes, after.Weights)
	for _, class := range sortedKeys(classes) {
		if was, is := weightIn(before.Weights, class), weightIn(after.Weights, class); was != is {
			bad.field("rollout.rules.tiers.standard.priority_weights."+string(class), strconv.FormatInt(int64(is), 10),
				strconv.FormatInt(int64(was), 10)+" as in force: Redis knows tenants that nobody configured only together")
		}
	}
}

func weightIn(weights Weights, class admission.Priority) admission.Weight {
	return max(weights[class], 1)
}

// TierOf returns the name of a tenant's tier, by the rules that are in force for it.
func (p Policy) TierOf(tenant string) string {
	own, ok := p.Tenants[tenant]
	if p.Rollout.inForce().Has(tenant) {
		if candidate, in := p.Rollout.Rules.Tenants[tenant]; in {
			own, ok = candidate, true
		}
	}
	if !ok {
		return StandardTier
	}
	return cmp.Or(own.Tier, StandardTier)
}
