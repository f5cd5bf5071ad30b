package policy

import (
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

var (
	someTenants = []string{"acme", "bolt", "cobra", "tiers", "limit"}
	someQueues  = []string{"mail", "sms"}
	someClasses = []admission.Priority{admission.High, admission.Medium, admission.Low}
)

// drawLimit draws a limit of a scope, drawRate one that jobs wait for.
func drawLimit(t *rapid.T) admission.Limit {
	if rapid.IntRange(0, 4).Draw(t, "algorithm") < 4 {
		return drawRate(t)
	}
	if rapid.Bool().Draw(t, "sliding") {
		algorithm, tokens := rapid.SampledFrom(windowed[1:]).Draw(t, "algorithm"), admission.Tokens(rapid.Int64Range(1, 1000).Draw(t, "tokens"))
		limit, err := WindowLimit(algorithm, tokens, rapid.SampledFrom([]string{"1s", "90m", "744h"}).Draw(t, "window"), "", "")
		if err != nil {
			t.Fatal(err)
		}
		limit.Disabled = rapid.IntRange(0, 4).Draw(t, "disabled") == 0
		return limit
	}
	window, zone := rapid.SampledFrom([]string{"1s", "90m", "24h", "168h", "month"}).Draw(t, "window"), ""
	if window != "1s" && window != "90m" {
		zone = rapid.SampledFrom([]string{"", "Europe/Berlin", "America/New_York"}).Draw(t, "zone")
	}
	limit, err := admission.FixedWindow(admission.Tokens(rapid.Int64Range(1, 1000).Draw(t, "tokens")), window, rapid.SampledFrom([]string{"", "06:30"}).Draw(t, "anchor"), zone)
	if err != nil {
		t.Fatal(err)
	}
	limit.Disabled = rapid.IntRange(0, 4).Draw(t, "disabled") == 0
	return limit
}

func drawRate(t *rapid.T) admission.Limit {
	return admission.Limit{
		Tokens:   admission.Tokens(rapid.Int64Range(1, 1000).Draw(t, "tokens")),
		Per:      time.Duration(rapid.Int64Range(1, 5000).Draw(t, "per")) * time.Millisecond,
		Burst:    admission.Tokens(rapid.Int64Range(1, 1000).Draw(t, "burst")),
		Disabled: rapid.IntRange(0, 4).Draw(t, "disabled") == 0,
	}
}

func drawWeights(t *rapid.T) Weights {
	weight := rapid.Custom(func(t *rapid.T) admission.Weight {
		return admission.Weight(rapid.SampledFrom([]int64{1, 2, 3, 1000}).Draw(t, "weight"))
	})
	weights := rapid.MapOfN(rapid.SampledFrom(someClasses), weight, 0, 3).Draw(t, "weights")
	if len(weights) == 0 {
		return nil
	}
	return weights
}

// drawPolicy draws a valid policy with every default filled in and no empty maps.
func drawPolicy(t *rapid.T) Policy {
	p := Policy{
		Version: rapid.Int64Range(0, 1000).Draw(t, "version"),
		Global:  drawLimit(t),
		Tiers:   map[string]Tier{StandardTier: {Limit: drawLimit(t), Weights: drawWeights(t)}},
	}
	drawGlobalReserved(t, &p)
	drawBypass(t, &p)
	for _, name := range []string{"premium", "basic"} {
		if rapid.Bool().Draw(t, name) {
			p.Tiers[name] = Tier{Limit: drawLimit(t), Weights: drawWeights(t)}
		}
	}
	tenants, queueLimits, priorityLimits := map[string]Tenant{}, map[admission.Scope]admission.Limit{}, map[admission.Scope]admission.Limit{}
	for _, name := range someTenants {
		if rapid.Bool().Draw(t, name) {
			tenant := Tenant{Tier: rapid.SampledFrom(sortedKeys(p.Tiers)).Draw(t, "tier"), Weights: drawWeights(t)}
			if rapid.Bool().Draw(t, "own limit") {
				tenant.Limit = new(drawLimit(t))
			}
			tenant.Queues = drawTenantQueues(t)
			tenants[name] = tenant
		}
		for _, queue := range someQueues {
			if rapid.IntRange(0, 3).Draw(t, "queue limit") == 0 {
				queueLimits[admission.ScopeAt(admission.LevelQueue, name, queue, "")] = drawLimit(t)
			}
			if rapid.IntRange(0, 3).Draw(t, "priority limit") == 0 {
				class := rapid.SampledFrom(someClasses).Draw(t, "class")
				priorityLimits[admission.ScopeAt(admission.LevelPriority, name, queue, class)] = drawLimit(t)
			}
		}
	}
	queues := map[string]Queue{}
	if rapid.Bool().Draw(t, "own queue") {
		queues["mail"] = Queue{
			Classes:       PresetCritical(),
			Horizon:       time.Duration(rapid.Int64Range(int64(MinHorizon), int64(MaxHorizon)).Draw(t, "horizon")),
			ExpiredPolicy: Drop,
			Reserved:      drawReserved(t),
			DoomedPercent: rapid.SampledFrom([]int{0, MinDoomedPercent, MaxDoomedPercent}).Draw(t, "doomed percent"),
			MaxWait:       time.Duration(rapid.SampledFrom([]int64{0, int64(MinMaxWait), int64(MaxMaxWait)}).Draw(t, "max wait")),
			PoisonLimit:   rapid.IntRange(0, MaxPoisonLimit).Draw(t, "poison limit"),
			KeepDead:      time.Duration(rapid.SampledFrom([]int64{0, int64(MinKeepDead), int64(MaxKeepDead)}).Draw(t, "keep dead")),
			MaxDead:       rapid.IntRange(0, MaxMaxDead).Draw(t, "max dead"),
			Reservations:  drawReservations(t),
		}
	}
	drawCaps(t, &p, tenants, queues)
	if rapid.Bool().Draw(t, "bounded") {
		bound := Overflow{
			Policy:  rapid.SampledFrom([]OverflowPolicy{Reject, DropOldest, Spillover}).Draw(t, "overflow policy"),
			MaxJobs: rapid.IntRange(1, MaxOverflowJobs).Draw(t, "max jobs"),
		}
		p.Overflows = map[admission.Scope]Overflow{"acme:mail": bound}
		if mail, ok := queues["mail"]; ok {
			mail.Overflow = bound
			queues["mail"] = mail
		}
	}
	drawShedding(t, &p, queues)
	drawEachTenant(t, &p, queues)
	p.Tenants, p.QueueLimits, p.PriorityLimits, p.Queues = orNil(tenants), orNil(queueLimits), orNil(priorityLimits), orNil(queues)
	if rapid.Bool().Draw(t, "observed") {
		p.Usage = &UsageRules{Tenants: rapid.IntRange(0, MaxUsageTenants).Draw(t, "usage")}
		p.Observe = []admission.Scope{admission.Global, "acme:mail", "bolt"}
	}
	p.Reservations = drawReservations(t)
	if rapid.Bool().Draw(t, "told load") {
		p.Load = &LoadRules{Every: time.Duration(rapid.Int64Range(int64(MinLoadEvery), int64(MaxLoadEvery)).Draw(t, "every"))}
	}
	if rapid.Bool().Draw(t, "roll-out") {
		p.Rollout = drawRollout(t, &p)
	}
	return p.withDefaults()
}

func drawReservations(t *rapid.T) ReservationRules {
	return ReservationRules{time.Duration(rapid.SampledFrom([]int64{0, int64(MinExpireAfter), int64(MaxExpireAfter)}).Draw(t, "expire after"))}
}

// drawGlobalReserved draws a part of the global limit that is kept for some of the default classes.
func drawGlobalReserved(t *rapid.T, p *Policy) {
	percent := rapid.SampledFrom([]int{0, 1, 50, MaxReservedPercent}).Draw(t, "global reserved")
	kept := p.Global.Keeping(percent)
	if others, ok := kept.Others(); ok && others.Burst > 0 && others.Tokens > 0 {
		p.GlobalReserved = &GlobalReserved{Classes: []admission.Priority{admission.High, admission.Low}[:rapid.IntRange(1, 2).Draw(t, "for")], Percent: percent}
		p.GlobalReserved.Lend = p.Global.Window.IsZero() && rapid.Bool().Draw(t, "lent")
	}
}

// drawBypass draws classes that go beside limits, of those for which a part of the global limit is kept.
func drawBypass(t *rapid.T, p *Policy) {
	if p.GlobalReserved == nil && rapid.Bool().Draw(t, "no bypass") {
		return
	}
	p.Bypass = &Bypass{Classes: []admission.Priority{admission.High}, SharePercent: rapid.SampledFrom([]int{0, 1, 100}).Draw(t, "share")}
	if p.Global.Tokens > 0 && p.Global.Window.IsZero() {
		p.Bypass.ReservePercent = rapid.IntRange(0, 100).Draw(t, "reserve")
	}
}

// drawReserved draws slots that are kept for some of the four preset classes.
func drawReserved(t *rapid.T) *Reserved {
	r := &Reserved{Classes: []admission.Priority{admission.Critical, admission.High}[:rapid.IntRange(0, 2).Draw(t, "reserved classes")], Lend: rapid.Bool().Draw(t, "lend")}
	if len(r.Classes) == 0 {
		return nil
	}
	if rapid.Bool().Draw(t, "reserved percent") {
		r.Percent = rapid.IntRange(1, MaxReservedPercent).Draw(t, "percent")
	} else {
		r.Slots = rapid.IntRange(1, MaxMaxRunning).Draw(t, "slots")
	}
	return r
}

// drawShedding draws how a queue is measured, and what is refused while it is pressed.
func drawShedding(t *rapid.T, p *Policy, queues map[string]Queue) {
	if mail, ok := queues["mail"]; ok && rapid.Bool().Draw(t, "measured") {
		mail.Pressure = &PressureRules{
			TargetWait: time.Duration(rapid.Int64Range(int64(time.Millisecond), int64(MaxTargetWait)).Draw(t, "target wait")),
			MaxDepth:   rapid.SampledFrom([]int{0, 1, MaxOverflowJobs}).Draw(t, "max depth"),
		}
		if mail.Pressure.MaxDepth > 0 && rapid.Bool().Draw(t, "weights") {
			mail.Pressure.Weights = map[string]float64{"wait": 0.5, "depth": 0.25, "slots": 0.25}
		}
		queues["mail"] = mail
	}
	if rapid.Bool().Draw(t, "sheds") {
		p.Shedding = &Shedding{
			Order: []admission.Priority{admission.Low, admission.Medium, admission.High},
			At:    map[string][]string{"HIGH": {"low"}, "CRITICAL": {"low", "medium"}},
		}
		if len(queues) > 0 { // These have the class.
			p.Shedding.Reserve = []admission.Priority{admission.Critical}
		}
		if rapid.Bool().Draw(t, "by tier") {
			p.Shedding.Tiers = sortedKeys(p.Tiers)
			p.Shedding.At["MEDIUM"] = []string{"low:" + p.Shedding.Tiers[0] + rapid.SampledFrom([]string{"", ":over"}).Draw(t, "over share")}
		}
	}
}

// drawIn draws what each tenant has in a queue.
func drawIn(t *rapid.T) (e EachTenant) {
	if rapid.Bool().Draw(t, "limit in queue") {
		e.Limit = drawLimit(t)
	}
	for _, class := range someClasses {
		if rapid.IntRange(0, 2).Draw(t, "limit of class") == 0 {
			if e.PriorityLimits == nil {
				e.PriorityLimits = map[admission.Priority]admission.Limit{}
			}
			e.PriorityLimits[class] = drawLimit(t)
		}
	}
	e.TypeLimits = drawTypeLimits(t)
	return e
}

// drawTypeLimits draws limits by type; nil for none.
func drawTypeLimits(t *rapid.T) (limits map[string]admission.Limit) {
	for _, jobType := range []string{Every, "report", "a:b"} {
		if rapid.IntRange(0, 3).Draw(t, "limit of type") == 0 {
			limits = overlay(limits, map[string]admission.Limit{jobType: drawLimit(t)})
		}
	}
	return limits
}

// drawTenantQueues draws what one tenant has of its own in queues.
func drawTenantQueues(t *rapid.T) map[string]TenantQueue {
	in := map[string]TenantQueue{}
	for _, queue := range someQueues {
		if limits := drawTypeLimits(t); limits != nil {
			in[queue] = TenantQueue{limits}
		}
	}
	return orNil(in)
}

// drawEachTenant draws what each tenant has in queues, and each tenant of a tier.
func drawEachTenant(t *rapid.T, p *Policy, queues map[string]Queue) {
	bounds := rapid.SampledFrom([]Overflow{{}, {}, {Policy: NoBound}, {Policy: Reject, MaxJobs: 2}, {Policy: DropOldest, MaxBytes: 77}, {Policy: Spillover, MaxJobs: 4}})
	for _, name := range []string{"mail", Every} {
		queue, named := queues[name]
		if !named && rapid.Bool().Draw(t, "queue "+name) {
			continue
		}
		queue.EachTenant = drawIn(t)
		if name == Every && rapid.Bool().Draw(t, "classes of each queue") {
			queue.Classes = PresetCritical()
		}
		queue.Overflow = bounds.Draw(t, "bound in "+name)
		queues[name] = queue
	}
	if queues[Every].Overflow == (Overflow{}) && rapid.IntRange(0, 2).Draw(t, "bound of each other") == 0 {
		p.Overflows = overlay(p.Overflows, map[admission.Scope]Overflow{"*:*": {Policy: Reject, MaxJobs: 6}})
	}
	for _, name := range append([]admission.Scope{Every}, "acme", "bolt") {
		if rapid.IntRange(0, 2).Draw(t, "total") == 0 {
			p.Overflows = overlay(p.Overflows, map[admission.Scope]Overflow{name: {Policy: Reject, MaxJobs: 10 + len(name)}})
		}
	}
	for _, name := range sortedKeys(p.Tiers) {
		tier := p.Tiers[name]
		tier.Queues = drawTierQueues(t, bounds)
		tier.Overflow = rapid.SampledFrom([]Overflow{{}, {}, {Policy: NoBound}, {Policy: Reject, MaxJobs: 8}}).Draw(t, "bound over all queues")
		p.Tiers[name] = tier
	}
}

func drawTierQueues(t *rapid.T, bounds *rapid.Generator[Overflow]) map[string]TierQueue {
	in := map[string]TierQueue{}
	for _, queue := range append([]string{Every}, someQueues...) {
		if rapid.IntRange(0, 2).Draw(t, "tier in queue") == 0 {
			e := drawIn(t)
			in[queue] = TierQueue{e.Limit, e.PriorityLimits, e.TypeLimits, bounds.Draw(t, "bound of tier").withDefaults()}
		}
	}
	return orNil(in)
}

// drawRollout draws a candidate that leaves the standard tier its weights and its cap, and tiers their bounds.
func drawRollout(t *rapid.T, p *Policy) *Rollout {
	standard := p.Tiers[StandardTier]
	in := drawTierQueues(t, rapid.Just(Overflow{}))
	for queue, one := range standard.Queues {
		if one.Overflow != (Overflow{}) {
			in = overlay(in, map[string]TierQueue{queue: {in[queue].Limit, in[queue].PriorityLimits, in[queue].TypeLimits, one.Overflow}})
		}
	}
	standard.Queues = in
	r := &Rollout{ID: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "id"), Percent: rapid.IntRange(0, MaxPercent).Draw(t, "percent")}
	standard.Limit = drawLimit(t)
	r.Rules.Tiers = map[string]Tier{StandardTier: standard}
	some := func(name string) bool { return rapid.Bool().Draw(t, name) }
	if some("candidate's tenant") {
		r.Rules.Tenants = map[string]Tenant{
			rapid.SampledFrom(someTenants).Draw(t, "tenant"): {Weights: drawWeights(t), Limit: new(drawLimit(t)), MaxRunning: 5, Queues: drawTenantQueues(t)},
		}
	}
	if some("candidate's queue") {
		r.Rules.QueueLimits = map[admission.Scope]admission.Limit{"acme:mail": drawLimit(t), "stranger:sms": drawLimit(t)}
	}
	if some("candidate's priority") {
		r.Rules.PriorityLimits = map[admission.Scope]admission.Limit{"bolt:sms:high": drawLimit(t)}
	}
	if some("candidate's bounds") {
		r.Rules.Overflows = map[admission.Scope]Overflow{"acme:mail": {Policy: Reject, MaxJobs: 3}, "bolt:sms": {Policy: Reject, MaxJobs: 4}}
		r.Rules.MaxRunning = map[admission.Scope]int{"acme:mail": 8, "stranger:sms": 9}
	}
	return r
}

