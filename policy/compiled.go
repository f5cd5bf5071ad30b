package policy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// Limits are the limits on one job's way, by headgate.Level; Disabled where the scope has none.
type Limits [admission.Levels]admission.Limit

// Compiled is a valid policy prepared for lookups. It never changes but for what it learns of tenants' records, and any number of goroutines
// may use it.
type Compiled struct {
	version     int64
	dedupWindow time.Duration
	global      admission.Limit
	// reserved is what is kept of global for some classes, nil for nothing.
	reserved *GlobalReserved
	// bypass is who goes beside limits, nil for nobody.
	bypass   *Bypass
	standard tenantView
	// base is the policy without its roll-out, and promoted that with it: what tenants have whose records say something of tier or weights.
	base, promoted side
	// rollout is nil where every tenant has the same rules; candidate is then of no use, and else what standard is for
	// the others.
	rollout   *Rollout
	candidate tenantView
	// shadow is the policy with the candidate in force for all, where that is in shadow for those who are in shadowed.
	shadow      *Compiled
	shadowed    *Rollout
	tenants     map[string]*tenantView
	queues      map[string]Queue
	overflows   map[admission.Scope]Overflow
	maxRunning  map[admission.Scope]int
	downstreams map[string]Downstream
	observed    map[admission.Scope]bool
	adaptive    map[string]Adaptive
	// protecting are those of adaptive that cut some tiers last, by their queue.
	protecting map[string]Adaptive
	// shedding is what is refused while queues are pressed, and sheds how many places of its order at each level.
	shedding   *Shedding
	sheds      [admission.PressureCritical + 1]int
	load       *LoadRules
	anomalies  *AnomalyRules
	triggers   map[string]Trigger
	semaphores map[string]SemaphoreRules
	// dimensions are those that are declared, and dimensionOwners what values have by what their scopes begin with; nil for none.
	dimensions      []*dimension
	dimensionOwners map[string]dimensionOwner
	// each is what each tenant has in a queue, Every in those for which nothing says more; queues that say nothing are not there.
	each map[string]*EachTenant
	// tierBounds are the bounds of each tenant of a tier in a queue, by both; tiers that say nothing are not there.
	tierBounds map[string]map[string]Overflow
	// tierTotals are the bounds of each tenant of a tier over all its queues.
	tierTotals map[string]Overflow
	// tiers are the names of all tiers, those that only a candidate has among them.
	tiers []string
	usage int
	// expireAfter is that of reservations of which no queue says more, zero for the default.
	expireAfter time.Duration
	// typed says that some jobs have limits by their type, and observesTypes that some scopes of types are in observed.
	typed, observesTypes bool
	// records are what tenants have beside the policy, as far as it has learned; nil where it has none.
	records *records
	// anyDownstream is every downstream that nobody configured.
	anyDownstream Downstream
	// other is every queue that nobody configured.
	other Queue
	// ranked are the configured tenants' names in order.
	ranked []string
}

// tenantView is all that applies to one tenant, its tier's part already merged in.
type tenantView struct {
	limit      admission.Limit
	weights    Weights
	maxRunning int
	dispatch   *admission.Limit
	tier       string
	// queues are its own limits in queues, and inTier those of its tier, which all tenants of the tier share.
	queues, inTier map[string]*EachTenant
}

