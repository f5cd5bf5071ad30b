package lua

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/redistest"
)

// Each run of the conformance suite makes this many random operations in all; 100 sequences of rapid.
const conformanceSteps = 110

// TestScriptsEqualTheModel sends random operations through the Go model and the scripts and compares verdicts,
// levels, orders, tags, timers and counters after each, and asserts laws L4, L7 and W.
func TestScriptsEqualTheModel(t *testing.T) {
	t.Parallel()
	conform(t, redistest.Shared(t), "")
}

// TestScriptsStayInTheirSlot runs the same on a one-node cluster with #!lua, which refuses any undeclared slot.
func TestScriptsStayInTheirSlot(t *testing.T) {
	t.Parallel()
	conform(t, redistest.SharedCluster(t), "#!lua flags=allow-oom\n")
}

func conform(t *testing.T, server *redistest.Server, preamble string) {
	client := server.Client(t)
	run := 0
	prefix := redistest.Prefix(t)
	rapid.Check(t, func(rt *rapid.T) {
		run++
		s, err := newStore(client, Config{Prefix: prefix + strconv.Itoa(run)}, preamble)
		check(t, err)
		w := newWalk(t, rt, s)
		defer w.clean()
		for range conformanceSteps {
			w.step()
		}
		w.assertConserved()
	})
}

// walk is one random sequence.
type walk struct {
	tb     testing.TB
	rt     *rapid.T
	ctx    context.Context
	store  *Store
	model  *model
	now    int64
	scopes map[headgate.Scope]bool
	// held are the leases that workers have read, by worker.
	held    map[string][]Finish
	stale   []Finish
	limits  [3][headgate.Levels]headgate.Limit
	version int64
	weights map[string]headgate.Weight
	service *serviceLog
	log     []string
	// resend is the step's script call once more, word for word: what a client does whose reply was lost.
	resend func()
}

var (
	walkTenants     = []string{"ann", "bob", "cy", "dot", "eve"}
	walkQueues      = []string{"mail", "hook"}
	walkDownstreams = []string{"", "", "api", "db"}
	walkPools       = []Pool{
		{Queues: []QueueWeight{{"mail", 2}, {"hook", 1}}},
		{Queues: []QueueWeight{{"hook", 1}, {"mail", 1}}, Strict: true},
		{Queues: []QueueWeight{{"mail", 1}}},
	}
)

func newWalk(tb testing.TB, rt *rapid.T, s *Store) *walk {
	w := &walk{
		tb: tb, rt: rt, ctx: context.Background(), store: s, model: newModel(), scopes: map[headgate.Scope]bool{headgate.Global: true},
		now: time.Now().Add(24 * time.Hour).UnixMicro(), held: map[string][]Finish{}, weights: map[string]headgate.Weight{},
	}
	w.service = newServiceLog(w.model.room)
	for _, tenant := range walkTenants {
		for level := headgate.LevelTenant; level < headgate.Levels; level++ {
			for _, queue := range walkQueues {
				for _, c := range headgate.DefaultClasses() {
					w.scopes[headgate.ScopeAt(level, tenant, queue, c.Name)] = true
				}
			}
		}
	}
	w.drawLimits()
	w.model.room.Weight = func(class headgate.Priority, tenant string) headgate.Weight {
		if weight, ok := w.weights[string(class)+":"+tenant]; ok {
			return weight
		}
		if weight, ok := w.weights[string(class)+":"]; ok {
			return weight
		}
		return 1
	}
	return w
}

func (w *walk) clean() {
	const erase = `for _, k in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do redis.call('DEL', k) end`
	err := w.store.client.Eval(w.ctx, w.store.preamble+erase, []string{w.store.partition.State()}, w.store.partition.Base()).Err()
	if !errors.Is(err, redis.Nil) {
		check(w.tb, err)
	}
}

func pick[T any](w *walk, name string, from []T) T { return rapid.SampledFrom(from).Draw(w.rt, name) }

func (w *walk) number(name string, low, high int) int {
	return rapid.IntRange(low, high).Draw(w.rt, name)
}

