package redisstore_test

import (
	"cmp"
	"math"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// by is who does what an operator does, now and then as part of one act.
func (w *walk) by() store.Intervention {
	return store.Intervention{Author: "ada", Reason: "test", Act: pick(w, "act", []string{"", "", "x"})}
}

// sight looks at a job as people do.
func (w *walk) sight() {
	key := w.anyJob()
	w.replied("look at "+key.String(), func(s store.Partition) redistest.Reply {
		sight, err := s.Look(w.ctx, key)
		sight.Token, sight.Since = "", time.Time{} // Redis tells by its own clock since when a worker has it.
		return redistest.Replied(sight, err)
	})
	w.replied("payload of "+key.String(), func(s store.Partition) redistest.Reply { return redistest.Replied(s.Payload(w.ctx, key)) })
	w.replied("result of "+key.String(), func(s store.Partition) redistest.Reply { return redistest.Replied(s.Result(w.ctx, key)) })
}

// anyJob draws a job that lives, or one that does not.
func (w *walk) anyJob() admission.Key {
	keys := []admission.Key{{Tenant: "ann", ID: "j0"}, {Tenant: "bob", ID: "nobody"}}
	page, err := w.memory.List(w.ctx, store.ListQuery{Limit: store.MaxPage})
	check(w.tb, err)
	if len(page.Jobs) > 0 && w.number("any", 0, 9) > 0 {
		keys = keys[:0]
	}
	for i := range page.Jobs {
		keys = append(keys, page.Jobs[i].Key)
	}
	return pick(w, "job", keys)
}

func (w *walk) cancel() {
	key, by := w.anyJob(), w.by()
	w.resend = func() {
		w.replied("cancel "+key.String(), func(s store.Partition) redistest.Reply { return redistest.Replied(s.Cancel(w.ctx, key, by)) })
	}
	w.resend()
}

// clear cancels what a tenant has waiting in a queue, as far as a call has moves.
func (w *walk) clear() {
	tenant, queue, by := pick(w, "tenant", walkTenants), pick(w, "queue", walkQueues), w.by()
	w.replied("clear "+tenant+" in "+queue, func(s store.Partition) redistest.Reply {
		return redistest.Replied(s.ClearTenant(w.ctx, tenant, queue, by))
	})
}

func (w *walk) purge() {
	letters := w.letters()
	if len(letters) == 0 {
		return
	}
	keys := []admission.Key{pick(w, "purged", letters), {Tenant: "ann", ID: "nobody"}}
	by := w.by()
	w.resend = func() {
		w.replied("purge", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Purge(w.ctx, keys, by)) })
	}
	w.resend()
}

// suspend does what stops admission, or a pause, or ends it.
func (w *walk) suspend() {
	w.trigger()
	tenant, queue := pick(w, "tenant", walkTenants), pick(w, "queue", walkQueues)
	name := pick(w, "suspended", []store.GateName{store.QueueGate(queue), store.TenantGate(tenant), store.TenantQueueGate(tenant, queue)})
	length, by := time.Duration(w.number("for", 0, 2))*time.Second, w.by()
	by.Author = pick(w, "author", []string{"ada", "", store.TriggerAuthor})
	resume, pauses := w.number("resume", 0, 2) > 0, w.gates == "all" && w.number("pause", 0, 2) == 2
	w.resend = func() {
		w.replied("suspend "+string(name), func(s store.Partition) redistest.Reply {
			switch {
			case pauses && resume:
				return redistest.Replied(s.Unpause(w.ctx, name, by))
			case pauses && length == time.Second:
				return redistest.Replied(s.PauseAtLeast(w.ctx, name, length+time.Duration(2*len(by.Act))*time.Second, by))
			case pauses:
				return redistest.Replied(s.Pause(w.ctx, name, length, by))
			case resume:
				return redistest.Replied(s.Resume(w.ctx, name, by))
			}
			return redistest.Replied(s.Suspend(w.ctx, name, length, by))
		})
	}
	w.resend()
}

