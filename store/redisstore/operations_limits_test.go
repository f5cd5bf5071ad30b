package redisstore_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

const (
	walkLease      = 20 * time.Second
	walkBeat       = 30 * time.Second
	walkMostAmount = 30
)

// checks asks for tokens without a job.
func (w *walk) checks() {
	peek, version, questions := w.number("peek", 0, 2) == 0, w.someVersion(), w.questions(4)
	w.ofJobs(questions)
	w.replied(fmt.Sprintf("check %+v, peek %t", questions, peek), func(s store.Partition) redistest.Reply {
		granted, answers, err := s.Check(w.ctx, version, peek, questions)
		return redistest.Replied(granted, answers, err)
	})
}

// someVersion is that of the policy in force, now and then another.
func (w *walk) someVersion() int64 { return w.version + int64(w.number("another version", 0, 15)/15) }

// shadow asks what another policy would decide.
func (w *walk) shadow() {
	id, version, questions := fmt.Sprint(pick(w, "candidate", []string{"a", "b"}), w.version), w.someVersion(), []store.Question{w.question()}
	for range w.number("more questions", 0, 2) {
		questions = append(questions, w.question())
	}
	w.ofJobs(questions)
	w.replied("shadow", func(s store.Partition) redistest.Reply {
		return redistest.Replied(s.Shadow(w.ctx, version, id, questions))
	})
	w.replied("shadow counts", func(s store.Partition) redistest.Reply { return redistest.Replied(s.ShadowCounts(w.ctx)) })
}

// reset fills a bucket.
func (w *walk) reset() {
	q, by := w.question(), w.by()
	w.replied(fmt.Sprintf("reset %+v", q), func(s store.Partition) redistest.Reply {
		return redistest.Replied(s.ResetBucket(w.ctx, q.Tenant, q.Queue, q.Class, by))
	})
}

// scale has limits be a part of what they are, for a time, or ends that.
func (w *walk) scale() {
	target := pick(w, "scaled", []store.GateName{store.ScaleAll, store.ScaleGlobal, store.TenantGate(walkTenants[0]), store.TenantGate(walkTenants[1])})
	part, by := pick(w, "part", []float64{0.5, 0.01, 1.0 / 3, 0.07, 1}), w.by()
	duration := pick(w, "scaled for", []time.Duration{30 * time.Second, time.Second, 0, 5 * time.Second, 10 * time.Minute})
	w.resend = func() {
		w.replied(fmt.Sprintf("scale %s to %g for %s", target, part, duration), func(s store.Partition) redistest.Reply {
			return redistest.Replied(s.ScaleLimits(w.ctx, target, part, duration, by))
		})
	}
	w.resend()
	w.replied("scales", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Scales(w.ctx)) })
}

// owned is what a tenant has of its own beside the policy.
type owned struct {
	limits  [admission.Levels]admission.Limit
	types   [2]admission.Limit
	version int64
}

// limitsOf returns the limits on a tenant's ways, and the version of the record that they come from, zero where the policy has no records.
func (w *walk) limitsOf(tenant string) (limits [admission.Levels]admission.Limit, record int64) {
	limits = w.limits[max(0, slices.Index(walkTenants, tenant))%len(w.limits)]
	if w.owned == nil {
		return limits, 0
	}
	own, ok := w.owned[tenant]
	if !ok {
		return limits, policy.NoRecord
	}
	copy(limits[admission.LevelTenant:], own.limits[admission.LevelTenant:])
	return limits, own.version
}

// drawWeights draws weights of tenants and, where tenants have records, of tiers that these name.
func (w *walk) drawWeights(u *store.PolicyUpdate) {
	for _, c := range admission.DefaultClasses() {
		for _, tenant := range []string{"", "ann", "bob"} {
			of := store.TenantWeight{Class: c.Name, Tenant: tenant, Weight: admission.Weight(w.number("weight", 1, 1000))}
			if w.owned != nil && tenant != "" {
				if w.number("of its own", 0, 2) == 0 {
					continue
				}
				of.ByTier = w.number("by its tier", 0, 1) == 1
			}
			u.Weights = append(u.Weights, of)
		}
		if w.owned != nil && w.number("weights of tiers", 0, 2) > 0 {
			u.TierWeights = append(u.TierWeights,
				store.TierWeight{Class: c.Name, Tier: "tin.1", Weight: admission.Weight(w.number("weight of tin", 1, 1000))},
				store.TierWeight{Class: c.Name, Tier: "gold", Weight: admission.Weight(w.number("weight of gold", 1, 1000))})
		}
	}
}