func (w *walk) step() {
	w.tick()
	before := w.service.begin()
	op := pick(w, "op", []string{
		"admit", "admit", "admit", "admit", "read", "read", "finish", "finish", "finish", "register", "heartbeat",
		"reclaim", "promote", "promote", "gate", "gate", "policy", "orphan",
	})
	w.log = append(w.log, op)
	w.resend = nil
	switch op {
	case "admit":
		w.admit()
	case "read":
		w.read()
	case "finish":
		w.finish()
	case "register":
		w.register()
	case "heartbeat":
		w.heartbeat()
	case "reclaim":
		w.reclaim()
	case "promote":
		w.promote()
	case "gate":
		w.gate()
	case "policy":
		w.policy()
	case "orphan":
		w.orphan()
	}
	w.compare(op)
	if w.resend != nil && w.number("resend", 0, 3) == 0 {
		w.resend()
		w.compare(op + " and its resend")
	}
	w.assertWakeUp(op)
	if err := w.service.end(before); err != nil {
		w.rt.Fatalf("after %s: %v", op, err)
	}
}

// tick moves the clock: mostly a little, sometimes a lot, sometimes back.
func (w *walk) tick() {
	switch w.number("tick", 0, 19) {
	case 0:
		w.now += int64(w.number("leap", 1, 40)) * 1_000_000
	case 1:
		w.now -= int64(w.number("back", 1, 12)) * 1_000_000
	default:
		w.now += int64(w.number("us", 0, 400_000))
	}
	w.store.now = strconv.FormatInt(w.now, 10)
}

func (w *walk) drawLimits() {
	for i := range w.limits {
		for level := range w.limits[i] {
			l := headgate.Limit{Disabled: w.number("limited", 0, 2) > 0}
			if !l.Disabled {
				l = headgate.Limit{
					Tokens: headgate.Tokens(w.number("tokens", 1, 40)), Burst: headgate.Tokens(w.number("burst", 1, 60)),
					Per: pick(w, "per", []time.Duration{time.Second, 700 * time.Millisecond, time.Minute, 24 * time.Hour}),
				}
			}
			w.limits[i][level] = l
		}
	}
	for i := range w.limits { // one global limit a call
		w.limits[i][headgate.LevelGlobal] = w.limits[0][headgate.LevelGlobal]
	}
}

