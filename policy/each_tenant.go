package policy

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
)

// EachTenant is what each tenant has in a queue: they share the figures, not the tokens.
//
//nolint:recvcheck // It is a plain value; what is asked often spares the copy.
type EachTenant struct {
	// Limit is that of the tenant's jobs in the queue. The zero Limit says nothing; a Disabled one says that there is none.
	Limit admission.Limit
	// PriorityLimits are those of its jobs of one class there.
	PriorityLimits map[admission.Priority]admission.Limit
	// TypeLimits are those of its jobs of one type there, by Job.Type, up to MaxTypeLimits; Every is each type that is not named. Each type has a
	// bucket of its own, beside that of the class.
	TypeLimits map[string]admission.Limit
}

// MaxTypeLimits is of how many types of jobs limits may be said in one place.
const MaxTypeLimits = 1000

// TierQueue is what each tenant of a tier has in a queue.
type TierQueue struct {
	// Limit, PriorityLimits and TypeLimits are as in EachTenant.
	Limit          admission.Limit
	PriorityLimits map[admission.Priority]admission.Limit
	TypeLimits     map[string]admission.Limit
	// Overflow bounds the tenant's depth in the queue; the zero Overflow says nothing, and one of NoBound that there is no bound.
	Overflow Overflow
}

// TenantQueue is what one tenant has of its own in a queue, beside the limits of its scopes there.
type TenantQueue struct {
	// TypeLimits are as in EachTenant.
	TypeLimits map[string]admission.Limit
}

func (q TierQueue) limits() EachTenant { return EachTenant{q.Limit, q.PriorityLimits, q.TypeLimits} }

func (e *EachTenant) empty() bool {
	return e.Limit == (admission.Limit{}) && len(e.PriorityLimits)+len(e.TypeLimits) == 0
}

// at returns the limit at a level, LevelQueue or LevelPriority, and whether anything is said of it; in the place of a class may stand a type. It does not
// allocate.
func (e *EachTenant) at(level admission.Level, class admission.Priority) (limit admission.Limit, said bool) {
	if level == admission.LevelQueue {
		return e.Limit, e.Limit != admission.Limit{}
	}
	if limit, said = e.PriorityLimits[class]; said || len(e.TypeLimits) == 0 {
		return limit, said
	}
	if jobType, ok := class.JobType(); ok {
		return e.ofType(jobType)
	}
	return limit, false
}

// ofType returns the limit of jobs of a type, and whether anything is said of it. It does not allocate.
func (e *EachTenant) ofType(jobType string) (limit admission.Limit, said bool) {
	if limit, said = e.TypeLimits[jobType]; said {
		return limit, said
	}
	limit, said = e.TypeLimits[Every]
	return limit, said
}

// typeName is the name by which limits of types have that which stands in the place of a class; "" for a class.
func (e *EachTenant) typeName(class admission.Priority) string {
	jobType, ok := class.JobType()
	if !ok {
		return ""
	}
	if _, named := e.TypeLimits[jobType]; !named {
		return Every
	}
	return jobType
}

// path leads to the limit at a level, from where it stands.
func (e *EachTenant) path(level admission.Level, class admission.Priority) []string {
	switch name := e.typeName(class); {
	case level == admission.LevelQueue:
		return []string{"limit"}
	case name != "":
		return []string{"type_limits", name}
	}
	return []string{"priority_limits", string(class)}
}

// TypeLimit returns the limit of a tenant's jobs of a type in a queue, which they have beside those of LimitsFor; nil for none. It does not allocate where
// neither the policy nor a record that is known has one of any type.
func (c *Compiled) TypeLimit(tenant, queue, jobType string) *admission.Limit {
	if !c.limitsTypes() {
		return nil
	}
	return c.typeLimit(c.standing(tenant), queue, jobType)
}

// WayOfType is WayFor with what TypeLimit returns, all of it by the same version of the tenant's record.
func (c *Compiled) WayOfType(tenant, queue string, class admission.Priority, jobType string) (Limits, *admission.Limit, int64) {
	of := c.standing(tenant)
	limits := c.wayBy(of, queue, class)
	if !c.limitsTypes() {
		return limits, nil, of.version
	}
	return limits, c.typeLimit(of, queue, jobType), of.version
}

// limitsTypes reports whether jobs of some type may have a limit.
func (c *Compiled) limitsTypes() bool { return c.typed || c.recordsLimitTypes() }

func (c *Compiled) recordsLimitTypes() bool { return c.records != nil && c.records.typed.Load() }