// drawShares draws what a record says of tier, weights, cap, rate of dispatches and bounds, as its JSON begins with it.
func (w *walk) drawShares() (text string) {
	if tier := pick(w, "record's tier", []string{"", "gold", "tin.1", "gone"}); tier != "" && w.theme != "spills" {
		text = fmt.Sprintf("%q:%q,", "tier", tier)
	}
	if class := pick(w, "weighed class", []admission.Priority{"", admission.High, admission.Low}); class != "" {
		text += fmt.Sprintf("%q:{%q:%d},", "priority_weights", class, w.number("own weight", 1, 1000))
	}
	if w.gates != "none" && w.number("own cap", 0, 1) == 0 {
		text += fmt.Sprintf("%q:%d,", "max_running", w.number("max running", 1, 3))
	}
	if w.gates == "all" && (w.theme == "rated" || w.number("own rate", 0, 3) == 0) {
		text += w.drawDispatch()
	}
	return text + w.drawBounds()
}

// drawTierCaps draws caps of tiers that records of tenants name, and says of caps of tenants whether they are those of their tiers.
func (w *walk) drawTierCaps(u *store.PolicyUpdate) {
	if w.owned == nil || w.gates == "none" {
		return
	}
	for i, c := range u.Caps {
		if kind, _ := c.Gate.Split(); kind == store.KindTenant && !c.Gate.OfEach() {
			u.Caps[i].ByTier = w.number("cap by its tier", 0, 1) == 1
		}
	}
	for _, tier := range []string{"tin.1", "gold"} {
		if w.number("cap of "+tier, 0, 2) > 0 {
			u.TierCaps = append(u.TierCaps, store.TierCap{Tier: tier, Limit: pick(w, "cap of "+tier, []int{1, 2, 3, store.NoCap})})
		}
	}
}

// record gives a tenant limits of its own, its tier and weights, others or none.
func (w *walk) record() {
	if w.owned == nil {
		return
	}
	tenant, by := pick(w, "owner", walkTenants), w.by()
	e := store.RecordEdit{Tenant: tenant, Policy: w.someVersion(), LongestFill: time.Minute, By: by}
	if w.number("told apart", 0, 2) > 0 {
		e.Changes = []byte("[]")
	}
	e.Expected = int64(w.number("expected record", 0, 3))
	var own owned
	if w.number("own", 0, 3) > 0 {
		for level := admission.LevelTenant; level < admission.Levels; level++ {
			own.limits[level] = w.drawLimit()
		}
		own.types = w.drawOwn()
		e.Text = fmt.Appendf(nil, "{%s%q:%q}", w.drawShares(), "others", fmt.Sprint(own.limits, own.types))
	}
	e.Bounded = w.number("bounded by tier", 0, 1) == 1
	send := func() (version int64, text string) {
		reply := w.replied(fmt.Sprintf("record of %s: %q", tenant, e.Text), func(s store.Partition) redistest.Reply {
			return redistest.Replied(s.PutRecord(w.ctx, e))
		})
		version, _ = reply.Values[0].(int64)
		return version, reply.Err
	}
	version, text := send()
	if w.resend = func() { send() }; text != "" {
		return
	}
	w.service.weightsChanged()
	w.replied("spread", func(s store.Partition) redistest.Reply { return redistest.Replied(s.SpreadPolicy(w.ctx)) })
	if own.version = version; len(e.Text) == 0 {
		delete(w.owned, tenant)
	} else {
		w.owned[tenant] = own
	}
	w.replied("records", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Records(w.ctx, walkTenants...)) })
	w.replied("tiers of records", func(s store.Partition) redistest.Reply { return redistest.Replied(s.RecordTiers(w.ctx)) })
	w.replied("how many records", func(s store.Partition) redistest.Reply { return redistest.Replied(s.CountRecords(w.ctx)) })
}

func (w *walk) questions(most int) []store.Question {
	n := w.number("questions", 1, most)
	if w.number("many", 0, 15) == 15 {
		n = 20
	}
	questions := make([]store.Question, n)
	for i := range questions {
		questions[i] = w.anyQuestion()
	}
	return questions
}

// ofDimension draws a question of a dimension: of one with room for three keys, of one with several shards, or of a key that always has its bucket.
func (w *walk) ofDimension() store.Question {
	q := store.Question{
		Tenant: pick(w, "dimension", []string{"+user", "+user", "+ip"}), Queue: fmt.Sprint("k", w.number("key", 0, 7)),
		Cost: admission.Tokens(pick(w, "cost", []int{1, 2, 3, 4, 5, 61})), Limits: w.limits[0], MaxKeys: 3,
	}
	if q.Limits[admission.LevelQueue].Disabled {
		q.Limits[admission.LevelQueue] = admission.PerSecond(2).WithBurst(5)
	}
	q.Limits[admission.LevelTenant], q.Limits[admission.LevelPriority] = q.Limits[admission.LevelQueue], admission.Limit{Disabled: true}
	switch {
	case q.Tenant == "+ip":
		q.MaxKeys = 250
	case q.Queue == "k7":
		q.MaxKeys, q.Limits[admission.LevelTenant] = 0, admission.Limit{Disabled: true}
	}
	if w.owned != nil {
		q.Record = policy.NoRecord
	}
	return q
}

