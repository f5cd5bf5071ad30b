package redisstore_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

func (w *walk) admit() {
	n := pick(w, "jobs", []int{1, 1, 2, 3, 8})
	if w.theme != "" {
		n = 8
	}
	lone := w.gates == "lone" || w.theme == "alone"
	if lone {
		n = 1
	}
	jobs := make([]store.Candidate, n)
	for i := range jobs {
		if lone || w.gates == "lanes" {
			jobs[i] = w.plainJob()
			continue
		}
		tenant := w.number("tenant", 0, len(few(w, walkTenants))-1)
		queue := pick(w, "queue", few(w, walkQueues))
		class := w.classIn(queue, w.number("class", 0, 2))
		j := admission.NewJob(walkTenants[tenant], queue, pick(w, "type", walkTypes), make([]byte, pick(w, "size", []int{0, 0, 0, 100, 300, store.LargePayload + 1})))
		j.ID = fmt.Sprintf("j%d", w.number("id", 0, 400))
		j.Priority = admission.DefaultClasses()[class].Name
		j.Downstream = pick(w, "downstream", w.downstreams())
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
		jobs[i] = store.Candidate{Job: &j, Class: class}
		w.limit(&jobs[i])
		w.shed(&jobs[i])
	}
	if letters := w.letters(); len(letters) > 0 && w.gates != "lone" && w.gates != "lanes" && w.number("redrive", 0, 2) == 0 {
		jobs[0] = w.redrive(pick(w, "letter", letters))
	}
	version := w.someVersion()
	send := func() []admission.Verdict {
		reply := w.replied(fmt.Sprintf("admit %d jobs, the first %s:%s", n, jobs[0].Job.Tenant, jobs[0].Job.ID), func(s store.Partition) redistest.Reply {
			verdicts, err := s.Admit(w.ctx, version, jobs)
			for i := range verdicts {
				if verdicts[i].Reason == admission.ReasonUnique {
					verdicts[i].RetryAfter = 0 // It is told by the clock of Redis.
				}
				if verdicts[i].Bypassed {
					walkBypassed.Add(1)
				}
			}
			return redistest.Replied(verdicts, err)
		})
		verdicts, _ := reply.Values[0].([]admission.Verdict)
		return verdicts
	}
	loads, err := w.memory.Loads(w.ctx, walkQueues)
	check(w.tb, err)
	verdicts := send()
	w.dooming(loads, jobs, verdicts)
	w.assertShed(loads, jobs, verdicts)
	w.resend = func() { // what was refused may enter now, in the place of what came with it
		for i, v := range send() {
			if verdicts[i].Decision == admission.Admitted && v.Decision != admission.Duplicate && v.Reason != admission.ReasonGone {
				w.rt.Fatalf("law L3: job %d was admitted, and sent again it is %v", i, v)
			}
		}
	}
}

// dooming asserts that no job was refused for a wait that is too long while a worker had a slot for it.
func (w *walk) dooming(loads []store.QueueLoad, jobs []store.Candidate, verdicts []admission.Verdict) {
	for _, load := range loads {
		free := load.Slots - load.Held
		for i, v := range verdicts {
			switch {
			case jobs[i].Job.Queue != load.Queue:
			case v.Reason == admission.ReasonDoomed && free > 0:
				w.rt.Fatalf("job %d is doomed, and %d slots are free", i, free)
			case v.Decision == admission.Admitted:
				free--
			}
		}
	}
}

// letters returns the keys of dead letters, the oldest first.
func (w *walk) letters() []admission.Key {
	deaths, _ := w.memory.Deaths(w.ctx, time.Time{}, 0)
	keys := make([]admission.Key, len(deaths))
	for i, d := range deaths {
		keys[i], _ = d.Key()
	}
	return keys
}

