package policy

import (
	"cmp"
	"fmt"
	"iter"
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

// side is a policy as those have it who have it: who is in a roll-out, or the others. inTier are the limits of tiers in queues, which all
// tenants of a tier share.
type side struct {
	Policy
	inTier map[string]map[string]*EachTenant
	// ofTier is what applies to a tenant of a tier that has nothing else of its own.
	ofTier map[string]*tenantView
	typed  bool
}

func (p Policy) side() side {
	s := side{Policy: p, inTier: map[string]map[string]*EachTenant{}}
	for name, tier := range p.Tiers {
		for queue, in := range tier.Queues {
			if each := in.limits(); !each.empty() {
				s.typed = s.typed || len(each.TypeLimits) > 0
				if s.inTier[name] == nil {
					s.inTier[name] = map[string]*EachTenant{}
				}
				s.inTier[name][queue] = &each
			}
		}
	}
	if p.TenantRecords {
		s.ofTier = make(map[string]*tenantView, len(p.Tiers))
		for name := range p.Tiers {
			s.ofTier[name] = new(s.viewOf(Tenant{Tier: name}))
		}
	}
	return s
}

func (s *side) viewOf(tenant Tenant) tenantView {
	tier := s.Tiers[tenant.Tier]
	view := tenantView{
		limit: tier.Limit, weights: make(Weights), maxRunning: cmp.Or(tenant.MaxRunning, tier.MaxRunning), dispatch: tenant.Dispatch,
		tier: tenant.Tier, inTier: s.inTier[tenant.Tier],
	}
	if tenant.Limit != nil {
		view.limit = *tenant.Limit
	}
	maps.Copy(view.weights, tier.Weights)
	maps.Copy(view.weights, tenant.Weights)
	return view
}

// sideOf returns the policy as it is in force for a tenant.
func (c *Compiled) sideOf(tenant string) *side {
	if c.rollout.Has(tenant) {
		return &c.promoted
	}
	return &c.base
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
	if p.TenantRecords {
		p.validateTiersOfRecords(bad)
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

// validateTiersOfRecords refuses other weights and another cap of a tier than those in force where records of tenants name tiers.
func (p Policy) validateTiersOfRecords(bad *problems) {
	for _, name := range sortedKeys(p.Rollout.Rules.Tiers) {
		if name == StandardTier || !hasKey(p.Tiers, name) {
			continue
		}
		differs := func(field string, was, is int64) {
			if was != is {
				bad.field("rollout.rules.tiers."+name+"."+field, strconv.FormatInt(is, 10),
					strconv.FormatInt(was, 10)+" as in force while tenant_records is true: Redis knows tenants whose records name a tier only together")
			}
		}
		before, after := p.Tiers[name], p.Rollout.Rules.Tiers[name]
		for _, class := range sortedKeys(overlay(before.Weights, after.Weights)) {
			differs("priority_weights."+string(class), int64(weightIn(before.Weights, class)), int64(weightIn(after.Weights, class)))
		}
		differs("max_running", int64(before.MaxRunning), int64(after.MaxRunning))
	}
}

func weightIn(weights Weights, class admission.Priority) admission.Weight {
	return max(weights[class], 1)
}

// TenantWeight names one tenant's weight in one class.
type TenantWeight struct {
	Tenant string
	Class  admission.Priority
	// ByTier says that it is that of its tier: one whose record names another tier has that one's.
	ByTier bool
}

// ConfiguredWeights yields each weight of a configured tenant that differs from what the standard tier gives in that class, and where tenants
// have records each that is its own, by tenant and then by class: what a store must be told that takes every other tenant for standard.
// A weight that was yielded for an earlier policy and is not for this one has become the standard tier's.
func (c *Compiled) ConfiguredWeights() iter.Seq2[TenantWeight, admission.Weight] {
	return func(yield func(TenantWeight, admission.Weight) bool) {
		for _, tenant := range c.ranked {
			view, own := c.tenants[tenant], c.sideOf(tenant).Tenants[tenant].Weights
			classes := maps.Clone(view.weights)
			maps.Copy(classes, c.standard.weights)
			for _, class := range sortedKeys(classes) {
				weight, byTier := cmp.Or(view.weights[class], 1), c.records != nil && own[class] == 0
				if weight == cmp.Or(c.standard.weights[class], 1) && (c.records == nil || byTier) {
					continue
				}
				if !yield(TenantWeight{tenant, class, byTier}, weight) {
					return
				}
			}
		}
	}
}

// TierWeights returns the weights of each tier in a class, for tenants whose records name it, where they differ from those of StandardTier; nil where
// tenants have no records.
func (c *Compiled) TierWeights(class admission.Priority) (by map[string]admission.Weight) {
	if c.records == nil {
		return nil
	}
	for name, tier := range c.base.Tiers {
		weight := weightIn(tier.Weights, class)
		if weight == weightIn(c.base.Tiers[StandardTier].Weights, class) {
			continue
		}
		if by == nil {
			by = map[string]admission.Weight{}
		}
		by[name] = weight
	}
	return by
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
				Queues: convert(tenant.Queues, func(_ string, in TenantQueue) tenantQueueJSON { return tenantQueueJSON{typeLimitsJSON(in.TypeLimits)} }),
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
				return TierQueue{each.Limit, each.PriorityLimits, each.TypeLimits, in.Overflow}
			})
			return read
		}),
		Tenants: convert(w.Tenants, func(name string, tenant tenantJSON) Tenant {
			return Tenant{
				Tier: tenant.Tier, Limit: bad.limit(at+"tenants."+name+".limit", tenant.Limit), Weights: tenant.Weights,
				MaxRunning: tenant.MaxRunning, Dispatch: bad.limit(at+"tenants."+name+".dispatch", tenant.Dispatch),
				Queues: convert(tenant.Queues, func(queue string, in tenantQueueJSON) TenantQueue {
					return TenantQueue{bad.types(at+"tenants."+name+".queues."+queue+".", in.TypeLimits)}
				}),
			}
		}),
		QueueLimits: convert(w.QueueLimits, limits("queue_limits.")), PriorityLimits: convert(w.PriorityLimits, limits("priority_limits.")),
		Overflows: w.Overflows, MaxRunning: w.MaxRunning,
	}
}