// anyQuestion draws one of any level, or of a dimension.
func (w *walk) anyQuestion() store.Question {
	if w.number("of a dimension", 0, 3) == 3 {
		return w.ofDimension()
	}
	return w.question()
}

// question draws one of any level.
func (w *walk) question() store.Question {
	tenants := len(walkTenants)
	if w.theme == "algorithms" {
		tenants = 2
	}
	tenant := w.number("tenant", 0, tenants-1)
	level := admission.Level(w.number("level", 0, int(admission.LevelPriority)))
	q := store.Question{Cost: admission.Tokens(pick(w, "cost", []int{1, 2, 3, 4, 5, 61})), Limits: w.limits[tenant%len(w.limits)]}
	if level >= admission.LevelTenant {
		q.Tenant = walkTenants[tenant]
	}
	if w.owned != nil {
		q.Record = policy.NoRecord
		if q.Tenant != "" {
			q.Limits, q.Record = w.limitsOf(q.Tenant)
		}
		q.Record += int64(w.number("another record", 0, 23) / 23)
	}
	if level >= admission.LevelQueue {
		q.Queue = pick(w, "queue", walkQueues)
		q.Measured = w.number("measured", 0, 1) == 1
	}
	if level >= admission.LevelPriority {
		q.Class = pick(w, "class", admission.DefaultClasses()).Name
		if w.number("of a type", 0, 4) == 4 {
			jobType := pick(w, "type", walkTypes)
			if q.Class, q.Limits[level] = admission.OfType(jobType), (admission.Limit{Disabled: true}); w.ofType(q.Tenant, jobType) != nil {
				q.Limits[level] = *w.ofType(q.Tenant, jobType)
			}
		}
	}
	for below := level + 1; below < admission.Levels; below++ {
		q.Limits[below] = admission.Limit{Disabled: true}
	}
	return q
}

// used has the usage of a tenant's question kept, where the policy says so.
func (w *walk) used(q store.Question) store.Question {
	if q.Tenant != "" {
		q.Usage = w.usage
	}
	return q
}

// take asks a question whose tokens a later step may refund.
func (w *walk) take() {
	q := w.anyQuestion()
	if !q.OfDimension() {
		q = w.used(q)
		some := []store.Question{q}
		w.ofJobs(some)
		q = some[0]
	}
	var beside []store.Question
	if !q.OfDimension() {
		beside = w.beside(&q)
	}
	reply := w.replied(fmt.Sprintf("take %+v beside %+v", q, beside), func(s store.Partition) redistest.Reply {
		verdict, receipt, err := s.Take(w.ctx, w.version, q, beside...)
		return redistest.Replied(verdict, receipt, err)
	})
	verdict, _ := reply.Values[0].(admission.Verdict)
	if receipt, _ := reply.Values[1].(store.Taken); verdict.Decision == admission.Admitted {
		receipt.ExpireAfter = w.expireAfter()
		w.takings = append(w.takings, receipt)
	}
}

// expireAfter draws for how long the cost of what is taken may be told: never so short that Redis forgets it by its own clock.
func (w *walk) expireAfter() time.Duration {
	return pick(w, "expire after", []time.Duration{0, store.RefundWindow, 20 * time.Second, 10 * time.Minute, 24 * time.Hour})
}

// beside draws what is asked of dimensions beside a question, for as many tokens, most often nothing.
func (w *walk) beside(q *store.Question) (all []store.Question) {
	if w.number("beside", 0, 2) < 2 {
		return nil
	}
	seen := map[string]bool{}
	for range w.number("dimensions", 1, 2) {
		if one := w.ofDimension(); !seen[one.Tenant] {
			seen[one.Tenant] = true
			one.Cost, one.Limits[admission.LevelGlobal] = q.Cost, q.Limits[admission.LevelGlobal]
			all = append(all, one)
		}
	}
	return all
}

// reserve takes tokens under one of few ids, which have taken some already now and then.
func (w *walk) reserve() {
	q, id, version := w.used(w.question()), pick(w, "reservation", []string{"a", "b", "c:d"}), w.someVersion()
	answered := func(answer store.Answer, r store.Reservation, err error) redistest.Reply {
		ref := r.Ref != ""
		r.Ref = ""
		return redistest.Replied(answer, r, ref, err)
	}
	beside, expireAfter := w.beside(&q), w.expireAfter()
	send := func() redistest.Reply {
		return w.replied(fmt.Sprintf("reserve %s for %s of %+v beside %+v", id, expireAfter, q, beside), func(s store.Partition) redistest.Reply {
			return answered(s.Reserve(w.ctx, version, id, expireAfter, q, beside...))
		})
	}
	w.resend = func() { send() }
	if taken, _ := send().Values[1].(store.Reservation); taken.Taken.Under != "" && !taken.Again {
		w.takings = append(w.takings, taken.Taken)
	}
	w.replied("reserved "+id, func(s store.Partition) redistest.Reply {
		r, err := s.Reserved(w.ctx, q.Tenant, id)
		return answered(store.Answer{}, r, err)
	})
}