// sideOf returns the policy that a tenant has: that of the candidate where it is in.
func sideOf(p Policy, tenant string) Policy {
	if p.Rollout.Has(tenant) {
		return p.Promoted()
	}
	return p
}

// drawCaps draws what bounds dispatch.
func drawCaps(t *rapid.T, p *Policy, tenants map[string]Tenant, queues map[string]Queue) {
	most := rapid.SampledFrom([]int{0, 1, 7, MaxMaxRunning})
	for _, name := range sortedKeys(p.Tiers) {
		tier := p.Tiers[name]
		tier.MaxRunning = most.Draw(t, "tier runs")
		p.Tiers[name] = tier
	}
	for _, name := range sortedKeys(tenants) {
		tenant := tenants[name]
		tenant.MaxRunning = most.Draw(t, "tenant runs")
		if rapid.Bool().Draw(t, "tenant rate") {
			tenant.Dispatch = new(drawRate(t))
		}
		tenants[name] = tenant
	}
	if mail, ok := queues["mail"]; ok {
		mail.MaxRunning, mail.MaxRunningPerTenant = most.Draw(t, "queue runs"), most.Draw(t, "tenant in queue runs")
		queues["mail"] = mail
	}
	if rapid.Bool().Draw(t, "own cap") {
		p.MaxRunning = map[admission.Scope]int{"acme:mail": 3}
	}
	if rapid.Bool().Draw(t, "downstream") {
		p.Downstreams = map[string]Downstream{"api": {MaxRunning: most.Draw(t, "downstream runs"), MaxParked: 9, Dispatch: new(drawRate(t))}}
	}
	if api := p.Downstreams["api"].MaxRunning; api > 1 && rapid.Bool().Draw(t, "adaptive") {
		p.Adaptive = map[string]Adaptive{"api": {
			Of: "downstream api", Controller: rapid.SampledFrom([]Controller{"", Gradient, AIMD}).Draw(t, "controller"), Min: 2,
			Max: rapid.SampledFrom([]int{0, 2, api}).Draw(t, "adaptive max"), MaxRunTime: time.Second,
		}}
		if rapid.Bool().Draw(t, "pid") {
			a := p.Adaptive["api"]
			a.Controller, a.TargetRunTime, a.Gains.Integral = PID, time.Second/2, rapid.SampledFrom([]float64{0, 0.2}).Draw(t, "ki")
			p.Adaptive["api"] = a
		}
	}
	if api := p.Downstreams["api"].Dispatch; api != nil && !api.Disabled && rapid.Bool().Draw(t, "adaptive rate") {
		if p.Adaptive == nil {
			p.Adaptive = map[string]Adaptive{}
		}
		p.Adaptive["api-rate"] = Adaptive{Of: "downstream api", Moves: MovesDispatch, Min: 1, Max: rapid.SampledFrom([]int{0, 1, int(api.Tokens)}).Draw(t, "most rate")}
	}
	if api, ok := p.Downstreams["api"]; ok && rapid.Bool().Draw(t, "retry after") {
		api.MaxRetryAfter = time.Minute
		p.Downstreams["api"] = api
	}
	for _, account := range []string{"api+*", "api+shop", "db+shop"} {
		if p.Downstreams != nil && rapid.Bool().Draw(t, "account") {
			p.Downstreams[account] = Downstream{MaxRunning: most.Draw(t, "account runs"), Dispatch: new(admission.PerMinute(7)), MaxRetryAfter: time.Minute}
		}
	}
	p.AnyDownstream = Downstream{MaxRetryAfter: rapid.SampledFrom([]time.Duration{0, time.Second}).Draw(t, "any retry after"), MaxRunning: most.Draw(t, "any runs"), MaxParked: most.Draw(t, "any parked")}
}

func orNil[K comparable, V any](m map[K]V) map[K]V {
	if len(m) == 0 {
		return nil
	}
	return m
}