func (w *walk) gate() {
	tenant, queue := pick(w, "tenant", walkTenants[:2]), pick(w, "queue", walkQueues)
	names := []store.GateName{store.QueueGate(queue), store.TenantGate(tenant), store.TenantQueueGate(tenant, queue), store.DownstreamGate("api"), store.DownstreamGate("db")}
	if w.gates == "lanes" {
		names = []store.GateName{store.DownstreamGate("api"), store.DownstreamGate("api"), store.DownstreamGate("db"), store.TenantGate(walkTenants[0])}
	}
	if w.theme == "accounts" {
		names = []store.GateName{"d:api", "d:api+x", "d:api+y", "d:db+x"}
	}
	g := store.Gate{
		Name:  pick(w, "gate", names),
		Limit: pick(w, "limit", []int{0, 0, 1, 2, store.Unlimited, store.Unlimited}), Then: pick(w, "then", []int{store.Unlimited, 1}),
		For: time.Duration(w.number("for", 0, 3)) * time.Second, By: w.by(),
	}
	w.resend = func() { // a second call may wake more waiters, who park again
		w.replied("gate "+string(g.Name), func(s store.Partition) redistest.Reply { return redistest.Replied(s.SetGate(w.ctx, g)) })
	}
	w.resend()
}

func (w *walk) policy() {
	w.drawLimits()
	u := store.PolicyUpdate{
		Expected: w.someVersion(), Version: w.version + 1, Text: []byte("{}"), Window: 30 * time.Second, Caps: w.drawCaps(), MaxParked: map[string]int{},
		Edit: pick(w, "edit", []string{"", "e1", "e2"}), LongestFill: pick(w, "longest", []time.Duration{0, time.Hour}),
	}
	seldom := cmp.Or(map[string]int{"letters": 1}[w.theme], 5)
	for _, q := range walkQueues {
		if w.number("named", 0, seldom) == seldom {
			continue
		}
		u.Queues = append(u.Queues, store.QueueSettings{
			Queue: q, Classes: w.drawClasses(), Horizon: time.Duration(w.number("horizon", 0, 2)) * time.Hour, DropExpired: w.number("drop", 0, 1) == 1,
			MaxWait: time.Duration(max(0, w.number("max wait", -4, 4))) * time.Second, PoisonLimit: w.number("poison", 0, 3),
			KeepDead: time.Duration(w.number("keep", 0, 3)) * time.Second, MaxDead: pick(w, "letters", []int{3, 0, 1, 2, 4}), Overflow: w.drawOverflow(),
			Tiers: w.drawTiers(),
		})
	}
	if w.number("queues nobody named", 0, 2) == 0 {
		u.Queues = append(u.Queues, store.QueueSettings{
			Queue: store.Every, Classes: w.drawEveryClasses(), Horizon: time.Duration(w.number("horizon", 0, 2)) * time.Hour, DropExpired: w.number("drop", 0, 1) == 1,
			MaxWait: time.Duration(max(0, w.number("max wait", -4, 4))) * time.Second, PoisonLimit: w.number("poison", 0, 3),
			KeepDead: time.Duration(w.number("keep", 0, 3)) * time.Second, MaxDead: pick(w, "letters", []int{3, 0, 1, 2, 4}),
		})
	}
	if tier := pick(w, "tier", []string{"", "gold", "tin.1"}); tier != "" && w.theme != "spills" {
		u.Tiers = map[string]string{"ann": tier}
	}
	if w.number("own bound", 0, 2) == 0 {
		u.Overflows = append(u.Overflows, store.TenantOverflow{Tenant: "ann", Queue: "mail", Overflow: w.drawOverflow()})
	}
	if w.theme != "spills" {
		w.drawTotals(&u)
	}
	w.drawWeights(&u)
	w.drawTierCaps(&u)
	for _, downstream := range []string{"", "api"} {
		if w.number("parked cap", 0, 2) == 2 {
			u.MaxParked[downstream] = w.number("most parked", 1, 3)
		}
	}
	for _, q := range walkQueues {
		if w.number("measured", 0, 1) == 1 {
			u.Pressured = append(u.Pressured, q)
		}
	}
	if w.number("tells load", 0, 1) == 1 {
		u.Load = time.Duration(w.number("load", 1, 3)) * time.Second
	}
	u.Watched = w.number("watched", 0, 2) == 1
	usage := pick(w, "usage", []int{0, 1, 2, 100})
	u.Usage = usage > 0
	u.Reserves = w.drawReserves()
	sheds, dooms := w.drawShedding(u.Pressured), map[string]int{}
	for _, q := range walkQueues {
		dooms[q] = pick(w, "doomed", []int{0, 100, 10, 300})
	}
	if w.number("known", 0, 1) == 1 {
		u.Before = w.before
	}
	asked := w.replied("check of a policy", func(s store.Partition) redistest.Reply { return redistest.Replied(s.CheckPolicy(w.ctx, u)) })
	w.resend = func() {
		w.replied("policy", func(s store.Partition) redistest.Reply { return redistest.Replied(s.PutPolicy(w.ctx, u)) })
	}
	w.resend()
	if asked.Err == "" {
		w.service.weightsChanged()
		w.version, w.before, w.sheds, w.usage, w.dooms = u.Version, &u, sheds, usage, dooms
	}
}

