package redisstore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

func (w *walk) admit() {
	n := pick(w, "jobs", []int{1, 1, 2, 3, 8})
	if w.gates == "lone" {
		n = 1
	}
	jobs := make([]store.Candidate, n)
	for i := range jobs {
		if w.gates == "lone" || w.gates == "lanes" {
			jobs[i] = w.plainJob()
			continue
		}
		tenant := w.number("tenant", 0, len(walkTenants)-1)
		class := w.number("class", 0, 2)
		j := admission.NewJob(walkTenants[tenant], pick(w, "queue", walkQueues), "t", make([]byte, pick(w, "size", []int{0, 0, 0, 100, 300, store.LargePayload + 1})))
		j.ID = fmt.Sprintf("j%d", w.number("id", 0, 400))
		j.Priority = admission.DefaultClasses()[class].Name
		j.Downstream = pick(w, "downstream", walkDownstreams)
		j.Cost = admission.Tokens(w.number("cost", 1, 5))
		j.MaxAttempts = w.number("attempts", 0, 3)
		if w.number("dated", 0, 2) == 0 {
			j.Deadline = time.UnixMicro(w.now + int64(w.number("deadline", -100_000, pick(w, "near", []int{3_000_000, 60_000_000}))))
		}
		w.drawStart(&j)
		if w.number("unique", 0, 5) == 0 {
			j.Unique = admission.Unique{
				Key: pick(w, "unique key", []string{"k1", "k2"}), For: time.Hour,
				Release: pick(w, "release", []admission.Release{"", admission.ReleaseAtStart, admission.ReleaseAtEnd, admission.ReleaseAtExpiry}),
			}
		}
		jobs[i] = store.Candidate{Job: &j, Class: class, Limits: &w.limits[tenant%len(w.limits)]}
	}
	if len(w.model.dead) > 0 && w.gates != "lone" && w.gates != "lanes" && w.number("redrive", 0, 2) == 0 {
		jobs[0] = w.redrive(pick(w, "letter", slices.Sorted(maps.Keys(w.model.dead))))
	}
	words, dispatched := w.model.admit(w.now, jobs)
	verdicts, err := w.store.Admit(w.ctx, w.version, jobs)
	check(w.tb, err)
	w.resend = func() { // what was refused may enter now, in the place of what came with it
		_, dispatched := w.model.admit(w.now, jobs)
		again, err := w.store.Admit(w.ctx, w.version, jobs)
		check(w.tb, err)
		w.service.dispatched(dispatched)
		for i, v := range again {
			if verdicts[i].Decision == admission.Admitted && v.Decision != admission.Duplicate && v.Reason != admission.ReasonGone {
				w.rt.Fatalf("law L3: job %d was admitted, and sent again it is %v", i, v)
			}
		}
	}
	for i, v := range verdicts {
		got := verdictWord(v)
		if got != words[i] {
			w.rt.Fatalf("admit job %d of %d (%+v): script says %q, model %q", i, n, *jobs[i].Job, got, words[i])
		}
	}
	w.service.dispatched(dispatched)
}

// plainJob draws a job that owns nothing but its record, of few tenants, of one where its lanes matter.
func (w *walk) plainJob() store.Candidate {
	tenant, class := 0, 0
	if w.gates == "lone" {
		tenant, class = w.number("tenant", 0, 1), w.number("class", 0, 1)
	}
	j := admission.NewJob(walkTenants[tenant], "mail", "t", nil)
	j.ID, j.Priority, j.Downstream = fmt.Sprintf("j%d", w.number("id", 0, 400)), admission.DefaultClasses()[class].Name, pick(w, "downstream", walkDownstreams)
	if w.gates == "lanes" && w.number("dated", 0, 2) == 0 {
		j.Deadline = time.UnixMicro(w.now + int64(w.number("deadline", 0, 3_000_000)))
	}
	return store.Candidate{Job: &j, Class: class, Limits: &w.limits[tenant%len(w.limits)]}
}

// drawStart lets some jobs start later.
func (w *walk) drawStart(j *admission.Job) {
	switch w.number("start", 0, 11) {
	case 0:
		j.Delay = time.Duration(w.number("delay", 1, 3_000_000)) * time.Microsecond
	case 1:
		j.RunAt = time.UnixMicro(w.now + int64(w.number("run at", -100_000, 3_000_000)))
	}
}