// Prepare validates the policy and returns it in the form that answers without allocating. Later changes to the
// policy's maps do not show in it.
func (p Policy) Prepare() (*Compiled, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	p = p.withDefaults()
	c := &Compiled{
		version: p.Version, dedupWindow: p.DedupWindow, global: p.Global, reserved: p.GlobalReserved, bypass: p.Bypass, rollout: p.Rollout.inForce(),
		tenants: make(map[string]*tenantView), queues: p.Queues, other: p.Queues[Every].withDefaults(),
		overflows: make(map[admission.Scope]Overflow), maxRunning: make(map[admission.Scope]int),
		downstreams: p.Downstreams, anyDownstream: p.AnyDownstream, adaptive: p.Adaptive, shedding: p.Shedding, load: p.Load, anomalies: p.Anomalies, triggers: p.Triggers, semaphores: p.Semaphores,
	}
	if c.expireAfter = p.Reservations.ExpireAfter; p.Usage != nil {
		c.usage = p.Usage.Tenants
	}
	if p.TenantRecords {
		c.records = &records{}
	}
	if p.Shedding != nil {
		c.sheds = p.Shedding.levels()
	}
	c.observed = make(map[admission.Scope]bool, len(p.Observe))
	for _, scope := range p.Observe {
		c.observed[scope] = true
		_, _, class, _ := scope.Parts()
		_, ofType := class.JobType()
		c.observesTypes = c.observesTypes || ofType
	}
	c.protecting = protecting(p.Adaptive)
	c.resolve(p)
	c.resolveDimensions(p.Dimensions)
	c.ranked = sortedKeys(c.tenants)
	if p.Rollout != nil && p.Rollout.Shadow {
		var err error
		c.shadowed = p.Rollout
		c.shadow, err = p.Promoted().Prepare()
		return c, err
	}
	return c, nil
}

// resolve fills in all that is chosen by tenant.
func (c *Compiled) resolve(p Policy) {
	candidate := p.Promoted().side() // It has all names of p.
	base := p.side()
	c.base, c.promoted = base, candidate
	c.standard, c.candidate = base.viewOf(Tenant{Tier: StandardTier}), candidate.viewOf(Tenant{Tier: StandardTier})
	c.typed = base.typed || candidate.typed
	c.resolveEach(candidate.Policy)
	of := func(tenant string) *side {
		if c.rollout.Has(tenant) {
			return &candidate
		}
		return &base
	}
	for name := range candidate.Tenants {
		if tenant, ok := of(name).Tenants[name]; ok {
			c.tenants[name] = new(of(name).viewOf(tenant))
			for queue, in := range tenant.Queues {
				c.typed = c.typed || len(in.TypeLimits) > 0
				c.ownIn(name, queue).TypeLimits = in.TypeLimits
			}
		}
	}
	for scope := range candidate.QueueLimits {
		tenant, queue, _ := strings.Cut(string(scope), ":")
		if limit, ok := of(tenant).QueueLimits[scope]; ok {
			c.ownIn(tenant, queue).Limit = limit
		}
	}
	for scope := range candidate.PriorityLimits {
		tenant, rest, _ := strings.Cut(string(scope), ":")
		queue, class, _ := strings.Cut(rest, ":")
		if limit, ok := of(tenant).PriorityLimits[scope]; ok {
			c.ownIn(tenant, queue).PriorityLimits[admission.Priority(class)] = limit
		}
	}
	for scope := range candidate.Overflows {
		tenant, _, _ := strings.Cut(string(scope), ":")
		if overflow, ok := of(tenant).Overflows[scope]; ok {
			c.overflows[scope] = overflow
		}
	}
	for scope := range candidate.MaxRunning {
		tenant, _, _ := strings.Cut(string(scope), ":")
		if most, ok := of(tenant).MaxRunning[scope]; ok {
			c.maxRunning[scope] = most
		}
	}
}

// resolveEach fills in what is said of each tenant in queues, and of each tenant of a tier. p has the tiers of both sides.
func (c *Compiled) resolveEach(p Policy) {
	c.tiers, c.tierTotals = sortedKeys(p.Tiers), make(map[string]Overflow, len(p.Tiers))
	for name, tier := range p.Tiers {
		c.tierTotals[name] = tier.Overflow
	}
	for name, queue := range p.Queues {
		if each := queue.EachTenant; !each.empty() {
			c.typed = c.typed || len(each.TypeLimits) > 0
			if c.each == nil {
				c.each = map[string]*EachTenant{}
			}
			c.each[name] = &each
		}
	}
	for name, tier := range p.Tiers {
		for queue, in := range tier.Queues {
			if in.Overflow == (Overflow{}) {
				continue
			}
			if c.tierBounds == nil {
				c.tierBounds = map[string]map[string]Overflow{}
			}
			if c.tierBounds[name] == nil {
				c.tierBounds[name] = map[string]Overflow{}
			}
			c.tierBounds[name][queue] = in.Overflow
		}
	}
}