// drawCaps draws caps and rates, few of them, so that they go and come.
func (w *walk) drawCaps() []store.Cap {
	var caps []store.Cap
	capped := []store.GateName{
		store.QueueGate("mail"), store.TenantGate("ann"), store.TenantQueueGate("ann", "mail"), store.DownstreamGate("api"),
		store.TenantGate(store.Every), store.TenantQueueGate(store.Every, "hook"), store.DownstreamGate(store.Every),
	}
	rated := []store.GateName{store.TenantRateGate("ann"), store.TenantRateGate("bob"), store.DownstreamRateGate("api")}
	if w.theme == "accounts" {
		capped = append(capped[3:4:4], "d:*", "d:api+*", "d:api+x")
		rated = []store.GateName{"s:api+*", "s:api+x", "s:db+*"}
	}
	for _, name := range capped {
		moves := name == store.DownstreamGate("api") && (w.theme == "adaptive" || w.number("moves", 0, 1) == 1)
		if w.gates == "all" && (w.number("capped", 0, 3) == 3 || w.theme == "adaptive" && moves) {
			c := store.Cap{Gate: name, Limit: w.number("cap", 1, 3)}
			if moves {
				c.Limit += 3
				c.Least, c.Loop = w.number("least", 1, c.Limit), pick(w, "loop", []string{"out", "a/5"})
				c.Most = w.number("most", c.Least, c.Limit)
			}
			caps = append(caps, c)
		}
	}
	for _, name := range rated {
		moves := name == store.DownstreamRateGate("api") && w.number("rate moves", 0, 1) == 1
		if w.gates == "all" && (w.number("rated", 0, 2) == 2 || w.theme == "adaptive" && moves || w.theme == "accounts" && w.number("rated too", 0, 1) == 1) {
			c := store.Cap{Gate: name, Rate: admission.Limit{
				Tokens: admission.Tokens(w.number("rate", 1, 9)), Per: pick(w, "rate per", []time.Duration{time.Second, 7 * time.Second}),
				Burst: admission.Tokens(w.number("rate burst", 1, 3)),
			}}
			if moves {
				c.Limit = int(float64(c.Rate.Tokens) / c.Rate.Per.Seconds() * store.RateUnit)
				c.Least, c.Loop = c.Limit/w.number("least rate", 1, 5), pick(w, "loop of a rate", []string{"out-rate", "a/5"})
				c.Most = c.Limit - (c.Limit-c.Least)/w.number("most rate", 1, 3)
			}
			caps = append(caps, c)
		}
	}
	for _, name := range []store.GateName{store.GlobalLimitGate, store.QueueLimitsGate("mail")} {
		if w.number("limits move", 0, 2) == 2 {
			least := w.number("least part", 10, 900)
			caps = append(caps, store.Cap{Gate: name, Limit: store.PartWhole, Least: least, Most: w.number("most part", least, store.PartWhole), Loop: "share"})
		}
	}
	return caps
}

// drawReserves draws slots that only some classes may take.
func (w *walk) drawReserves() (all []store.Reserve) {
	if w.gates != "all" && w.theme != "pressed" {
		return nil
	}
	for _, queue := range walkQueues {
		r := store.Reserve{Queue: queue, Classes: pick(w, "reserved", [][]int{nil, {0}, {0, 1}, {1}}), Lends: w.number("lends", 0, 2) == 2}
		if r.Classes == nil {
			continue
		}
		if w.number("of all", 0, 1) == 0 {
			r.Slots = w.number("slots kept", 1, 4)
		} else {
			r.Percent = w.number("percent kept", 1, 99)
		}
		all = append(all, r)
	}
	return all
}

