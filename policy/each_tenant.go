package policy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
)

// EachTenant is what each tenant has in a queue: they share the figures, not the tokens.
type EachTenant struct {
	// Limit is that of the tenant's jobs in the queue. The zero Limit says nothing; a Disabled one says that there is none.
	Limit admission.Limit
	// PriorityLimits are those of its jobs of one class there.
	PriorityLimits map[admission.Priority]admission.Limit
}

// TierQueue is what each tenant of a tier has in a queue.
type TierQueue struct {
	// Limit and PriorityLimits are as in EachTenant.
	Limit          admission.Limit
	PriorityLimits map[admission.Priority]admission.Limit
	// Overflow bounds the tenant's depth in the queue; the zero Overflow says nothing, and one of NoBound that there is no bound.
	Overflow Overflow
}

func (q TierQueue) limits() EachTenant { return EachTenant{q.Limit, q.PriorityLimits} }

func (e *EachTenant) empty() bool {
	return e.Limit == (admission.Limit{}) && len(e.PriorityLimits) == 0
}

// at returns the limit at a level, LevelQueue or LevelPriority, and whether anything is said of it. It does not allocate.
func (e *EachTenant) at(level admission.Level, class admission.Priority) (limit admission.Limit, said bool) {
	if level == admission.LevelQueue {
		return e.Limit, e.Limit != admission.Limit{}
	}
	limit, said = e.PriorityLimits[class]
	return limit, said
}

func (e EachTenant) wire() eachTenantJSON {
	w := eachTenantJSON{PriorityLimits: convert(e.PriorityLimits, func(_ admission.Priority, l admission.Limit) limitJSON { return *newLimitJSON(l) })}
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
	return e
}