// typeLimit is TypeLimit of a tenant by what it has.
func (c *Compiled) typeLimit(of standing, queue, jobType string) *admission.Limit {
	limit := c.typeRule(of, queue, jobType)
	if limit.Disabled || limit.Tokens == 0 {
		return nil
	}
	limits := Limits{admission.LevelPriority: limit}
	c.floor(&limits, of.view.tier, queue)
	limit = limits[admission.LevelPriority]
	return &limit
}

// typeRule returns the first limit of a type that is said; the zero Limit for none.
func (c *Compiled) typeRule(of standing, queue, jobType string) admission.Limit {
	if of.own != nil {
		in := of.own.Queues[queue]
		if limit, said := in.ofType(jobType); said {
			return limit
		}
	}
	for _, rule := range c.rulesIn(of.view, queue) {
		if rule == nil {
			continue
		}
		if limit, said := rule.ofType(jobType); said {
			return limit
		}
	}
	return admission.Limit{}
}

// CountsType reports whether decisions on a tenant's jobs of a type in a queue are counted by type, too: where these have a limit, also one of a
// candidate in shadow, and where their scope is observed. It does not allocate where there is none of any type.
func (c *Compiled) CountsType(tenant, queue, jobType string) bool {
	shadow := c.shadow != nil && c.shadow.typed
	if !c.limitsTypes() && !shadow && !c.observesTypes {
		return false
	}
	limited := func(by *Compiled, of standing) bool {
		limit := by.typeRule(of, queue, jobType)
		return !limit.Disabled && limit.Tokens > 0
	}
	return limited(c, c.standing(tenant)) || shadow && limited(c.shadow, c.shadowStanding(tenant)) ||
		c.observesTypes && c.observed[admission.ScopeAt(admission.LevelPriority, tenant, queue, admission.OfType(jobType))]
}

// ShadowTypeLimit is TypeLimit of a candidate in shadow, for those of whom ShadowFor says that they are in.
func (c *Compiled) ShadowTypeLimit(tenant, queue, jobType string) *admission.Limit {
	if !c.shadow.typed && !c.recordsLimitTypes() {
		return nil
	}
	return c.shadow.typeLimit(c.shadowStanding(tenant), queue, jobType)
}

func typeLimitsJSON(limits map[string]admission.Limit) map[string]limitJSON {
	return convert(limits, func(_ string, l admission.Limit) limitJSON { return *newLimitJSON(l) })
}

// types returns what was written of limits of types, and adds what cannot be read. at is what the path to each field begins with.
func (p *problems) types(at string, written map[string]limitJSON) map[string]admission.Limit {
	return convert(written, func(jobType string, l limitJSON) admission.Limit { return l.limit(at+"type_limits."+jobType, p) })
}

func (e EachTenant) wire() eachTenantJSON {
	w := eachTenantJSON{
		PriorityLimits: convert(e.PriorityLimits, func(_ admission.Priority, l admission.Limit) limitJSON { return *newLimitJSON(l) }),
		TypeLimits:     typeLimitsJSON(e.TypeLimits),
	}
	if e.Limit != (admission.Limit{}) {
		w.Limit = newLimitJSON(e.Limit)
	}
	return w
}

// eachTenant returns what was written, and adds what cannot be read to bad. at is what the path to each field begins with.
func (w eachTenantJSON) eachTenant(at string, bad *problems) EachTenant {
	var e EachTenant
	if w.Limit != nil {
		if e.Limit = w.Limit.limit(at+"limit", bad); e.Limit == (admission.Limit{}) {
			bad.field(at+"limit.tokens", "0", `1 to 1000000000; for no limit "enabled": false, or leave "limit" out`)
		}
	}
	e.PriorityLimits = convert(w.PriorityLimits, func(class admission.Priority, l limitJSON) admission.Limit {
		return l.limit(at+"priority_limits."+string(class), bad)
	})
	e.TypeLimits = bad.types(at, w.TypeLimits)
	return e
}

// withDefaults returns a copy with bursts filled in.
func (e EachTenant) withDefaults() EachTenant {
	return EachTenant{withBurst(e.Limit), withBursts(e.PriorityLimits), withBursts(e.TypeLimits)}
}

// tiersWithDefaults returns a copy of tiers with the bounds in their queues filled in; nil stays nil.
func tiersWithDefaults(tiers map[string]Tier) map[string]Tier {
	tiers = maps.Clone(tiers)
	for name, tier := range tiers {
		tier.Limit, tier.Overflow, tier.Queues = withBurst(tier.Limit), tier.Overflow.withDefaults(), maps.Clone(tier.Queues)
		for queue, in := range tier.Queues {
			each := in.limits().withDefaults()
			tier.Queues[queue] = TierQueue{each.Limit, each.PriorityLimits, each.TypeLimits, in.Overflow.withDefaults()}
		}
		tiers[name] = tier
	}
	return tiers
}