// ownIn returns what a tenant has of its own in a queue, to fill in, made when it is the first of its tenant and queue.
func (c *Compiled) ownIn(tenant, queue string) *EachTenant {
	view := c.tenants[tenant]
	if view == nil {
		view = new(*c.strangerOf(tenant))
		c.tenants[tenant] = view
	}
	if view.queues == nil {
		view.queues = make(map[string]*EachTenant)
	}
	if view.queues[queue] == nil {
		view.queues[queue] = &EachTenant{PriorityLimits: make(map[admission.Priority]admission.Limit)}
	}
	return view.queues[queue]
}

// Version returns the policy's version; 0 is the built-in policy.
func (c *Compiled) Version() int64 { return c.version }

// DedupWindow returns how long the id of an ended job is remembered.
func (c *Compiled) DedupWindow() time.Duration { return c.dedupWindow }

// Observes reports whether the decisions of a scope are to be counted always.
func (c *Compiled) Observes(scope admission.Scope) bool { return c.observed[scope] }

// LimitsFor returns the limits on the way of a job. A way without a queue ends at its tenant, one without a class at its queue. It does
// not allocate.
func (c *Compiled) LimitsFor(tenant, queue string, class admission.Priority) Limits {
	limits, _ := c.WayFor(tenant, queue, class)
	return limits
}

// WayFor is LimitsFor with the version of the tenant's record that they come from, for store.Question.Record: zero where the policy has no
// records.
func (c *Compiled) WayFor(tenant, queue string, class admission.Priority) (Limits, int64) {
	of := c.standing(tenant)
	return c.wayBy(of, queue, class), of.version
}

// wayBy are the limits on a way of a tenant.
func (c *Compiled) wayBy(of standing, queue string, class admission.Priority) Limits {
	limits := c.limitsFor(of.view, queue, class)
	if of.own != nil {
		of.own.over(&limits, queue, class)
	}
	c.floor(&limits, of.view.tier, queue)
	return limits
}

// limitsFor is what the policy itself says.
func (c *Compiled) limitsFor(view *tenantView, queue string, class admission.Priority) Limits {
	limits := Limits{c.globalFor(class), view.limit, noLimit, noLimit}
	if queue == "" {
		return limits
	}
	rules := c.rulesIn(view, queue)
	limits[admission.LevelQueue] = firstOf(&rules, admission.LevelQueue, class)
	if class != "" {
		limits[admission.LevelPriority] = firstOf(&rules, admission.LevelPriority, class)
	}
	return limits
}

// rulesIn are those that may say something of a tenant's jobs in a queue, the nearest first.
func (c *Compiled) rulesIn(view *tenantView, queue string) [5]*EachTenant {
	return [...]*EachTenant{view.queues[queue], view.inTier[queue], c.each[queue], view.inTier[Every], c.each[Every]}
}

// firstOf returns the limit of the first rule that says something of a level.
func firstOf(rules *[5]*EachTenant, level admission.Level, class admission.Priority) admission.Limit {
	for _, rule := range rules {
		if rule == nil {
			continue
		}
		if limit, said := rule.at(level, class); said {
			return limit
		}
	}
	return noLimit
}

// ShadowID names the candidate that is in shadow; empty for none.
func (c *Compiled) ShadowID() string {
	if c.shadow == nil {
		return ""
	}
	return c.shadowed.ID
}

