package policy

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// MaxMaxRunning is the largest number of jobs at a time that a policy can allow.
const MaxMaxRunning = 1_000_000

// Every is the tenant, the downstream or the account of one (SERVICE+*) of a Cap that is each one's own.
const Every = "*"

// Downstream is what one downstream has of its own, or what all have that have nothing of their own. Of an account of a service, SERVICE+ACCOUNT,
// it has MaxRunning, Dispatch and MaxRetryAfter; what that leaves out is what each account of the service has, SERVICE+*.
type Downstream struct {
	// MaxRunning is how many of its jobs workers hold at a time, 1 to MaxMaxRunning; zero means no bound.
	MaxRunning int
	// Dispatch is how many of its jobs are dispatched a time, a token each, by all workers together; nil means no bound.
	// Jobs wait for it and do not fail. It is for single downstreams only, and for each account of one.
	Dispatch *admission.Limit
	// MaxParked is how many of its jobs may wait while its circuit breaker is not closed, 1 to MaxOverflowJobs; further
	// ones are refused. Zero means no bound.
	MaxParked int
	// Breaker is by which rules its circuit breaker goes; nil leaves that to workers.
	Breaker *BreakerRules
	// MaxRetryAfter is for how long at most all workers hold back its jobs when it refuses a call as one too many and says after how long to come
	// again (429 with Retry-After), 1 s to MaxMaxRetryAfter; zero means that only the job that was refused waits.
	MaxRetryAfter time.Duration
}

// MaxMaxRetryAfter is the most that a policy allows of Downstream.MaxRetryAfter.
const MaxMaxRetryAfter = time.Hour

// MaxRetryAfter returns that of a downstream, zero where none is held for what its receiver says.
func (c *Compiled) MaxRetryAfter(downstream string) time.Duration {
	if own := c.downstreams[downstream].MaxRetryAfter; own != 0 {
		return own
	}
	if service, ofAccount := admission.ServiceOf(downstream); ofAccount {
		return cmp.Or(c.downstreams[eachAccount(service)].MaxRetryAfter, c.MaxRetryAfter(service))
	}
	return c.anyDownstream.MaxRetryAfter
}

// eachAccount names what each account of a service has that has nothing of its own.
func eachAccount(service string) string { return service + admission.AccountSign + Every }

// Cap is how many jobs workers hold at a time: of a queue, a tenant, a tenant in a queue, or a downstream.
type Cap struct {
	Tenant, Queue, Downstream string
	MaxRunning                int
	// Least and Most are the bounds between which what is in force moves by itself (Moving); zero where it does not move.
	Least, Most int
	// Loop is the name of what moves it.
	Loop string
	// ByTier says that it is that of the tenant's tier: one whose record names another tier has that one's.
	ByTier bool
}

// DispatchRate is how many jobs of a tenant or of a downstream are dispatched a time.
type DispatchRate struct {
	Tenant, Downstream string
	Limit              admission.Limit
	// Own is the limit, and Least and Most are the bounds between which what is in force moves by itself, in control.RateUnits; zero where it
	// does not move. Loop is the name of what moves it.
	Own, Least, Most int
	Loop             string
}

// Caps returns every cap of the policy. That of the standard tier is that of the tenant Every.
func (c *Compiled) Caps() []Cap {
	var caps []Cap
	add := func(of Cap) {
		if of.MaxRunning > 0 {
			caps = append(caps, of)
		}
	}
	for _, name := range sortedKeys(c.queues) {
		add(Cap{Queue: name, MaxRunning: c.queues[name].MaxRunning})
		add(Cap{Tenant: Every, Queue: name, MaxRunning: c.queues[name].MaxRunningPerTenant})
	}
	add(Cap{Tenant: Every, MaxRunning: c.standard.maxRunning})
	for _, name := range c.ranked {
		own := c.tenants[name].maxRunning
		byTier := c.records != nil && c.sideOf(name).Tenants[name].MaxRunning == 0
		if own != c.standard.maxRunning || c.records != nil && !byTier {
			add(Cap{Tenant: name, MaxRunning: cmp.Or(own, MaxMaxRunning), ByTier: byTier}) // no cap, where others have one
		}
	}
	for _, scope := range sortedKeys(c.maxRunning) {
		tenant, queue, _ := strings.Cut(string(scope), ":")
		add(Cap{Tenant: tenant, Queue: queue, MaxRunning: c.maxRunning[scope]})
	}
	add(Cap{Downstream: Every, MaxRunning: c.anyDownstream.MaxRunning})
	moving := map[string]Moving{}
	for _, m := range c.Moving() {
		if !m.Dispatch && !m.Limits {
			moving[m.Downstream] = m
		}
	}
	for _, name := range sortedKeys(c.downstreams) {
		_, ofAccount := admission.ServiceOf(name)
		if own := c.downstreams[name].MaxRunning; own > 0 || c.anyDownstream.MaxRunning > 0 && !ofAccount {
			of := Cap{Downstream: name, MaxRunning: cmp.Or(own, MaxMaxRunning)}
			of.Least, of.Most, of.Loop = moving[name].Config.Min, moving[name].Config.Max, moving[name].Name
			add(of)
		}
	}
	return caps
}