func verdictWord(v admission.Verdict) string {
	if v.Dropped > 0 {
		n := v.Dropped
		v.Dropped = 0
		return fmt.Sprintf("dropped %d %s", n, verdictWord(v))
	}
	if v.Decision == admission.Admitted {
		return fmt.Sprintf("%s left %d/%d", admittedWord(v), v.TokensLeft, v.Burst)
	}
	switch {
	case v.Reason == admission.ReasonOverflow && v.Scope != "":
		return "overflow of all " + v.Detail
	case v.Reason == admission.ReasonOverflow, v.Reason == admission.ReasonTooLarge:
		return string(v.Reason) + " " + v.Detail
	case v.Reason == admission.ReasonPaused:
		return "paused " + v.Detail
	case v.Reason == admission.ReasonUnique:
		return "unique " + v.Detail
	case v.Reason == admission.ReasonBreaker:
		return "parked " + v.Detail
	case v.Reason == admission.ReasonGone:
		return "gone"
	case v.Decision == admission.Duplicate:
		return "duplicate"
	case v.Reason == admission.ReasonDeadline:
		return "deadline"
	}
	return verdictText(v)
}

// admittedWord says where an admitted job went.
func admittedWord(v admission.Verdict) string {
	switch {
	case v.Place == admission.PlaceSpilled:
		return fmt.Sprintf("spilled %d", v.Position)
	case v.Place == admission.PlaceLater:
		return fmt.Sprintf("later %d", v.EstimatedWait.Microseconds())
	case v.Position == 0:
		return "straight"
	}
	return fmt.Sprintf("admitted %d", v.Position)
}

func (w *walk) workerNames() []string {
	return slices.Sorted(maps.Keys(w.model.workers))
}

func (w *walk) read() {
	if len(w.model.workers) == 0 {
		return
	}
	w.readAs(pick(w, "reader", w.workerNames()), w.number("count", 1, 6))
}

func (w *walk) readAs(worker string, count int) {
	pool := w.model.workers[worker].pool
	if p, ok := strings.CutPrefix(worker, "orphan-"); ok {
		pool = p
	}
	leases, err := w.store.Read(w.ctx, worker, pool, count, -1, false)
	p := w.model.room.Pools[pool]
	if p == nil && redisconn.IsPoolGone(err) {
		return
	}
	check(w.tb, err)
	var want []string
	for _, e := range p.Ready {
		if e.Worker == "" && len(want) < count {
			e.Worker = worker
			want = append(want, e.Job.Key())
		}
	}
	var got []string
	for _, l := range leases {
		k := admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}
		got = append(got, k.String())
		w.held[worker] = append(w.held[worker], l.Finish(""))
	}
	if !slices.Equal(got, want) {
		w.rt.Fatalf("read: script gives %v, model %v", got, want)
	}
}

func (w *walk) finish() {
	holders := slices.Sorted(maps.Keys(w.held))
	if len(holders) == 0 {
		return
	}
	worker := pick(w, "finisher", holders)
	pool := strings.TrimPrefix(worker[strings.Index(worker, "-")+1:], "w")
	if wk, ok := w.model.workers[worker]; ok {
		pool = wk.pool
	} else if !strings.HasPrefix(worker, "orphan-") {
		pool = w.pools[int(worker[1]-'0')%len(w.pools)].ID()
	}
	n := w.number("finishes", 1, 6)
	held := w.held[worker]
	n = min(n, len(held))
	jobs := slices.Clone(held[:n])
	w.held[worker] = held[n:]
	if len(w.held[worker]) == 0 {
		delete(w.held, worker)
	}
	for i := range jobs {
		jobs[i].Outcome = pick(w, "outcome", []store.Outcome{store.Complete, store.Complete, store.Complete, store.Retry, store.Kill, store.Release, store.Expire})
		if w.number("worker of 0.1.0", 0, 3) == 0 {
			jobs[i].Queue, jobs[i].Uncounted = "", ""
		}
		if jobs[i].Outcome == store.Kill {
			jobs[i].Reason = "discarded"
		}
		if jobs[i].Outcome == store.Retry || jobs[i].Outcome == store.Release {
			jobs[i].Delay = time.Duration(w.number("delay", 0, 2000)) * time.Millisecond
		}
	}
	w.stale = append(w.stale, jobs...)
	send := func() []store.Ended {
		want, dispatched := w.model.finish(w.now, pool, w.withTokens(pool, jobs))
		ends, more, err := w.store.Finish(w.ctx, pool, worker, jobs)
		check(w.tb, err)
		for i, end := range ends {
			if string(end) != want[i] {
				w.rt.Fatalf("finish %+v by %s: script says %s, model %s", jobs[i], worker, end, want[i])
			}
		}
		w.ended(more, dispatched)
		return ends
	}
	send()
	w.resend = func() {
		for i, end := range send() {
			if end != store.EndedLost {
				w.rt.Fatalf("finish %+v sent again: %s", jobs[i], end)
			}
		}
	}
}