// tiersWithDefaults returns a copy of tiers with the bounds in their queues filled in; nil stays nil.
func tiersWithDefaults(tiers map[string]Tier) map[string]Tier {
	tiers = maps.Clone(tiers)
	for name, tier := range tiers {
		tier.Limit, tier.Overflow, tier.Queues = withBurst(tier.Limit), tier.Overflow.withDefaults(), maps.Clone(tier.Queues)
		for queue, in := range tier.Queues {
			in.Limit, in.PriorityLimits, in.Overflow = withBurst(in.Limit), withBursts(in.PriorityLimits), in.Overflow.withDefaults()
			tier.Queues[queue] = in
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

// LimitClause returns the rule that decides the limit of a level on the way of a job: the first of those that package policy lists.
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
	}
	if queue == "" || level == admission.LevelPriority && class == "" {
		return Clause{}
	}
	section, base, side := "queue_limits", p.QueueLimits, p.candidateFor(tenant).QueueLimits
	last := []string{"limit"}
	if level == admission.LevelPriority {
		section, base, side = "priority_limits", p.PriorityLimits, p.candidateFor(tenant).PriorityLimits
		last = []string{"priority_limits", string(class)}
	}
	if _, own := side[scope]; own {
		return Clause{"override of " + string(scope), []string{"rollout", "rules", section, string(scope)}}
	}
	if _, own := base[scope]; own {
		return Clause{"override of " + string(scope), []string{section, string(scope)}}
	}
	return p.inQueue(tenant, queue, func(in TierQueue) bool {
		e := in.limits()
		_, said := e.at(level, class)
		return said
	}, func(q Queue) []string {
		if _, said := q.EachTenant.at(level, class); !said {
			return nil
		}
		return append([]string{"each_tenant"}, last...)
	}, last)
}

// OverflowClause returns the rule that decides the bound of a tenant's depth in a queue.
func (p Policy) OverflowClause(tenant, queue string) Clause {
	scope := admission.ScopeAt(admission.LevelQueue, tenant, queue, "")
	if _, own := p.candidateFor(tenant).Overflows[scope]; own {
		return Clause{"override of " + string(scope), []string{"rollout", "rules", "overflows", string(scope)}}
	}
	if _, own := p.Overflows[scope]; own {
		return Clause{"override of " + string(scope), []string{"overflows", string(scope)}}
	}
	rule := p.inQueue(tenant, queue, func(in TierQueue) bool { return in.Overflow != Overflow{} }, func(q Queue) []string {
		if q.Overflow == (Overflow{}) {
			return nil
		}
		return []string{"overflow"}
	}, []string{"overflow"})
	if _, all := p.Overflows[Every+":"+Every]; all && rule.Path == nil {
		return Clause{"default of queues without a bound", []string{"overflows", Every + ":" + Every}}
	}
	return rule
}

// inQueue returns the first rule of each tenant in a queue: the tier's and the queue's, then those of Every. in says whether a tier says
// something, and below what the path to it ends with; of does both for a queue, nil where it says nothing.
func (p Policy) inQueue(tenant, queue string, in func(TierQueue) bool, of func(Queue) []string, below []string) Clause {
	tier, at := p.tierRules(tenant)
	for _, name := range []string{queue, Every} {
		where := "queue " + name
		if name == Every {
			where = "every queue"
		}
		if entry, there := tier.Queues[name]; there && in(entry) {
			return Clause{"default of tier " + p.TierOf(tenant) + " in " + where, slices.Concat(at, []string{"queues", name}, below)}
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

// GlobalReserved is a part of the global limit that only some classes may take, of whatever queue. Jobs and checks of the others, those that name no class
// among them, are charged to a second bucket as well, which they share: Percent less than the rate and the burst of the global one.
type GlobalReserved struct {
	// Classes are those who may take it.
	Classes []admission.Priority `json:"classes"`
	// Percent is how many percent of the limit it is, 1 to MaxReservedPercent.
	Percent int `json:"percent"`
	// Lend lets others have the rate of it, too, while the global bucket holds that part of its burst. It is of a token bucket alone.
	Lend bool `json:"lend,omitempty"`
}

func (r *GlobalReserved) clone() *GlobalReserved {
	if r == nil {
		return nil
	}
	return &GlobalReserved{slices.Clone(r.Classes), r.Percent, r.Lend}
}

// validateGlobalReserved checks what is kept of the global limit.
func (p Policy) validateGlobalReserved(bad *problems) {
	r := p.GlobalReserved
	if r == nil {
		return
	}
	const at = "global_reserved"
	if p.Global.Tokens == 0 {
		bad.field(at, "(there)", "none without a global limit, which may be disabled")
	}
	p.validateClasses(bad, at+".classes", r.Classes)
	if bad.integer(at+".percent", int64(r.Percent), 1, MaxReservedPercent); r.Percent < 1 || r.Percent > MaxReservedPercent {
		return
	}
	if r.Lend && !p.Global.Window.IsZero() {
		bad.field(at+".lend", "true", "false where the global limit is one of windows, of which nothing comes in meanwhile")
	}
	limit := p.Global.Keeping(r.Percent)
	limit.Disabled = false
	if others, kept := limit.Others(); kept && (others.Burst < 1 || others.Tokens < 1) {
		bad.field(at+".percent", strconv.Itoa(r.Percent), "so many that a token of the global burst is left to others, at least")
	}
}

// validateClasses checks classes of whatever queue.
func (p Policy) validateClasses(bad *problems, at string, classes []admission.Priority) {
	if n := len(classes); n < 1 || n > admission.MaxClasses {
		bad.field(at, strconv.Itoa(n)+" classes", "1 to "+strconv.Itoa(admission.MaxClasses)+" classes")
	}
	known := map[string]bool{}
	for _, class := range admission.DefaultClasses() {
		known[string(class.Name)] = true
	}
	for _, queue := range p.Queues {
		for _, class := range queue.Classes {
			known[string(class.Name)] = true
		}
	}
	for i, class := range classes {
		switch {
		case !known[string(class)]:
			bad.field(at, strconv.Quote(string(class)), "a class of a queue: "+quoteNames(sortedKeys(known)))
		case slices.Contains(classes[:i], class):
			bad.field(at, strconv.Quote(string(class)), "each class once")
		}
	}
}

// DefaultSharePercent is a Bypass' SharePercent where it says none.
const DefaultSharePercent = 10

// Bypass has jobs of some classes, of whatever queue, go beside the limits of their tenant's queue and class: their global and tenant's buckets are charged
// alone. What a tenant has of it is bounded, and jobs beyond that go the way of all, as do checks.
type Bypass struct {
	// Classes are those who may; where there is a GlobalReserved they are among its classes.
	Classes []admission.Priority `json:"classes"`
	// ReservePercent is how far below zero they may take the global bucket, in percent of its burst, 0 to 100: in any time t jobs and checks are admitted
	// for burst + rate·t + this at the most. It is of a token bucket alone.
	ReservePercent int `json:"reserve_percent,omitempty"`
	// SharePercent is how many percent of its own limit, rate and burst, a tenant may have go that way, 1 to 100; zero means DefaultSharePercent. A tenant
	// without a limit, or of whose burst that is less than a token, has nothing go that way.
	SharePercent int `json:"share_percent,omitempty"`
}

func (b *Bypass) withDefaults() *Bypass {
	if b == nil {
		return nil
	}
	return &Bypass{slices.Clone(b.Classes), b.ReservePercent, cmp.Or(b.SharePercent, DefaultSharePercent)}
}

// Bypass returns which classes go beside the limits of queues and classes, and how far; nil where none does.
func (c *Compiled) Bypass() *Bypass { return c.bypass.withDefaults() }

// validateBypass checks who goes beside limits.
func (p Policy) validateBypass(bad *problems) {
	b := p.Bypass
	if b == nil {
		return
	}
	p.validateClasses(bad, "bypass.classes", b.Classes)
	if r := p.GlobalReserved; r != nil {
		for _, class := range b.Classes {
			if !slices.Contains(r.Classes, class) {
				bad.field("bypass.classes", strconv.Quote(string(class)), "classes of global_reserved, which is there: "+quoteNames(texts(r.Classes)))
			}
		}
	}
	bad.integer("bypass.reserve_percent", int64(b.ReservePercent), 0, 100)
	switch {
	case b.ReservePercent > 0 && p.Global.Tokens == 0:
		bad.field("bypass.reserve_percent", strconv.Itoa(b.ReservePercent), "0 without a global limit, which may be disabled")
	case b.ReservePercent > 0 && !p.Global.Window.IsZero():
		bad.field("bypass.reserve_percent", strconv.Itoa(b.ReservePercent), "0 where the global limit is one of windows, of which nothing comes in to make up for it")
	}
	bad.integer("bypass.share_percent", int64(b.SharePercent), 1, 100)
}

// ClassWords writes names of classes in a row.
func ClassWords(classes []admission.Priority) string { return strings.Join(texts(classes), ", ") }

// GlobalReserved returns which part of the global limit is kept for which classes; nil where none is.
func (c *Compiled) GlobalReserved() *GlobalReserved { return c.reserved.clone() }

// from is a limit as it is for those from whom a part of it is kept.
func (r *GlobalReserved) from(limit admission.Limit) admission.Limit {
	limit = limit.Keeping(r.Percent)
	if r.Lend {
		limit = limit.Lending()
	}
	return limit
}

// globalFor is the global limit as it is for a class; "" is none.
func (c *Compiled) globalFor(class admission.Priority) admission.Limit {
	switch {
	case c.bypass != nil && slices.Contains(c.bypass.Classes, class):
		return c.global.Bypassing(c.bypass.ReservePercent, c.bypass.SharePercent)
	case c.reserved == nil || slices.Contains(c.reserved.Classes, class):
		return c.global
	}
	return c.reserved.from(c.global)
}