// assertReserves asserts that no job of another class has taken a slot that is kept, nor one that was not lent: there are more of these than may
// be only where there were before.
func (w *walk) assertReserves(op string) {
	before := w.others
	w.others = map[string]int{}
	if w.before == nil {
		return
	}
	for _, r := range w.before.Reserves {
		q, err := w.memory.Queue(w.ctx, r.Queue)
		if err != nil {
			continue // Nobody knows it yet.
		}
		w.others[r.Queue] = q.Others
		slots := q.Slots
		if q.Gate != nil && q.Gate.Limit > 0 {
			slots = min(slots, q.Gate.Limit)
		}
		left := max(1, slots-r.Slots-int(math.Ceil(float64(slots*r.Percent)/100)))
		if op != "policy" && !r.Lends && q.Others > max(left, before[r.Queue]) {
			w.rt.Fatalf("after %s workers have %d jobs of queue %s that are of others, and %d is all they may, of %d slots (%s)", op, q.Others, r.Queue, left, slots, r)
		}
	}
}

// shedding names the jobs of a queue that have a tier and a class in common. Each tenant of the walk has a tier of its own here.
type shedding struct {
	queue         string
	tenant, class int
}

// drawShedding draws from which level on jobs are refused: the higher the class and then the tier, the later.
func (w *walk) drawShedding(queues []string) map[shedding][2]admission.PressureLevel {
	sheds := map[shedding][2]admission.PressureLevel{}
	for _, queue := range queues {
		from := admission.PressureLow
		for class := 2; class >= 0; class-- {
			for tenant := range walkTenants {
				from = min(from+admission.PressureLevel(w.number("shed later", 0, 1)), admission.PressureCritical+1)
				over := max(admission.PressureLow, from-admission.PressureLevel(w.number("over share sooner", 0, 2)))
				sheds[shedding{queue, tenant, class}] = [2]admission.PressureLevel{from, over}
			}
		}
	}
	return sheds
}

// press notes how much a queue is pressed.
func (w *walk) press() {
	level := admission.PressureLevel(w.number("level", 1, 5))
	to := store.Press{
		Owner: pick(w, "owner", []string{"s1", "s1", "s1", "s2"}), Version: w.someVersion(), Queue: pick(w, "queue", walkQueues),
		Pressure: admission.Pressure{Level: level, Score: float64(w.number("score", 0, 1000)) / 1000, RetryAfter: time.Duration(w.number("hint", 0, 9)) * time.Second},
		Life:     time.Duration(w.number("life", 0, 4)) * time.Second, Parts: "wait 0.9 | of weight 1", Number: int64(max(0, w.number("number", -4, 4))),
	}
	w.resend = func() {
		w.replied("press "+to.Queue, func(s store.Partition) redistest.Reply { return redistest.Replied(s.Press(w.ctx, to)) })
	}
	w.resend()
}

// loads notes how busy queues are, and reads what was noted of them and of workers.
func (w *walk) loads() {
	to := store.LoadNote{Owner: pick(w, "owner", []string{"s1", "s1", "s1", "s2"}), Services: map[string]string{}}
	for _, queue := range walkQueues {
		if w.number("noted", 0, 2) > 0 {
			to.Services[queue] = pick(w, "text", []string{"[1]", "[2]", "[3]"})
		}
	}
	w.resend = func() {
		w.replied("note load", func(s store.Partition) redistest.Reply { return redistest.Replied(true, s.NoteLoad(w.ctx, to)) })
	}
	w.resend()
	since := time.UnixMicro(w.now).Add(-time.Duration(w.number("back", 0, 70)) * time.Minute)
	w.replied("history", func(s store.Partition) redistest.Reply { return redistest.Replied(s.LoadHistory(w.ctx, "mail", since)) })
	w.replied("loads of workers", func(s store.Partition) redistest.Reply { return redistest.Replied(s.WorkerLoads(w.ctx)) })
	w.replied("queues", func(s store.Partition) redistest.Reply { return redistest.Replied(s.QueueNames(w.ctx)) })
}

// trigger notes that a trigger acts, or does no more.
func (w *walk) trigger() {
	to := store.TriggerNote{
		Owner: pick(w, "owner", []string{"s1", "s1", "s2"}), Version: w.someVersion(), Name: pick(w, "trigger", []string{"busy", "ill"}),
		Life: time.Duration(w.number("life", 0, 2)) * time.Second, Do: "pause", Of: "queue mail", Why: pick(w, "why", []string{"", "a|b"}),
	}
	w.replied("note trigger", func(s store.Partition) redistest.Reply { return redistest.Replied(true, s.NoteTrigger(w.ctx, to)) })
	w.replied("triggers", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Triggers(w.ctx)) })
}