// ended notes what a call dispatched, and compares what it says of work left to the timers.
func (w *walk) ended(more bool, dispatched []fairqueue.Dispatch) {
	if more != w.model.more {
		w.rt.Fatalf("law W: script says more=%t, model %t", more, w.model.more)
	}
	w.service.dispatched(dispatched)
}

// withTokens leaves out, for the model, the jobs whose token is not that of the entry in the stream: the model knows
// jobs, not tokens.
func (w *walk) withTokens(pool string, jobs []store.Finish) []store.Finish {
	current := map[string]bool{}
	for _, e := range redisconn.Client(w.store.conn).XRange(w.ctx, w.store.conn.Partition.Ready(pool), "-", "+").Val() {
		current[e.ID] = true
	}
	out := slices.Clone(jobs)
	for i := range out {
		if !current[out[i].Token] {
			out[i].Key = admission.Key{Tenant: "gone", ID: "gone"}
		}
	}
	return out
}

func (w *walk) register() {
	i := w.number("worker", 0, 4)
	worker, pool := fmt.Sprintf("w%d", i), w.pools[i%len(w.pools)]
	slots, lease := pick(w, "slots", w.slots()), time.Duration(w.number("lease", 1, 60))*time.Second
	w.resend = func() {
		dispatched := w.model.register(w.now, worker, pool, slots, lease.Microseconds())
		more, err := w.store.Register(w.ctx, worker, pool, slots, lease)
		check(w.tb, err)
		w.ended(more, dispatched)
	}
	w.resend()
}

// slots are few where several lanes of a tenant are to wait at once.
func (w *walk) slots() []int {
	if w.gates == "lanes" {
		return []int{0, 0, 1}
	}
	return []int{0, 1, 4, 8}
}

func (w *walk) heartbeat() {
	worker := fmt.Sprintf("w%d", w.number("worker", 0, 4))
	want := w.model.heartbeat(w.now, worker, 5_000_000)
	beat, err := w.store.Heartbeat(w.ctx, worker, 5*time.Second)
	got := "extended"
	if beat.Promote {
		got = "promote"
	}
	got = fmt.Sprintf("%s %d", got, len(beat.Cancelled))
	if err != nil {
		got = "lost"
	}
	if got != want {
		w.rt.Fatalf("heartbeat of %s: script says %s (%v), model %s", worker, got, err, want)
	}
}

func (w *walk) reclaim() {
	worker := fmt.Sprintf("w%d", w.number("worker", 0, 4))
	w.resend = func() {
		want, dispatched := w.model.reclaim(w.now, worker)
		more, err := w.store.Reclaim(w.ctx, worker)
		check(w.tb, err)
		if more != (want == "more") {
			w.rt.Fatalf("reclaim of %s: script says more=%t, model %s", worker, more, want)
		}
		w.service.dispatched(dispatched)
	}
	w.resend()
}

// orphan lets a consumer that is not registered take entries: a read that was on its way when a lease ended.
func (w *walk) orphan() {
	if len(w.model.room.Pools) == 0 {
		return
	}
	pool := pick(w, "pool", slices.Sorted(maps.Keys(w.model.room.Pools)))
	w.readAs("orphan-"+pool, w.number("count", 1, 3))
}