func (w *walk) refund() {
	if len(w.takings) == 0 {
		return
	}
	i, actual := w.number("taking", 0, len(w.takings)-1), admission.Tokens(pick(w, "actual", []int{0, 0, 1, 2, 4, 30, 500}))
	tell := func(s store.Partition) (store.Refund, error) {
		return s.Commit(w.ctx, fmt.Sprint("t", i), w.takings[i], actual)
	}
	if w.number("part", 0, 2) == 2 {
		tell = func(s store.Partition) (store.Refund, error) {
			return s.CommitPart(w.ctx, fmt.Sprint("t", i), w.takings[i], actual)
		}
	}
	w.resend = func() {
		w.replied(fmt.Sprintf("commit %d of %+v", actual, w.takings[i]), func(s store.Partition) redistest.Reply {
			return redistest.Replied(tell(s))
		})
	}
	w.resend()
}

// grant asks for tokens and leases of the same scopes as up to four limiters do, one after the other.
func (w *walk) grant() {
	questions := w.questions(3)
	for call := range w.number("calls", 1, 4) {
		if call > 0 {
			w.tick()
		}
		w.grantOnce(questions)
	}
}

func (w *walk) grantOnce(questions []store.Question) {
	g := store.Grant{
		Version: w.version, Member: pick(w, "member", []string{"one", "two", "three"}), Lease: walkLease,
		Beat: pick(w, "beat", []time.Duration{0, 0, walkBeat, -1}), Questions: slices.Clone(questions),
		Left: w.number("left", 0, 1) > 0,
	}
	if w.owned != nil { // Both know of the same edits; what was heard may be of long ago, or of nothing that ever was.
		g.Edited = pick(w, "heard", append([]int64{0, policy.NoRecord, 5, w.edited + 7}, w.heard...))
	}
	accounted := map[admission.Scope]bool{}
	for i := range g.Questions {
		q := &g.Questions[i]
		if w.number("fetches", 0, 1) == 0 {
			q.Cost = 0
		}
		level := levelOf(q)
		for level > admission.LevelGlobal && !q.OfDimension() && (q.Limits[level].Disabled || w.number("up", 0, 2) == 0) {
			level--
		}
		scope := admission.ScopeAt(level, q.Tenant, q.Queue, q.Class)
		if !accounted[scope] {
			accounted[scope] = true
			g.Accounts = append(g.Accounts, w.account(i, level))
		}
		if _, kept := q.Limits[admission.LevelGlobal].Others(); kept && !q.OfDimension() && !accounted[buckets.Others] && w.number("owes", 0, 2) == 0 {
			accounted[buckets.Others] = true
			g.Accounts = append(g.Accounts, store.Account{Question: i, Level: store.LevelOthers, Owed: admission.Tokens(w.number("owed", 0, walkMostAmount))})
		}
	}
	w.resend = func() {
		reply := w.replied(fmt.Sprintf("grant %+v", g), func(s store.Partition) redistest.Reply { return redistest.Replied(s.Grant(w.ctx, &g)) })
		if granted, _ := reply.Values[0].(store.Granted); granted.Edited != 0 {
			w.edited = granted.Edited
			w.heard = append(w.heard[max(0, len(w.heard)-3):], granted.Edited)
		}
	}
	w.resend()
}

func (w *walk) account(question int, level admission.Level) store.Account {
	amount := func(name string) admission.Tokens { return admission.Tokens(w.number(name, 0, walkMostAmount)) }
	a := store.Account{Question: question, Level: level}
	switch w.number("kind", 0, 4) {
	case 4:
		return store.Account{Question: question, Level: level, Stock: true, Want: amount("want"), Held: amount("held"), Cap: 2 * amount("cap")}
	case 0:
		a.Back = amount("back")
	case 1:
		a.Owed = amount("owed")
	}
	if w.number("wants", 0, 3) > 0 {
		a.Want, a.Held, a.Cap = amount("want"), amount("held"), 2*amount("cap")
	}
	return a
}

// levelOf is the innermost that a question names.
func levelOf(q *store.Question) admission.Level {
	switch {
	case q.Class != "":
		return admission.LevelPriority
	case q.Queue != "":
		return admission.LevelQueue
	case q.Tenant != "":
		return admission.LevelTenant
	}
	return admission.LevelGlobal
}