// validateEachTenant checks what each tenant has in queues, and what queues nobody named have.
func (p Policy) validateEachTenant(bad *problems) {
	for _, name := range sortedKeys(p.Queues) {
		p.validateIn(bad, "queues."+name+".each_tenant.", name, p.Queues[name].EachTenant)
	}
	for _, tier := range sortedKeys(p.Tiers) {
		p.Tiers[tier].Overflow.validateTotal(bad, "tiers."+tier+".overflow")
		for _, queue := range sortedKeys(p.Tiers[tier].Queues) {
			in, at := p.Tiers[tier].Queues[queue], "tiers."+tier+".queues."+queue+"."
			if queue != Every {
				bad.add(admission.ValidateName("tiers."+tier+".queues", queue, true))
			}
			p.validateIn(bad, at, queue, in.limits())
			in.Overflow.validate(bad, at+"overflow")
		}
	}
	every, named := p.Queues[Every]
	if !named {
		return
	}
	const of = "queues." + Every
	for _, one := range []struct {
		field string
		value int
	}{{"max_running", every.MaxRunning}, {"max_running_per_tenant", every.MaxRunningPerTenant}} {
		if one.value != 0 {
			bad.field(of+"."+one.field, strconv.Itoa(one.value), "none: it belongs to a queue that is named")
		}
	}
	if every.Pressure != nil {
		bad.field(of+".pressure", "{…}", "none: it belongs to a queue that is named")
	}
	if _, both := p.Overflows[Every+":"+Every]; both && every.Overflow != (Overflow{}) {
		bad.field(of+".overflow", strconv.Quote(string(every.Overflow.Policy)), `none beside "*:*" of overflows, which says the same`)
	}
}

// validateIn checks the limits of each tenant in a queue.
func (p Policy) validateIn(bad *problems, at, queue string, e EachTenant) {
	if e.Limit != (admission.Limit{}) {
		bad.add(e.Limit.Validate(at + "limit"))
	}
	bad.typeLimits(at, e.TypeLimits)
	if len(e.PriorityLimits) == 0 {
		return
	}
	of, names := "of queue "+queue, classNames(p.queueOf(queue).Classes)
	if queue == Every {
		of = "of any queue"
		for _, q := range p.Queues {
			names = append(names, classNames(q.Classes)...)
		}
		slices.Sort(names)
		names = slices.Compact(names)
	}
	for _, class := range sortedKeys(e.PriorityLimits) {
		if !slices.Contains(names, string(class)) {
			bad.field(at+"priority_limits", strconv.Quote(string(class)), "a class "+of+": "+quoteNames(names))
		}
		bad.add(e.PriorityLimits[class].Validate(at + "priority_limits." + string(class)))
	}
}

// queueOf returns what a policy that has its defaults says of a queue.
func (p Policy) queueOf(queue string) Queue {
	if q, named := p.Queues[queue]; named {
		return q
	}
	return p.Queues[Every].withDefaults()
}

// Clause is the part of a policy that decides.
type Clause struct {
	// Of says whose it is, as in "default of tier gold in queue mail"; Path leads to it, as for At. Both are empty where nothing says
	// anything.
	Of   string
	Path []string
}

// Pointer writes the path as a JSON pointer (RFC 6901); empty for none.
func (c Clause) Pointer() string {
	var text strings.Builder
	for _, name := range c.Path {
		text.WriteString("/" + escapeName.Replace(name))
	}
	return text.String()
}

// LimitClause returns the rule that decides the limit of a level on the way of a job: the first of those that package policy lists. In the place of a
// class may stand a type.
func (p Policy) LimitClause(level admission.Level, tenant, queue string, class admission.Priority) Clause {
	scope := admission.ScopeAt(level, tenant, queue, class)
	switch level {
	case admission.LevelGlobal:
		if p.Global == noLimit || p.Global == (admission.Limit{}) {
			return Clause{}
		}
		return Clause{"limit of all", []string{"global"}}
	case admission.LevelTenant:
		if own, at := p.tenantRules(tenant); own.Limit != nil {
			return Clause{"override of tenant " + tenant, append(at, "limit")}
		}
		_, at := p.tierRules(tenant)
		return Clause{"default of tier " + p.TierOf(tenant), append(at, "limit")}
	default: // Those of queues follow.
	}
	if queue == "" || level == admission.LevelPriority && class == "" {
		return Clause{}
	}
	if of := p.ownTypeClause(tenant, queue, class); level == admission.LevelPriority && of.Path != nil {
		return of
	}
	section, base, side := "queue_limits", p.QueueLimits, p.candidateFor(tenant).QueueLimits
	if level == admission.LevelPriority {
		section, base, side = "priority_limits", p.PriorityLimits, p.candidateFor(tenant).PriorityLimits
	}
	if _, own := side[scope]; own {
		return Clause{"override of " + string(scope), []string{"rollout", "rules", section, string(scope)}}
	}
	if _, own := base[scope]; own {
		return Clause{"override of " + string(scope), []string{section, string(scope)}}
	}
	path := func(e EachTenant) []string {
		if _, said := e.at(level, class); !said {
			return nil
		}
		return e.path(level, class)
	}
	return p.inQueue(tenant, queue, func(in TierQueue) []string { return path(in.limits()) }, func(q Queue) []string {
		if of := path(q.EachTenant); of != nil {
			return append([]string{"each_tenant"}, of...)
		}
		return nil
	})
}