// DispatchRates returns every rate of dispatches.
func (c *Compiled) DispatchRates() []DispatchRate {
	var rates []DispatchRate
	for _, name := range c.ranked {
		if l := c.tenants[name].dispatch; l != nil && !l.Disabled {
			rates = append(rates, DispatchRate{Tenant: name, Limit: *l})
		}
	}
	moving := map[string]Moving{}
	for _, m := range c.Moving() {
		if m.Dispatch {
			moving[m.Downstream] = m
		}
	}
	for _, name := range sortedKeys(c.downstreams) {
		if l := c.downstreams[name].Dispatch; l != nil && !l.Disabled {
			m := moving[name]
			rates = append(rates, DispatchRate{Downstream: name, Limit: *l, Own: m.Own, Least: m.Rate.Min, Most: m.Rate.Max, Loop: m.Name})
		}
	}
	return rates
}

// MaxParked returns how many jobs may wait by downstream, Every for those not named.
func (c *Compiled) MaxParked() map[string]int {
	most := map[string]int{}
	if c.anyDownstream.MaxParked > 0 {
		most[Every] = c.anyDownstream.MaxParked
	}
	for name, d := range c.downstreams {
		if _, ofAccount := admission.ServiceOf(name); !ofAccount && (d.MaxParked > 0 || c.anyDownstream.MaxParked > 0) {
			most[name] = cmp.Or(d.MaxParked, MaxOverflowJobs)
		}
	}
	return most
}

// validateCaps checks what bounds dispatch.
func (p Policy) validateCaps(bad *problems) {
	for _, name := range sortedKeys(p.Tiers) {
		bad.bound("tiers."+name+".max_running", p.Tiers[name].MaxRunning, MaxMaxRunning)
	}
	for _, name := range sortedKeys(p.Tenants) {
		bad.bound("tenants."+name+".max_running", p.Tenants[name].MaxRunning, MaxMaxRunning)
		bad.dispatch("tenants."+name+".dispatch", p.Tenants[name].Dispatch)
	}
	for _, name := range sortedKeys(p.Queues) {
		bad.bound("queues."+name+".max_running", p.Queues[name].MaxRunning, MaxMaxRunning)
		bad.bound("queues."+name+".max_running_per_tenant", p.Queues[name].MaxRunningPerTenant, MaxMaxRunning)
	}
	for _, scope := range sortedKeys(p.MaxRunning) {
		tenant, queue, ok := strings.Cut(string(scope), ":")
		if !ok || strings.Contains(queue, ":") {
			bad.field("max_running", strconv.Quote(string(scope)), `scopes "tenant:queue"`)
			continue
		}
		bad.add(scopeError(scope, admission.ValidateTenant(tenant)))
		bad.add(scopeError(scope, admission.ValidateName("queue", queue, true)))
		bad.integer("max_running."+string(scope), int64(p.MaxRunning[scope]), 1, MaxMaxRunning)
	}
	if p.AnyDownstream.Dispatch != nil {
		bad.field("any_downstream.dispatch", "a limit", `none: a rate belongs to one of "downstreams"`)
	}
	p.AnyDownstream.validate(bad, "any_downstream")
	for _, name := range sortedKeys(p.Downstreams) {
		at, of := "downstreams."+name, p.Downstreams[name]
		service, account, two := strings.Cut(name, admission.AccountSign)
		if two && account == Every { // The name of what each account has: any account would do there.
			bad.add(admission.ValidateDownstream("downstream", service+admission.AccountSign+"any", true))
		} else {
			bad.add(admission.ValidateDownstream("downstream", name, true))
		}
		if two {
			of.validateAccount(bad, at, service)
		}
		of.validate(bad, at)
	}
}

// validateAccount refuses what is of a service alone.
func (d Downstream) validateAccount(bad *problems, at, service string) {
	if d.Breaker != nil {
		bad.field(at+".breaker", "{…}", "none: all accounts have the breaker of "+strconv.Quote(service))
	}
	if d.MaxParked != 0 {
		bad.field(at+".max_parked", strconv.Itoa(d.MaxParked), "none: jobs wait for the breaker of "+strconv.Quote(service))
	}
	if d.Dispatch != nil && d.Dispatch.Disabled {
		bad.field(at+".dispatch.enabled", "false", "a rate, or no dispatch for that of each account")
	}
}