// adapt moves a limit that moves by itself, or freezes it, or lets it go on.
func (w *walk) adapt() {
	to := store.Adapt{
		Owner: pick(w, "owner", []string{"s1", "s1", "s2"}), Version: w.someVersion(), Gate: pick(w, "gate", []store.GateName{store.DownstreamGate("api"), store.DownstreamGate("api"), store.DownstreamGate("db")}),
		Limit: w.number("limit", 0, 7), Cause: pick(w, "cause", []string{"gain", "no_gain"}), Number: int64(max(0, w.number("number", -4, 4))),
		DeadBand: max(0, w.number("dead band", -2, 3)),
	}
	to.Back = max(0, w.number("back", -2, 2))
	if w.theme == "adaptive" {
		to.Owner, to.Gate = "s1", store.DownstreamGate("api")
	}
	if w.number("rate", 0, 2) == 2 {
		to.Gate, to.Limit = store.DownstreamRateGate("api"), to.Limit*store.RateUnit*7/6
	}
	if w.number("limits", 0, 2) == 2 {
		to.Gate = pick(w, "of limits", []store.GateName{store.GlobalLimitGate, store.QueueLimitsGate("mail")})
		to.Limit *= 170
		to.Life = time.Duration(w.number("life", 0, 2)) * 2 * time.Second
	}
	freezes, by := w.number("freezes", 0, 6), w.by()
	duration := time.Duration(w.number("override", 0, 3)) * 2 * time.Second
	w.resend = func() {
		if freezes > 4 {
			w.replied("override", func(s store.Partition) redistest.Reply {
				return redistest.Replied(s.Override(w.ctx, to.Gate, to.Limit, duration, by))
			})
			return
		}
		if freezes > 2 {
			w.replied("freeze", func(s store.Partition) redistest.Reply {
				return redistest.Replied(s.Freeze(w.ctx, to.Gate, freezes == 4, by))
			})
			return
		}
		w.replied("adapt", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Adapt(w.ctx, to)) })
	}
	w.resend()
}

func (w *walk) drawOverflow() store.Overflow {
	if w.theme == "spills" {
		return store.Overflow{Policy: store.Spillover, MaxJobs: pick(w, "max jobs", []int{12, 8}), MaxSpilled: 40, LowWater: pick(w, "low water", []int{50, 0, 100})}
	}
	policy := pick(w, "overflow", []store.OverflowPolicy{"", store.NoBound, store.Reject, store.DropOldest, store.DropOldest, store.Spillover, store.Spillover})
	if policy == "" {
		return store.Overflow{}
	}
	return store.Overflow{
		Policy: policy, MaxJobs: w.number("max jobs", 0, 8), MaxBytes: pick(w, "max bytes", []int64{0, 0, 200, 1000, 20_000}),
		MaxSpilled: w.number("max spilled", 1, 20), LowWater: pick(w, "low water", []int{0, 50, 100}),
	}
}

// drawTiers draws bounds of tiers in a queue.
func (w *walk) drawTiers() map[string]store.Overflow {
	if w.theme == "spills" || w.number("tiers", 0, 2) > 0 {
		return nil
	}
	tiers := map[string]store.Overflow{"gold": w.drawOverflow()}
	if w.number("more tiers", 0, 1) > 0 {
		tiers["tin.1"] = w.drawOverflow()
	}
	return tiers
}

// drawTotals draws bounds of tenants over all their queues, and of each tenant in each queue that has none.
func (w *walk) drawTotals(u *store.PolicyUpdate) {
	for _, o := range []store.TenantOverflow{{Tenant: "ann"}, {Tenant: store.Every}, {Tenant: store.Every, Queue: store.Every}} {
		if w.number("total", 0, 2) > 0 {
			continue
		}
		o.Overflow = w.drawOverflow()
		if o.Tenant == store.Every {
			o.Tiers = w.drawTiers()
		}
		if o.Queue == "" && o.Overflow.Policy != "" {
			o.Overflow = store.Overflow{Policy: store.Reject, MaxJobs: o.Overflow.MaxJobs, MaxBytes: o.Overflow.MaxBytes}
		}
		for tier, of := range o.Tiers {
			if o.Queue == "" && of.Policy != "" {
				o.Tiers[tier] = store.Overflow{Policy: store.Reject, MaxJobs: of.MaxJobs, MaxBytes: of.MaxBytes}
			}
		}
		u.Overflows = append(u.Overflows, o)
	}
}
