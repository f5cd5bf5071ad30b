package rollout

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// among returns a test for names of tenants; without any each is among them.
func among(tenants []string) func(string) bool {
	asked := make(map[string]bool, len(tenants))
	for _, name := range tenants {
		asked[name] = true
	}
	return func(name string) bool { return len(asked) == 0 || asked[name] }
}

// tenantOf returns whose a scope is.
func tenantOf[K ~string](scope K) string {
	tenant, _, _ := strings.Cut(string(scope), ":")
	return tenant
}

// saidOf returns what a policy says of single tenants that a record can say, by tenant: also nothing, of one whose entry says nothing.
func saidOf(p policy.Policy, tenants []string) map[string]policy.OwnLimits {
	asked, all := among(tenants), map[string]policy.OwnLimits{}
	put := func(tenant, queue string, in func(*policy.EachTenant)) {
		if !asked(tenant) {
			return
		}
		said := all[tenant]
		if said.Queues == nil {
			said.Queues = map[string]policy.EachTenant{}
		}
		each := said.Queues[queue]
		in(&each)
		said.Queues[queue], all[tenant] = each, said
	}
	for name, own := range p.Tenants {
		said := policy.OwnLimits{Tier: own.Tier, Weights: own.Weights, MaxRunning: own.MaxRunning, Dispatch: own.Dispatch, Limit: own.Limit}
		if said.Tier == policy.StandardTier { // Which each has that names none.
			said.Tier = ""
		}
		if asked(name) {
			all[name] = said
		}
		for queue, in := range own.Queues {
			if len(in.TypeLimits) > 0 {
				put(name, queue, func(e *policy.EachTenant) { e.TypeLimits = in.TypeLimits })
			}
		}
	}
	for scope, bound := range p.Overflows {
		tenant, queue, _ := strings.Cut(string(scope), ":")
		if tenant != policy.Every && asked(tenant) {
			// A record would say nothing with a bound that says nothing, which in the policy lifts that of all.
			all[tenant] = all[tenant].WithOverflow(queue, cmp.Or(bound, policy.Overflow{Policy: policy.NoBound}))
		}
	}
	for scope, limit := range p.MaxRunning {
		if tenant, queue, _ := strings.Cut(string(scope), ":"); asked(tenant) {
			all[tenant] = all[tenant].WithMaxRunning(queue, limit)
		}
	}
	for name, rule := range p.Semaphores {
		if tenant, own, bound := strings.Cut(name, ":"); bound && asked(tenant) {
			said := all[tenant]
			said.Semaphores = with(said.Semaphores, own, rule)
			all[tenant] = said
		}
	}
	for scope, limit := range p.QueueLimits {
		tenant, queue, _ := strings.Cut(string(scope), ":")
		put(tenant, queue, func(e *policy.EachTenant) { e.Limit = limit })
	}
	for scope, limit := range p.PriorityLimits {
		tenant, rest, _ := strings.Cut(string(scope), ":")
		queue, class, _ := strings.Cut(rest, ":")
		put(tenant, queue, func(e *policy.EachTenant) {
			if e.PriorityLimits == nil {
				e.PriorityLimits = map[admission.Priority]admission.Limit{}
			}
			e.PriorityLimits[admission.Priority(class)] = limit
		})
	}
	return all
}

// without returns a policy that does not say any more what saidOf has of tenants.
func without(p policy.Policy, tenants map[string]bool) policy.Policy {
	p.Tenants, p.QueueLimits, p.PriorityLimits, p.Overflows = maps.Clone(p.Tenants), maps.Clone(p.QueueLimits), maps.Clone(p.PriorityLimits), maps.Clone(p.Overflows)
	p.MaxRunning, p.Semaphores = maps.Clone(p.MaxRunning), maps.Clone(p.Semaphores)
	for name := range tenants {
		delete(p.Tenants, name)
	}
	of := func(scope admission.Scope, _ admission.Limit) bool { return tenants[tenantOf(scope)] }
	maps.DeleteFunc(p.QueueLimits, of)
	maps.DeleteFunc(p.PriorityLimits, of)
	maps.DeleteFunc(p.Overflows, func(scope admission.Scope, _ policy.Overflow) bool { return tenants[tenantOf(scope)] })
	maps.DeleteFunc(p.MaxRunning, func(scope admission.Scope, _ int) bool { return tenants[tenantOf(scope)] })
	maps.DeleteFunc(p.Semaphores, func(name string, _ policy.SemaphoreRules) bool {
		return strings.Contains(name, ":") && tenants[tenantOf(name)]
	})
	return p
}