func (d Downstream) validate(bad *problems, owner string) {
	bad.bound(owner+".max_running", d.MaxRunning, MaxMaxRunning)
	bad.bound(owner+".max_parked", d.MaxParked, MaxOverflowJobs)
	d.Breaker.validate(bad, owner+".breaker")
	bad.dispatch(owner+".dispatch", d.Dispatch)
	if d.MaxRetryAfter != 0 {
		bad.duration(owner+".max_retry_after", d.MaxRetryAfter, time.Second, MaxMaxRetryAfter)
	}
}

// dispatch checks a rate of dispatches, nil for none.
func (p *problems) dispatch(at string, limit *admission.Limit) {
	if limit == nil {
		return
	}
	if !limit.Window.IsZero() {
		p.field(at+".algorithm", strconv.Quote(AlgorithmOf(*limit)), quoteNames([]string{TokenBucket})+": jobs wait for a dispatch, they are not refused")
		return
	}
	p.add(limit.Validate(at))
}

// bound checks a number of which zero is none.
func (p *problems) bound(name string, value, most int) {
	if value < 0 || value > most {
		p.field(name, strconv.Itoa(value), "1 to "+strconv.Itoa(most)+", or 0 for none")
	}
}

// MaxReservedPercent is the largest part of a queue's slots, or of the global limit, that a policy can keep for some classes.
const MaxReservedPercent = 99

// Reserved are slots of a queue, over all its workers, that only some of its classes may take. Jobs of the others run on as many as are left, and
// on one at least.
type Reserved struct {
	// Classes are those who may take them: classes of the queue, not all of them.
	Classes []admission.Priority `json:"classes"`
	// Slots is how many, 1 to MaxMaxRunning, or Percent how many percent of all, 1 to MaxReservedPercent, rounded up. One of them is there.
	Slots   int `json:"slots,omitempty"`
	Percent int `json:"percent,omitempty"`
	// Lend lets others take them while no job of Classes waits that may run.
	Lend bool `json:"lend,omitempty"`
}

func (r *Reserved) clone() *Reserved {
	if r == nil {
		return nil
	}
	full := *r
	full.Classes = slices.Clone(r.Classes)
	return &full
}

func (r *Reserved) validate(bad *problems, at string, classes []admission.Class) {
	if r == nil {
		return
	}
	names := classNames(classes)
	if n := len(r.Classes); n < 1 || n >= len(names) {
		bad.field(at+".classes", strconv.Itoa(n)+" classes", "1 to "+strconv.Itoa(len(names)-1)+" classes of the queue: one is left that may not take them")
	}
	for i, class := range r.Classes {
		switch {
		case !slices.Contains(names, string(class)):
			bad.field(at+".classes", strconv.Quote(string(class)), "a class of the queue: "+quoteNames(names))
		case slices.Contains(r.Classes[:i], class):
			bad.field(at+".classes", strconv.Quote(string(class)), "each class once")
		}
	}
	switch {
	case r.Slots == 0 && r.Percent == 0:
		bad.field(at+".slots", "0", "1 to "+strconv.Itoa(MaxMaxRunning)+", or a percent")
	case r.Slots != 0 && r.Percent != 0:
		bad.field(at+".percent", strconv.Itoa(r.Percent), "none beside slots")
	case r.Slots != 0:
		bad.integer(at+".slots", int64(r.Slots), 1, MaxMaxRunning)
	default:
		bad.integer(at+".percent", int64(r.Percent), 1, MaxReservedPercent)
	}
}

// ReservedSlots are the slots of a queue that only some classes may take, by their places in the queue's order, from 0.
type ReservedSlots struct {
	Queue          string
	Classes        []int
	Slots, Percent int
	Lend           bool
}

// Left returns how many of so many slots are left to the classes that may not take those that are kept: one at least.
func (r *ReservedSlots) Left(slots int) int { return max(1, slots-r.Slots-(slots*r.Percent+99)/100) }

// Reserved returns the slots that are kept for some classes, by queue.
func (c *Compiled) Reserved() (all []ReservedSlots) {
	for _, name := range sortedKeys(c.queues) {
		r := c.queues[name].Reserved
		if r == nil {
			continue
		}
		of := ReservedSlots{Queue: name, Slots: r.Slots, Percent: r.Percent, Lend: r.Lend}
		for i, class := range c.queues[name].Classes {
			if slices.Contains(r.Classes, class.Name) {
				of.Classes = append(of.Classes, i)
			}
		}
		all = append(all, of)
	}
	return all
}