func (w *walk) admit() {
	n := w.number("jobs", 1, 8)
	jobs := make([]Candidate, n)
	for i := range jobs {
		tenant := w.number("tenant", 0, len(walkTenants)-1)
		class := w.number("class", 0, 2)
		j := headgate.NewJob(walkTenants[tenant], pick(w, "queue", walkQueues), "t", nil)
		j.ID = fmt.Sprintf("j%d", w.number("id", 0, 400))
		j.Priority = headgate.DefaultClasses()[class].Name
		j.Downstream = pick(w, "downstream", walkDownstreams)
		j.Cost = headgate.Tokens(w.number("cost", 1, 5))
		j.MaxAttempts = w.number("attempts", 0, 3)
		if w.number("dated", 0, 2) == 0 {
			j.Deadline = time.UnixMicro(w.now + int64(w.number("deadline", -100_000, 3_000_000)))
		}
		jobs[i] = Candidate{Job: &j, Class: class, Limits: &w.limits[tenant%len(w.limits)]}
	}
	words, dispatched := w.model.admit(w.now, jobs)
	verdicts, err := w.store.Admit(w.ctx, w.version, jobs)
	check(w.tb, err)
	w.resend = func() {
		again, err := w.store.Admit(w.ctx, w.version, jobs)
		check(w.tb, err)
		for i, v := range again {
			if verdicts[i].Decision == headgate.Admitted && v.Decision != headgate.Duplicate {
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

func verdictWord(v headgate.Verdict) string {
	switch {
	case v.Decision == headgate.Duplicate:
		return "duplicate"
	case v.Decision == headgate.Admitted && v.Position == 0:
		return "straight"
	case v.Decision == headgate.Admitted:
		return fmt.Sprintf("admitted %d", v.Position)
	case v.Reason == headgate.ReasonDeadline:
		return "deadline"
	}
	return verdictText(v)
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
	check(w.tb, err)
	var want []string
	for _, e := range w.model.room.Pools[pool].Ready {
		if e.Worker == "" && len(want) < count {
			e.Worker = worker
			want = append(want, e.Job.Key())
		}
	}
	var got []string
	for _, l := range leases {
		k := headgate.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}
		got = append(got, k.String())
		w.held[worker] = append(w.held[worker], Finish{Token: l.Token, Key: k})
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
		pool = walkPools[int(worker[1]-'0')%len(walkPools)].ID()
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
		jobs[i].Outcome = pick(w, "outcome", []Outcome{Complete, Complete, Complete, Retry, Kill, Release, Expire})
		if jobs[i].Outcome == Kill {
			jobs[i].Reason = "discarded"
		}
		if jobs[i].Outcome == Retry || jobs[i].Outcome == Release {
			jobs[i].Delay = time.Duration(w.number("delay", 0, 2000)) * time.Millisecond
		}
	}
	w.stale = append(w.stale, jobs...)
	want, dispatched := w.model.finish(w.now, pool, w.withTokens(pool, jobs))
	ends, _, err := w.store.Finish(w.ctx, pool, jobs)
	check(w.tb, err)
	w.resend = func() {
		again, _, err := w.store.Finish(w.ctx, pool, jobs)
		check(w.tb, err)
		for i, end := range again {
			if end != EndedLost {
				w.rt.Fatalf("finish %+v sent again: %s", jobs[i], end)
			}
		}
	}
	for i, end := range ends {
		if string(end) != want[i] {
			w.rt.Fatalf("finish %+v by %s: script says %s, model %s", jobs[i], worker, end, want[i])
		}
	}
	w.service.dispatched(dispatched)
}

// withTokens leaves out, for the model, the jobs whose token is not that of the entry in the stream: the model knows
// jobs, not tokens.
func (w *walk) withTokens(pool string, jobs []Finish) []Finish {
	current := map[string]bool{}
	for _, e := range w.store.client.XRange(w.ctx, w.store.partition.Ready(pool), "-", "+").Val() {
		current[e.ID] = true
	}
	out := slices.Clone(jobs)
	for i := range out {
		if !current[out[i].Token] {
			out[i].Key = headgate.Key{Tenant: "gone", ID: "gone"}
		}
	}
	return out
}

func (w *walk) register() {
	i := w.number("worker", 0, 4)
	worker, pool := fmt.Sprintf("w%d", i), walkPools[i%len(walkPools)]
	slots, lease := w.number("slots", 1, 6), time.Duration(w.number("lease", 1, 15))*time.Second
	dispatched := w.model.register(w.now, worker, pool, slots, lease.Microseconds())
	send := func() {
		_, err := w.store.Register(w.ctx, worker, pool, slots, lease)
		check(w.tb, err)
	}
	send()
	w.resend = send
	w.service.dispatched(dispatched)
}

func (w *walk) heartbeat() {
	worker := fmt.Sprintf("w%d", w.number("worker", 0, 4))
	want := w.model.heartbeat(w.now, worker, 5_000_000)
	promote, err := w.store.Heartbeat(w.ctx, worker, 5*time.Second)
	got := "extended"
	if promote {
		got = "promote"
	}
	if err != nil {
		got = "lost"
	}
	if got != want {
		w.rt.Fatalf("heartbeat of %s: script says %s (%v), model %s", worker, got, err, want)
	}
}

func (w *walk) reclaim() {
	worker := fmt.Sprintf("w%d", w.number("worker", 0, 4))
	want, dispatched := w.model.reclaim(w.now, worker)
	more, err := w.store.Reclaim(w.ctx, worker)
	check(w.tb, err)
	w.resend = func() {
		_, err := w.store.Reclaim(w.ctx, worker)
		check(w.tb, err)
	}
	if more != (want == "more") {
		w.rt.Fatalf("reclaim of %s: script says more=%t, model %s", worker, more, want)
	}
	w.service.dispatched(dispatched)
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
	word, next, dispatched := w.model.promote(w.now, owner, 1_000_000)
	got, err := w.store.Promote(w.ctx, owner, time.Second)
	check(w.tb, err)
	if got.Held != (word == "held") || got.More != (word == "more") || got.Next.Microseconds() != next {
		w.rt.Fatalf("promote: script says %+v, model %s next %d", got, word, next)
	}
	w.service.dispatched(dispatched)
}

func (w *walk) gate() {
	tenant, queue := pick(w, "tenant", walkTenants), pick(w, "queue", walkQueues)
	g := Gate{
		Name:  pick(w, "gate", []GateName{QueueGate(queue), TenantGate(tenant), TenantQueueGate(tenant, queue), DownstreamGate("api"), DownstreamGate("db")}),
		Limit: pick(w, "limit", []int{0, 0, 1, 2, Unlimited, Unlimited}), Then: pick(w, "then", []int{Unlimited, 1}),
		For: time.Duration(w.number("for", 0, 3)) * time.Second, Reason: "test",
	}
	dispatched := w.model.setGate(w.now, g)
	send := func() {
		_, _, err := w.store.SetGate(w.ctx, g)
		check(w.tb, err)
	}
	send()
	w.resend = func() { // a second call may wake more waiters, who park again: harmless, and the model does the same
		w.service.dispatched(w.model.setGate(w.now, g))
		send()
	}
	w.service.dispatched(dispatched)
}

func (w *walk) policy() {
	w.drawLimits()
	w.weights = map[string]headgate.Weight{}
	u := PolicyUpdate{Expected: w.version, Version: w.version + 1, Text: []byte("{}"), Window: 30 * time.Second}
	for _, q := range walkQueues {
		drop := w.number("drop", 0, 1) == 1
		w.model.dropExpired[q] = drop
		u.Queues = append(u.Queues, QueueSettings{Queue: q, Classes: headgate.DefaultClasses(), Horizon: time.Hour, DropExpired: drop})
	}
	for _, c := range headgate.DefaultClasses() {
		for _, tenant := range []string{"", "ann", "bob"} {
			weight := headgate.Weight(w.number("weight", 1, 1000))
			w.weights[string(c.Name)+":"+tenant] = weight
			u.Weights = append(u.Weights, TenantWeight{c.Name, tenant, weight})
		}
	}
	w.resend = func() { check(w.tb, w.store.PutPolicy(w.ctx, u)) }
	w.resend()
	w.version++
	w.model.begin(w.now)
	w.model.changed = buckets.Instant(w.model.filled)
	w.service.weightsChanged()
}

func (w *walk) compare(op string) {
	got, want := dumpRedis(w.ctx, w.tb, w.store), w.model.dump(w.scopes)
	if got == want {
		return
	}
	gotLines, wantLines := strings.Split(got, "\n"), strings.Split(want, "\n")
	var diff []string
	for _, line := range gotLines {
		if !slices.Contains(wantLines, line) {
			diff = append(diff, "redis "+line)
		}
	}
	for _, line := range wantLines {
		if !slices.Contains(gotLines, line) {
			diff = append(diff, "model "+line)
		}
	}
	slices.SortFunc(diff, func(a, b string) int { return strings.Compare(a[6:], b[6:]) })
	w.rt.Fatalf("after %s at %d (%s):\n%s", op, w.now, strings.Join(w.log, " "), strings.Join(diff, "\n"))
}

// assertWakeUp asserts law W: no pool has room while a job could run in it, unless a timer continues the work.
func (w *walk) assertWakeUp(op string) {
	room := w.model.room
	for name := range room.Timers {
		if name[0] == 'f' || name[0] == 'g' && room.Timers[name] <= w.now+fairqueue.ContinueAfter {
			return
		}
	}
	for _, p := range room.Pools {
		if len(p.Ready) >= p.Slots {
			continue
		}
		if key, ok := room.CouldRun(p.Queues, w.now); ok {
			w.rt.Fatalf("law W after %s: pool %s has room for %s\n%s", op, p.ID, key, room.Dump())
		}
	}
}

// assertConserved asserts law L4 by what Redis holds.
func (w *walk) assertConserved() {
	census, err := w.store.Census(w.ctx)
	check(w.tb, err)
	if !census.Conserved() {
		w.rt.Fatalf("law L4: %+v", census)
	}
}