// redrive returns the candidate of a dead letter.
func (w *walk) redrive(key admission.Key) store.Candidate {
	letters, err := w.memory.Letters(w.ctx, []admission.Key{key})
	check(w.tb, err)
	limits, record := w.limitsOf(key.Tenant)
	class := w.classIn(letters[0].Record.Job.Queue, letters[0].Record.Class)
	letters[0].Record.Job.Priority = admission.DefaultClasses()[class].Name
	w.bypassing(class, &limits)
	candidate, err := letters[0].Redrive(class, &limits)
	check(w.tb, err)
	candidate.Record, candidate.TypeLimit = record, w.ofType(key.Tenant, candidate.Job.Type)
	w.shed(&candidate)
	return candidate
}

// limit gives a candidate the limits of its tenant and of its type.
func (w *walk) limit(c *store.Candidate) {
	limits, record := w.limitsOf(c.Job.Tenant)
	w.bypassing(c.Class, &limits)
	c.Limits, c.Record, c.TypeLimit = &limits, record, w.ofType(c.Job.Tenant, c.Job.Type)
}

// bypassing has jobs of the most urgent class go beside the limits of their queue and class, where the policy says so.
func (w *walk) bypassing(class int, limits *[admission.Levels]admission.Limit) {
	if global := &limits[admission.LevelGlobal]; class == 0 && w.bypass[1] > 0 {
		*global = global.Keeping(0).Bypassing(w.bypass[0], w.bypass[1])
	}
}

// shed says from which level on a job is refused, above which wait, and whether its usage is kept.
func (w *walk) shed(c *store.Candidate) {
	c.Usage, c.Doomed = w.usage, w.dooms[c.Job.Queue]
	if from := w.sheds[shedding{c.Job.Queue, slices.Index(walkTenants, c.Job.Tenant), c.Class}]; from[0] > 0 {
		c.ShedFrom, c.ShedOverFrom, c.Tier = from[0], from[1], "tier of "+c.Job.Tenant
	}
}

// downstreams are what jobs call.
func (w *walk) downstreams() []string {
	switch w.theme {
	case "adaptive":
		return []string{"api"}
	case "accounts":
		return walkAccounts
	}
	return walkDownstreams
}