func (w *walk) promote() {
	owner := pick(w, "owner", []string{"s1", "s1", "s2"})
	leap := pick(w, "leap", []store.Leap{store.LeapAsk, store.LeapSilence, store.LeapStep})
	word, next, dispatched := w.model.promote(w.now, leap, owner, 1_000_000)
	got, err := w.store.PromoteAfter(w.ctx, leap, owner, time.Second)
	check(w.tb, err)
	same := got.Held == (word == "held") && got.More == (word == "more") && got.Leapt == (word == "leapt")
	if !same || got.Next.Microseconds() != next || got.At.UnixMicro() != w.now {
		w.rt.Fatalf("promote: script says %+v, model %s next %d", got, word, next)
	}
	if got.Stepped {
		w.back = 0
	}
	w.service.dispatched(dispatched)
}

func (w *walk) gate() {
	tenant, queue := pick(w, "tenant", walkTenants[:2]), pick(w, "queue", walkQueues)
	names := []store.GateName{store.QueueGate(queue), store.TenantGate(tenant), store.TenantQueueGate(tenant, queue), store.DownstreamGate("api"), store.DownstreamGate("db")}
	if w.gates == "lanes" {
		names = []store.GateName{store.DownstreamGate("api"), store.DownstreamGate("api"), store.DownstreamGate("db"), store.TenantGate(walkTenants[0])}
	}
	g := store.Gate{
		Name:  pick(w, "gate", names),
		Limit: pick(w, "limit", []int{0, 0, 1, 2, store.Unlimited, store.Unlimited}), Then: pick(w, "then", []int{store.Unlimited, 1}),
		For: time.Duration(w.number("for", 0, 3)) * time.Second, By: store.Intervention{Reason: "test"},
	}
	w.resend = func() { // a second call may wake more waiters, who park again: harmless, and the model does the same
		dispatched := w.model.setGate(w.now, g)
		_, more, err := w.store.SetGate(w.ctx, g)
		check(w.tb, err)
		w.ended(more, dispatched)
	}
	w.resend()
}

func (w *walk) policy() {
	w.drawLimits()
	w.weights = map[string]admission.Weight{}
	u := store.PolicyUpdate{Expected: w.version, Version: w.version + 1, Text: []byte("{}"), Window: 30 * time.Second}
	for _, q := range walkQueues {
		settings := store.QueueSettings{
			Queue: q, Classes: admission.DefaultClasses(), Horizon: time.Hour, DropExpired: w.number("drop", 0, 1) == 1,
			MaxWait: time.Duration(max(0, w.number("max wait", -4, 4))) * time.Second, PoisonLimit: w.number("poison", 0, 3),
			KeepDead: time.Duration(w.number("keep", 0, 3)) * time.Second, MaxDead: w.number("letters", 0, 4),
		}
		w.model.queues[q] = settings
		u.Queues = append(u.Queues, settings)
		settings.Overflow = w.drawOverflow()
		w.model.queues[q] = settings
		u.Queues[len(u.Queues)-1] = settings
		if len(w.model.lettersOf(q)) > 0 {
			w.model.timers["r"+q] = w.now
		}
	}
	clear(w.model.overflows)
	if w.number("own bound", 0, 2) == 0 {
		own := store.TenantOverflow{Tenant: "ann", Queue: "mail", Overflow: w.drawOverflow()}
		u.Overflows = append(u.Overflows, own)
		w.model.overflows["ann:mail"] = own.Overflow
	}
	w.drawTotals(&u)
	for _, c := range admission.DefaultClasses() {
		for _, tenant := range []string{"", "ann", "bob"} {
			weight := admission.Weight(w.number("weight", 1, 1000))
			w.weights[string(c.Name)+":"+tenant] = weight
			u.Weights = append(u.Weights, store.TenantWeight{Class: c.Name, Tenant: tenant, Weight: weight})
		}
	}
	u.Caps, u.MaxParked = w.drawCaps(), map[string]int{}
	for _, downstream := range []string{"", "api"} {
		if w.number("parked cap", 0, 2) == 2 {
			u.MaxParked[downstream] = w.number("most parked", 1, 3)
		}
	}
	w.model.maxParked = u.MaxParked
	w.resend = func() { check(w.tb, w.store.PutPolicy(w.ctx, u)) }
	w.resend()
	w.version++
	w.service.weightsChanged()
	w.service.dispatched(w.model.putPolicy(w.now, u.Caps))
}