// Bounds of semaphores.
const (
	// DefaultSemaphoreMax is the limit of a semaphore of which the policy says nothing.
	DefaultSemaphoreMax = 1000
	// MaxSemaphoreMax is the largest limit, MaxSemaphores how many a policy may name.
	MaxSemaphoreMax = 1_000_000
	MaxSemaphores   = 10_000
)

// SemaphoreRules are the limit of what is done at a time outside of jobs.
type SemaphoreRules struct {
	// Max is how many permits are leased at a time, 0 to MaxSemaphoreMax; 0 lets nobody in.
	Max int
}

type semaphoreJSON struct {
	Max int `json:"max"`
}

// SemaphoreMax returns the limit of a semaphore: of one of a tenant what the tenant's record says of it, or of each of its own, as far as that is known; else its own, else that of "TENANT:*" for
// one of a tenant, else that of Every, else DefaultSemaphoreMax.
func (c *Compiled) SemaphoreMax(name string) int {
	most, _ := c.SemaphoreFor(name)
	return most
}

// SemaphoreFor returns SemaphoreMax and the version of the tenant's record that it comes from, zero where tenants have no records or it is no tenant's.
func (c *Compiled) SemaphoreFor(name string) (most int, record int64) {
	tenant, own, bound := strings.Cut(name, ":")
	if !bound || c.records == nil {
		return c.documentSemaphore(name), 0
	}
	of := c.standing(tenant)
	if of.own != nil {
		for _, at := range [2]string{own, Every} {
			if rule, said := of.own.Semaphores[at]; said {
				return rule.Max, of.version
			}
		}
	}
	return c.documentSemaphore(name), of.version
}

// documentSemaphore is what the policy says of a semaphore.
func (c *Compiled) documentSemaphore(name string) int {
	if own, named := c.semaphores[name]; named {
		return own.Max
	}
	if tenant, _, bound := strings.Cut(name, ":"); bound {
		if all, named := c.semaphores[tenant+":"+Every]; named {
			return all.Max
		}
	}
	if all, named := c.semaphores[Every]; named {
		return all.Max
	}
	return DefaultSemaphoreMax
}

// Semaphores yields those that the policy names, in order, with their limits.
func (c *Compiled) Semaphores() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		for _, name := range sortedKeys(c.semaphores) {
			if !strings.HasSuffix(name, Every) && !yield(name, c.semaphores[name].Max) {
				return
			}
		}
	}
}

// semaphores checks them: of a policy a name may be TENANT:NAME, of a record it is the tenant's as it is.
func (p *problems) semaphores(all map[string]SemaphoreRules, most int, tenants bool) {
	if n := len(all); n > most {
		p.field("semaphores", strconv.Itoa(n)+" names", "up to "+strconv.Itoa(most))
	}
	for _, name := range sortedKeys(all) {
		tenant, own, bound := strings.Cut(name, ":")
		if bound && tenants {
			p.add(admission.ValidateTenant(tenant))
		} else {
			own = name
		}
		if own != Every {
			p.add(admission.ValidateName("semaphore", own, true))
		}
		p.integer("semaphores."+name+".max", int64(all[name].Max), 0, MaxSemaphoreMax)
	}
}

// checkTier checks the tier of a record; empty is none.
func (c *Compiled) checkTier(tier string) error {
	if tier == "" || c.HasTier(tier) {
		return nil
	}
	return &admission.FieldError{Field: "tier", Value: strconv.Quote(tier), Allowed: "one of " + quoteNames(sortedKeys(c.base.Tiers))}
}

// TierCaps returns how many jobs of each tenant of a tier workers hold at a time, for tenants whose records name it, where that differs from what
// StandardTier has: MaxMaxRunning for no bound. It is nil where tenants have no records.
func (c *Compiled) TierCaps() (by map[string]int) {
	if c.records == nil {
		return nil
	}
	for name, tier := range c.base.Tiers {
		if tier.MaxRunning == c.standard.maxRunning {
			continue
		}
		if by == nil {
			by = map[string]int{}
		}
		by[name] = cmp.Or(tier.MaxRunning, MaxMaxRunning)
	}
	return by
}

// MaxRunningOf returns how many jobs of a tenant workers hold at a time, over all queues, zero for no bound: by its record as far as that is known, else by
// what the policy has for it alone, else by its record's tier, else by its tier. It does not allocate.
func (c *Compiled) MaxRunningOf(tenant string) int { return c.viewOf(tenant).maxRunning }

// DispatchOf returns how many jobs of a tenant are dispatched a time, nil for no bound: by its record as far as that is known, else by what the policy has for
// it. It does not allocate. The limit is not to be changed.
func (c *Compiled) DispatchOf(tenant string) *admission.Limit {
	if l := c.viewOf(tenant).dispatch; l != nil && !l.Disabled {
		return l
	}
	return nil
}