// plainJob draws a job that owns nothing but its record, of few tenants, of one where its lanes matter.
func (w *walk) plainJob() store.Candidate {
	tenant, class := 0, 0
	if w.gates == "lone" || w.theme == "alone" {
		tenant, class = w.number("tenant", 0, 1), w.number("class", 0, 1)
	}
	j := admission.NewJob(walkTenants[tenant], "mail", "t", nil)
	j.ID, j.Priority, j.Downstream = fmt.Sprintf("j%d", w.number("id", 0, 400)), admission.DefaultClasses()[class].Name, pick(w, "downstream", walkDownstreams)
	if (w.gates == "lanes" || w.theme == "alone") && w.number("dated", 0, 2) == 0 {
		j.Deadline = time.UnixMicro(w.now + int64(w.number("deadline", 0, 3_000_000)))
	}
	c := store.Candidate{Job: &j, Class: class}
	w.limit(&c)
	w.shed(&c)
	return c
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

// worker draws one of five, and returns the pool that it registers with.
func (w *walk) worker() (name string, pool store.Pool) {
	i := pick(w, "worker", few(w, []int{0, 1, 2, 3, 4}))
	return fmt.Sprintf("w%d", i), w.pools[i%len(w.pools)]
}

func (w *walk) read() {
	name, pool := w.worker()
	count := w.number("count", 1, 6)
	if w.theme != "" {
		count = 8
	}
	w.readAs(name, pool.ID(), count)
}

func (w *walk) readAs(worker, pool string, count int) {
	var read [2][]store.Lease
	again := w.number("again", 0, 11) == 11 // what it holds already
	w.same(fmt.Sprintf("read %d by %s", count, worker), func(s store.Partition) any {
		leases, err := s.Read(w.ctx, worker, pool, count, -1, again)
		if err != nil {
			return "gone" // What Redis says besides is its own.
		}
		read[w.side(s)] = leases
		shown := slices.Clone(leases)
		for i := range shown {
			shown[i].Plain, shown[i].Uncounted = false, "" // They are hints of a store to itself.
		}
		return shown
	})
	for i := range read[0] {
		if again {
			break
		}
		w.held[worker] = append(w.held[worker], held{read[0][i], read[1][i]})
	}
}

// orphan lets a consumer that is not registered take entries: a read that was on its way when a lease ended.
func (w *walk) orphan() {
	_, pool := w.worker()
	w.readAs("orphan-"+pool.ID(), pool.ID(), w.number("count", 1, 3))
}

// poolOf is the pool that a worker reads from.
func (w *walk) poolOf(worker string) string {
	if pool, orphan := strings.CutPrefix(worker, "orphan-"); orphan {
		return pool
	}
	return w.pools[int(worker[1]-'0')%len(w.pools)].ID()
}

func (w *walk) finish() {
	holders := slices.Sorted(maps.Keys(w.held))
	if len(holders) == 0 {
		return
	}
	worker := pick(w, "finisher", holders)
	n := w.number("finishes", 1, 6)
	if w.theme != "" {
		n = 6
	}
	n = min(n, len(w.held[worker]))
	leases := slices.Clone(w.held[worker][:n])
	if w.number("late", 0, 7) > 0 { // else they are ended again, later
		w.held[worker] = w.held[worker][n:]
	}
	if len(w.held[worker]) == 0 {
		delete(w.held, worker)
	}
	var jobs [2][]store.Finish
	spending, version := w.number("spending", 0, 2) == 0, w.someVersion()
	for i := range leases {
		how, unknowing := w.drawEnd(), w.number("worker of 0.1.0", 0, 3) == 0
		if spending && w.number("spent", 0, 3) > 0 {
			how.Spent = w.drawSpent(&leases[i][0], version)
		}
		for side := range jobs {
			f := leases[i][side].Finish(how.Outcome)
			f.Reason, f.Text, f.Delay, f.Ran, f.Result, f.KeepResult = how.Reason, how.Text, how.Delay, how.Ran, how.Result, how.KeepResult
			f.Spent = how.Spent
			if unknowing && f.Spent == nil {
				f.Queue, f.Uncounted = "", ""
			}
			jobs[side] = append(jobs[side], f)
		}
	}
	send := func() []store.Ended {
		reply := w.replied(fmt.Sprintf("finish %+v by %s", jobs[0], worker), func(s store.Partition) redistest.Reply {
			return redistest.Replied(s.Finish(w.ctx, w.poolOf(worker), worker, jobs[w.side(s)]))
		})
		ends, _ := reply.Values[0].([]store.Ended)
		return ends
	}
	send()
	w.resend = func() {
		for i, end := range send() {
			if end != store.EndedLost {
				w.rt.Fatalf("finish %+v sent again: %s", jobs[0][i], end)
			}
		}
	}
}

// drawSpent draws what a job has cost: less than it reserved, as much or more.
func (w *walk) drawSpent(lease *store.Lease, version int64) *store.Spent {
	limits, record := w.limitsOf(lease.Job.Tenant)
	w.bypassing(lease.Class, &limits)
	return &store.Spent{
		Cost: admission.Tokens(pick(w, "actual", []int{0, 1, 2, 3, 5, 8, 40, 500})), Class: admission.DefaultClasses()[lease.Class].Name,
		Limits: &limits, Version: version, Usage: w.usage, Record: record, TypeLimit: store.TypeLimitOf(lease.Job.Type, w.ofType(lease.Job.Tenant, lease.Job.Type)),
	}
}

// drawEnd draws how a job ends.
func (w *walk) drawEnd() store.Finish {
	outcomes := []store.Outcome{store.Complete, store.Complete, store.Complete, store.Retry, store.Kill, store.Release, store.Expire}
	switch w.theme {
	case "letters":
		outcomes = []store.Outcome{store.Kill, store.Expire}
	case "spills":
		outcomes = outcomes[:1]
	}
	how := store.Finish{Outcome: pick(w, "outcome", outcomes)}
	switch how.Outcome {
	case store.Complete:
		if w.number("result", 0, 4) == 4 {
			how.Result, how.KeepResult = []byte("ok"), time.Hour
		}
	case store.Kill:
		how.Reason = "discarded"
	case store.Retry, store.Release:
		how.Delay, how.Ran, how.Text = time.Duration(w.number("delay", 0, 2000))*time.Millisecond, time.Second, pick(w, "text", []string{"", "busy", store.UnknownType + " welcome"})
	case store.Expire:
	}
	return how
}

func (w *walk) register() {
	worker, pool := w.worker()
	slots, lease := pick(w, "slots", w.slots()), time.Duration(w.number("lease", 1, 60))*time.Second
	w.resend = func() {
		w.replied("register "+worker, func(s store.Partition) redistest.Reply {
			return redistest.Replied(s.Register(w.ctx, worker, pool, slots, lease))
		})
	}
	w.resend()
}

// slots are few where several lanes of a tenant are to wait at once.
func (w *walk) slots() []int {
	switch {
	case w.gates == "lanes":
		return []int{0, 0, 1}
	case w.theme != "":
		return []int{8, 4}
	}
	return []int{0, 1, 4, 8}
}

func (w *walk) heartbeat() {
	worker, pool := w.worker()
	load := pick(w, "load", []string{"", "{}", `{"c":1}|x`})
	w.replied("heartbeat of "+worker, func(s store.Partition) redistest.Reply {
		beat, err := s.Heartbeat(w.ctx, worker, 5*time.Second, load)
		for i := range beat.Cancelled {
			beat.Cancelled[i].Token = ""
		}
		return redistest.Replied(beat, err)
	})
	w.replied("registration of "+worker, func(s store.Partition) redistest.Reply {
		return redistest.Replied(s.Registration(w.ctx, pool.ID(), worker))
	})
	w.replied("demand", func(s store.Partition) redistest.Reply { return redistest.Replied(s.Demand(w.ctx, pool)) })
}

func (w *walk) reclaim() {
	worker, _ := w.worker()
	w.resend = func() {
		w.replied("reclaim of "+worker, func(s store.Partition) redistest.Reply { return redistest.Replied(s.Reclaim(w.ctx, worker)) })
	}
	w.resend()
}

// start marks handlers of suspects as begun.
func (w *walk) start() {
	for _, worker := range slices.Sorted(maps.Keys(w.held)) {
		for _, leases := range w.held[worker] {
			if !leases[0].Suspect || w.number("begin", 0, 2) == 2 {
				continue
			}
			key := admission.Key{Tenant: leases[0].Job.Tenant, ID: leases[0].Job.ID}
			w.replied(fmt.Sprintf("start of %s by %s", key, worker), func(s store.Partition) redistest.Reply {
				return redistest.Replied(s.Started(w.ctx, w.poolOf(worker), worker, leases[w.side(s)].Token, key))
			})
		}
	}
}

func (w *walk) promote() {
	if w.theme != "" && w.theme != "breakers" {
		w.promoteAs("s1", store.LeapSilence)
		return
	}
	w.promoteAs(pick(w, "owner", []string{"s1", "s1", "s2"}), pick(w, "leap", []store.Leap{store.LeapAsk, store.LeapSilence, store.LeapStep}))
}

// lose lets a worker begin what it can, then every lease end, and the jobs come back that were lost.
func (w *walk) lose() {
	w.read()
	w.start()
	for range 2 {
		w.now += time.Minute.Microseconds()
		w.store.SetTime(time.UnixMicro(w.now))
		w.promoteAs("s1", store.LeapSilence)
	}
	w.register()
}

func (w *walk) promoteAs(owner string, leap store.Leap) {
	reply := w.replied("promote", func(s store.Partition) redistest.Reply {
		return redistest.Replied(s.PromoteAfter(w.ctx, leap, owner, time.Second))
	})
	if done, _ := reply.Values[0].(store.Promotion); done.Stepped {
		w.back = 0
	}
}

// few narrows what a sequence draws from where it has a theme, to one where that is what is kept aside.
func few[T any](w *walk, all []T) []T {
	switch w.theme {
	case "":
		return all
	case "spills":
		return all[:1]
	}
	return all[:2]
}