// ownTypeClause returns the rule of a tenant's own that decides the limit of a type; none for a class.
func (p Policy) ownTypeClause(tenant, queue string, class admission.Priority) Clause {
	jobType, ofType := class.JobType()
	own, at := p.tenantRules(tenant)
	in := EachTenant{TypeLimits: own.Queues[queue].TypeLimits}
	if _, said := in.ofType(jobType); !ofType || !said {
		return Clause{}
	}
	path := append([]string{"queues", queue}, in.path(admission.LevelPriority, class)...)
	return Clause{"override of " + string(admission.ScopeAt(admission.LevelPriority, tenant, queue, class)), append(at, path...)}
}

// OverflowClause returns the rule that decides the bound of a tenant's depth in a queue, or over all where the queue is empty.
func (p Policy) OverflowClause(tenant, queue string) Clause {
	if queue == "" {
		return p.totalClause(tenant)
	}
	scope := admission.ScopeAt(admission.LevelQueue, tenant, queue, "")
	if _, own := p.candidateFor(tenant).Overflows[scope]; own {
		return Clause{"override of " + string(scope), []string{"rollout", "rules", "overflows", string(scope)}}
	}
	if _, own := p.Overflows[scope]; own {
		return Clause{"override of " + string(scope), []string{"overflows", string(scope)}}
	}
	path := func(o Overflow) []string {
		if o == (Overflow{}) {
			return nil
		}
		return []string{"overflow"}
	}
	rule := p.inQueue(tenant, queue, func(in TierQueue) []string { return path(in.Overflow) }, func(q Queue) []string { return path(q.Overflow) })
	if _, all := p.Overflows[Every+":"+Every]; all && rule.Path == nil {
		return Clause{"default of queues without a bound", []string{"overflows", Every + ":" + Every}}
	}
	return rule
}

// inQueue returns the first rule of each tenant in a queue: the tier's and the queue's, then those of Every. in says what the path to it ends with where a
// tier says something, and of does so for a queue; nil where it says nothing.
func (p Policy) inQueue(tenant, queue string, in func(TierQueue) []string, of func(Queue) []string) Clause {
	tier, at := p.tierRules(tenant)
	for _, name := range []string{queue, Every} {
		where := "queue " + name
		if name == Every {
			where = "every queue"
		}
		if path := in(tier.Queues[name]); path != nil {
			return Clause{"default of tier " + p.TierOf(tenant) + " in " + where, slices.Concat(at, []string{"queues", name}, path)}
		}
		if path := of(p.Queues[name]); path != nil {
			return Clause{"default of " + where, slices.Concat([]string{"queues", name}, path)}
		}
	}
	return Clause{}
}

// candidateFor returns the rules of the roll-out that a tenant has before the others; none for one that is not in.
func (p Policy) candidateFor(tenant string) Rules {
	if r := p.Rollout.inForce(); r.Has(tenant) {
		return r.Rules
	}
	return Rules{}
}

// tenantRules returns what a tenant has of its own, and the path to it.
func (p Policy) tenantRules(tenant string) (Tenant, []string) {
	if own, in := p.candidateFor(tenant).Tenants[tenant]; in {
		return own, []string{"rollout", "rules", "tenants", tenant}
	}
	return p.Tenants[tenant], []string{"tenants", tenant}
}

// tierRules returns the tier of a tenant, and the path to it.
func (p Policy) tierRules(tenant string) (Tier, []string) {
	name := p.TierOf(tenant)
	if tier, in := p.candidateFor(tenant).Tiers[name]; in {
		return tier, []string{"rollout", "rules", "tiers", name}
	}
	return p.Tiers[name], []string{"tiers", name}
}