// withSaid returns a record with what the policy says where it says nothing itself, and what of that is not in force since the record says something else.
func withSaid(own, said policy.OwnLimits) (all, overruled policy.OwnLimits) {
	all = own
	all.Tier, overruled.Tier = first(own.Tier, said.Tier)
	all.MaxRunning, overruled.MaxRunning = first(own.MaxRunning, said.MaxRunning)
	all.MaxRunningIn, overruled.MaxRunningIn = under(own.MaxRunningIn, said.MaxRunningIn)
	all.Overflow, overruled.Overflow = first(own.Overflow, said.Overflow)
	all.Overflows, overruled.Overflows = under(own.Overflows, said.Overflows)
	all.Weights, overruled.Weights = under(own.Weights, said.Weights)
	all.Limit, overruled.Limit = firstLimit(own.Limit, said.Limit)
	all.Dispatch, overruled.Dispatch = firstLimit(own.Dispatch, said.Dispatch)
	all.Semaphores, overruled.Semaphores = semaphoresUnder(own.Semaphores, said.Semaphores)
	all.Queues = maps.Clone(own.Queues)
	for queue, by := range said.Queues {
		in, over := own.Queues[queue], policy.EachTenant{}
		in.Limit, over.Limit = first(in.Limit, by.Limit)
		in.PriorityLimits, over.PriorityLimits = under(in.PriorityLimits, by.PriorityLimits)
		in.TypeLimits, over.TypeLimits = typesUnder(in.TypeLimits, by.TypeLimits)
		if all.Queues == nil {
			all.Queues = map[string]policy.EachTenant{}
		}
		if all.Queues[queue] = in; over.Limit != (admission.Limit{}) || len(over.PriorityLimits)+len(over.TypeLimits) > 0 {
			if overruled.Queues == nil {
				overruled.Queues = map[string]policy.EachTenant{}
			}
			overruled.Queues[queue] = over
		}
	}
	return all, overruled
}

// first returns the value that holds, and the other one where it does not: zero says nothing.
func first[V comparable](own, said V) (holds, overruled V) {
	var nothing V
	if own == nothing {
		return said, nothing
	}
	if said == own {
		return own, nothing
	}
	return own, said
}

// firstLimit is first of limits, of which nil says nothing.
func firstLimit(own, said *admission.Limit) (holds, overruled *admission.Limit) {
	if own == nil || said == nil || *own == *said {
		return cmp.Or(own, said), nil
	}
	return own, said
}

// under is first of each name.
func under[M ~map[K]V, K, V comparable](own, said M) (all, overruled M) {
	for name, value := range said {
		holds, over := first(own[name], value)
		var nothing V
		if over != nothing {
			overruled = with(overruled, name, over)
		} else if own[name] != holds {
			all = with(all, name, holds)
		}
	}
	for name, value := range own {
		all = with(all, name, value)
	}
	return all, overruled
}

func with[M ~map[K]V, K comparable, V any](m M, name K, value V) M {
	if m == nil {
		m = M{}
	}
	m[name] = value
	return m
}

// typesUnder is under of limits of types: one of all types holds for each that is not named beside it, whatever the policy says of that one.
func typesUnder(own, said map[string]admission.Limit) (all, overruled map[string]admission.Limit) {
	every, each := own[policy.Every]
	if !each {
		return under(own, said)
	}
	for name, limit := range said {
		if holds, named := own[name]; limit != holds && (named || limit != every) {
			overruled = with(overruled, name, limit)
		}
	}
	return own, overruled
}

// semaphoresUnder is typesUnder of semaphores, of which one that lets nobody in says something.
func semaphoresUnder(own, said map[string]policy.SemaphoreRules) (all, overruled map[string]policy.SemaphoreRules) {
	every, each := own[policy.Every]
	for name, rule := range said {
		holds, named := own[name]
		switch {
		case !named && !each:
			all = with(all, name, rule)
		case named && rule != holds, !named && rule != every:
			overruled = with(overruled, name, rule)
		}
	}
	for name, rule := range own {
		all = with(all, name, rule)
	}
	return all, overruled
}

// valuesOf lists what a policy says of a tenant.
func valuesOf(tenant string, said policy.OwnLimits, reason string) (all []PolicyValue) {
	add := func(path ...string) {
		all = append(all, PolicyValue{tenant, policy.Clause{Path: path}.Pointer(), reason})
	}
	if said.Tier != "" {
		add("tenants", tenant, "tier")
	}
	for class := range said.Weights {
		add("tenants", tenant, "priority_weights", string(class))
	}
	if said.MaxRunning != 0 {
		add("tenants", tenant, "max_running")
	}
	for queue := range said.MaxRunningIn {
		add("max_running", tenant+":"+queue)
	}
	if said.Dispatch != nil {
		add("tenants", tenant, "dispatch")
	}
	if said.Overflow != (policy.Overflow{}) {
		add("overflows", tenant)
	}
	for queue := range said.Overflows {
		add("overflows", tenant+":"+queue)
	}
	if said.Limit != nil {
		add("tenants", tenant, "limit")
	}
	for name := range said.Semaphores {
		add("semaphores", tenant+":"+name)
	}
	for queue, in := range said.Queues {
		if in.Limit != (admission.Limit{}) {
			add("queue_limits", tenant+":"+queue)
		}
		for class := range in.PriorityLimits {
			add("priority_limits", tenant+":"+queue+":"+string(class))
		}
		for jobType := range in.TypeLimits {
			add("tenants", tenant, "queues", queue, "type_limits", jobType)
		}
	}
	return all
}

// ordered puts values in the order of their tenants and paths.
func ordered(all []PolicyValue) {
	slices.SortFunc(all, func(a, b PolicyValue) int { return strings.Compare(a.Tenant+" "+a.Path, b.Tenant+" "+b.Path) })
}
