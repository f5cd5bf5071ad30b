package policy

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
)

// MaxMaxRunning is the largest number of jobs at a time that a policy can allow.
const MaxMaxRunning = 1_000_000

// Every is the tenant or the downstream of a Cap that is each one's own.
const Every = "*"

// Downstream is what one downstream has of its own, or what all have that have nothing of their own.
type Downstream struct {
	// MaxRunning is how many of its jobs workers hold at a time, 1 to MaxMaxRunning; zero means no bound.
	MaxRunning int
	// Dispatch is how many of its jobs are dispatched a time, a token each, by all workers together; nil means no bound.
	// Jobs wait for it and do not fail. It is for single downstreams only.
	Dispatch *admission.Limit
	// MaxParked is how many of its jobs may wait while its circuit breaker is not closed, 1 to MaxOverflowJobs; further
	// ones are refused. Zero means no bound.
	MaxParked int
	// Breaker is by which rules its circuit breaker goes; nil leaves that to workers.
	Breaker *BreakerRules
}

// Cap is how many jobs workers hold at a time: of a queue, a tenant, a tenant in a queue, or a downstream.
type Cap struct {
	Tenant, Queue, Downstream string
	MaxRunning                int
	// Least and Most are the bounds between which what is in force moves by itself (Moving); zero where it does not move.
	Least, Most int
	// Loop is the name of what moves it.
	Loop string
}

// DispatchRate is how many jobs of a tenant or of a downstream are dispatched a time.
type DispatchRate struct {
	Tenant, Downstream string
	Limit              admission.Limit
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
		if own := c.tenants[name].maxRunning; own != c.standard.maxRunning {
			add(Cap{Tenant: name, MaxRunning: cmp.Or(own, MaxMaxRunning)}) // no cap, where others have one
		}
	}
	for _, scope := range sortedKeys(c.maxRunning) {
		tenant, queue, _ := strings.Cut(string(scope), ":")
		add(Cap{Tenant: tenant, Queue: queue, MaxRunning: c.maxRunning[scope]})
	}
	add(Cap{Downstream: Every, MaxRunning: c.anyDownstream.MaxRunning})
	moving := map[string]Moving{}
	for _, m := range c.Moving() {
		moving[m.Downstream] = m
	}
	for _, name := range sortedKeys(c.downstreams) {
		if own := c.downstreams[name].MaxRunning; own > 0 || c.anyDownstream.MaxRunning > 0 {
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
	for _, name := range sortedKeys(c.downstreams) {
		if l := c.downstreams[name].Dispatch; l != nil && !l.Disabled {
			rates = append(rates, DispatchRate{Downstream: name, Limit: *l})
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
		if d.MaxParked > 0 || c.anyDownstream.MaxParked > 0 {
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
		if own := p.Tenants[name].Dispatch; own != nil {
			bad.add(own.Validate("tenants." + name + ".dispatch"))
		}
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
		bad.add(admission.ValidateName("downstream", name, true))
		p.Downstreams[name].validate(bad, "downstreams."+name)
	}
}

func (d Downstream) validate(bad *problems, owner string) {
	bad.bound(owner+".max_running", d.MaxRunning, MaxMaxRunning)
	bad.bound(owner+".max_parked", d.MaxParked, MaxOverflowJobs)
	d.Breaker.validate(bad, owner+".breaker")
	if d.Dispatch != nil {
		bad.add(d.Dispatch.Validate(owner + ".dispatch"))
	}
}

// bound checks a number of which zero is none.
func (p *problems) bound(name string, value, most int) {
	if value < 0 || value > most {
		p.field(name, strconv.Itoa(value), "1 to "+strconv.Itoa(most)+", or 0 for none")
	}
}