// ShadowFor returns the limits that a candidate in shadow has for a job, and whether its tenant is in. It does not allocate.
func (c *Compiled) ShadowFor(tenant, queue string, class admission.Priority) (Limits, bool) {
	if c.shadow == nil || !c.shadowed.Has(tenant) {
		return Limits{}, false
	}
	return c.shadow.wayBy(c.shadowStanding(tenant), queue, class), true
}

// documentView returns what the policy has for a tenant, whatever its record says.
func (c *Compiled) documentView(tenant string) *tenantView {
	if view := c.tenants[tenant]; view != nil {
		return view
	}
	return c.strangerOf(tenant)
}

// strangerOf returns what applies to a tenant that nobody configured.
func (c *Compiled) strangerOf(tenant string) *tenantView {
	if c.rollout.Has(tenant) {
		return &c.candidate
	}
	return &c.standard
}

// WeightOf returns the tenant's share in a class: its own, else its tier's, else 1. It does not allocate.
func (c *Compiled) WeightOf(tenant string, class admission.Priority) admission.Weight {
	return cmp.Or(c.viewOf(tenant).weights[class], 1)
}

// QueueOf returns what applies to a queue, with every default filled in. The Classes, the
// PriorityLimits and the TypeLimits are the caller's.
func (c *Compiled) QueueOf(queue string) Queue {
	q := c.queueOf(queue)
	q.Classes, q.EachTenant.PriorityLimits, q.EachTenant.TypeLimits = slices.Clone(q.Classes), maps.Clone(q.EachTenant.PriorityLimits), maps.Clone(q.EachTenant.TypeLimits)
	return q
}

// RetriesOf returns how many runs a job of a queue may ask for, and the least that its own header may give it to wait after one
// that failed. It does not allocate.
func (c *Compiled) RetriesOf(queue string) (mostAttempts int, leastBackoff time.Duration) {
	q, ok := c.queues[queue]
	if !ok {
		q = c.other
	}
	return cmp.Or(q.MostAttempts, DefaultMostAttempts), cmp.Or(q.LeastBackoff, DefaultLeastBackoff)
}

// DoomedPercent returns how many percent of what a job of a queue may wait its predicted wait may be before it is refused; 0 for never. It
// does not allocate.
func (c *Compiled) DoomedPercent(queue string) int {
	if q, ok := c.queues[queue]; ok {
		return q.DoomedPercent
	}
	return c.other.DoomedPercent
}

// ClassesOf returns the classes of a queue, the most urgent first. The slice is the caller's.
func (c *Compiled) ClassesOf(queue string) []admission.Class { return c.QueueOf(queue).Classes }

// ClassIndex returns the place of a class in its queue's order, 0 the most urgent, and whether the queue has it.
// An empty class is none: the producer replaces it with headgate.Medium before it asks. It does not allocate.
func (c *Compiled) ClassIndex(queue string, class admission.Priority) (int, bool) {
	for i, candidate := range c.queueOf(queue).Classes {
		if candidate.Name == class {
			return i, true
		}
	}
	return 0, false
}

// ClassAt returns the class at a place of its queue's order, and whether there is one. It does not allocate.
func (c *Compiled) ClassAt(queue string, place int) (admission.Priority, bool) {
	classes := c.queueOf(queue).Classes
	if place < 0 || place >= len(classes) {
		return "", false
	}
	return classes[place].Name, true
}

// ClassNamed returns the class that a job's priority stands for: a class of the queue by its name, or, for "0" to
// "10", the one that ClassOfNumber gives.
func (c *Compiled) ClassNamed(queue string, priority admission.Priority) (admission.Priority, bool) {
	if _, ok := c.ClassIndex(queue, priority); ok {
		return priority, true
	}
	number, err := strconv.Atoi(string(priority))
	if err != nil {
		return "", false
	}
	class, err := ClassOfNumber(number, c.queueOf(queue).Classes)
	return class, err == nil
}

func (c *Compiled) queueOf(queue string) Queue {
	if q, ok := c.queues[queue]; ok {
		return q
	}
	return c.other
}
