package redisstore

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// billed is one job of a ledger.
type billed struct {
	tenant, queue  string
	entered        time.Time
	reserved, cost admission.Tokens
}

// ledger is what a biller would note of jobs, beside the store.
type ledger map[string]*billed

// usage adds up the ledger by day, tenant and queue.
func (l ledger) usage() map[string]store.Used {
	all := map[string]store.Used{}
	for _, b := range l {
		at := b.entered.UTC().Format(time.DateOnly) + " " + b.tenant + " " + b.queue
		one := all[at]
		one.Add(&store.Used{Jobs: 1, Reserved: b.reserved, Refunded: max(0, b.reserved-b.cost), Added: max(0, b.cost-b.reserved)})
		all[at] = one
	}
	return all
}

// kept reads the usage of some days.
func kept(tb testing.TB, s store.Deployment, first time.Time, days int) map[string]store.Used {
	tb.Helper()
	all := map[string]store.Used{}
	for i := range days {
		rows, err := s.Usage(tb.Context(), store.UsageQuery{Day: first.Add(time.Duration(i) * 24 * time.Hour)})
		check(tb, err)
		for _, u := range rows {
			all[u.Day.Format(time.DateOnly)+" "+u.Tenant+" "+u.Queue] = u.Used
		}
	}
	return all
}

// usageWalk admits, runs, loses, cancels and retries jobs, and notes in a ledger what each cost.
type usageWalk struct {
	rt      *rapid.T
	tb      testing.TB
	s       *many
	now     time.Time
	ledger  ledger
	limits  *[admission.Levels]admission.Limit
	pool    store.Pool
	held    []store.Lease
	worker  string
	next    int
	version int64
}

func (w *usageWalk) number(what string, least, most int) int {
	return rapid.IntRange(least, most).Draw(w.rt, what)
}

func (w *usageWalk) of(tenant string) *Partition { return w.s.of(tenant) }

// pass moves the clock, now and then over midnight.
func (w *usageWalk) pass(by time.Duration) {
	w.now = w.now.Add(by)
	for _, part := range w.s.parts {
		part.SetTime(w.now)
	}
}

func (w *usageWalk) admit() {
	tenant := fmt.Sprint("tenant", w.number("tenant", 0, 3))
	var batch []store.Candidate
	for range w.number("jobs", 1, 3) { // Those before are sent again beside each, as after a lost answer.
		w.next++
		j := admission.NewJob(tenant, fmt.Sprint("queue", w.number("queue", 0, 1)), "t", nil)
		j.ID, j.Cost = fmt.Sprint("j", w.next), admission.Tokens(w.number("cost", 1, 9))
		batch = append(batch, store.Candidate{Job: &j, Class: 1, Limits: w.limits, Usage: 100})
		w.ledger[j.ID] = &billed{tenant, j.Queue, w.now, j.Cost, j.Cost}
		_, err := w.of(tenant).Admit(w.tb.Context(), w.version, batch)
		check(w.tb, err)
	}
}

// work begins a worker that nobody hears of again, or has the one that is there take jobs.
func (w *usageWalk) work() {
	if w.worker == "" || w.number("lost", 0, 4) == 0 {
		w.lose()
		w.next++
		w.worker = fmt.Sprint("w", w.next)
		for _, part := range w.s.parts {
			_, err := part.Register(w.tb.Context(), w.worker, w.pool, 8, time.Hour)
			check(w.tb, err)
		}
	}
	for _, part := range w.s.parts {
		leases, err := part.Read(w.tb.Context(), w.worker, w.pool.ID(), w.number("read", 1, 4), -1, false)
		check(w.tb, err)
		w.held = append(w.held, leases...)
	}
}

// lose ends a worker's leases; what it ends afterwards counts for nothing.
func (w *usageWalk) lose() {
	if w.worker == "" {
		return
	}
	for _, part := range w.s.parts {
		for more := true; more; {
			var err error
			more, err = part.Reclaim(w.tb.Context(), w.worker)
			check(w.tb, err)
		}
	}
	if w.number("late", 0, 1) == 0 {
		w.held = nil
	}
}

func (w *usageWalk) finish() {
	if len(w.held) == 0 {
		return
	}
	i := w.number("lease", 0, len(w.held)-1)
	lease := w.held[i]
	w.held = slices.Delete(w.held, i, i+1)
	f := lease.Finish(rapid.SampledFrom([]store.Outcome{store.Complete, store.Complete, store.Complete, store.Retry, store.Kill, store.Release}).Draw(w.rt, "outcome"))
	f.Reason, f.Queue = "discarded", lease.Job.Queue
	cost := admission.Tokens(w.number("actual", 0, 20))
	if told := w.number("told", 0, 3) > 0; told {
		f.Spent = &store.Spent{Cost: cost, Class: admission.Medium, Limits: w.limits, Version: w.version, Usage: 100}
	}
	for range w.number("sent", 1, 2) {
		ends, _, err := w.of(lease.Job.Tenant).Finish(w.tb.Context(), w.pool.ID(), w.worker, []store.Finish{f})
		check(w.tb, err)
		if ends[0].Ends() && f.Spent != nil {
			w.ledger[lease.Job.ID].cost = cost
		}
	}
}

func (w *usageWalk) cancel() {
	ids := slices.Sorted(maps.Keys(w.ledger))
	if len(ids) == 0 {
		return
	}
	id := rapid.SampledFrom(ids).Draw(w.rt, "cancelled")
	_, _, _ = w.of(w.ledger[id].tenant).Cancel(w.tb.Context(), admission.Key{Tenant: w.ledger[id].tenant, ID: id}, store.Intervention{}) // It may have ended.
}

// TestUsageIsThatOfALedger, job by job, over two partitions and midnight: whatever is sent twice, lost, cancelled, retried or told too late.
func TestUsageIsThatOfALedger(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	rapid.Check(t, func(rt *rapid.T) {
		s, err := openMany(t.Context(), client, Config{Prefix: redistest.Prefix(t), Partitions: 2})
		check(t, err)
		first := time.Now().UTC().Truncate(24 * time.Hour).Add(48 * time.Hour)
		w := &usageWalk{
			rt: rt, tb: t, s: s, now: first.Add(20 * time.Hour), ledger: ledger{}, limits: &[admission.Levels]admission.Limit{}, version: 1,
			pool: store.Pool{Queues: []store.QueueWeight{{Queue: "queue0", Weight: 1}, {Queue: "queue1", Weight: 1}}},
		}
		w.pass(0)
		w.limits[admission.LevelTenant] = admission.Limit{Tokens: 1000, Per: time.Second, Burst: 1000}
		check(t, s.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Edit: "e", Text: []byte("{}"), Window: time.Minute, Usage: true}))
		for range w.number("steps", 1, 60) {
			rapid.SampledFrom([]func(){
				w.admit, w.work, w.finish, w.finish, w.finish, w.cancel, func() { w.pass(time.Duration(w.number("minutes", 0, 90)) * time.Minute) },
			}).Draw(rt, "step")()
		}
		if want, got := w.ledger.usage(), kept(t, s, first, 8); !maps.Equal(want, got) {
			rt.Fatalf("the ledger has\n%v\nand usage is\n%v", want, got)
		}
	})
}

// TestUsageIsBounded: beyond so many tenants of a day, and 64 queues of one, it is added up; what is told of a job counts where the job does.
func TestUsageIsBounded(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	limits := &[admission.Levels]admission.Limit{}
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Edit: "e", Text: []byte("{}"), Window: time.Minute, Usage: true}))
	taken := map[string]store.Taken{}
	take := func(tenant, queue string) {
		t.Helper()
		_, receipt, err := y.store.Take(t.Context(), 1, store.Question{Tenant: tenant, Queue: queue, Cost: 5, Limits: *limits, Usage: 2})
		check(t, err)
		taken[tenant+queue] = receipt
	}
	for i := range store.UsageQueues + 3 {
		take("wide", fmt.Sprint("q", i))
	}
	for _, tenant := range []string{"ann", "bob", "cyd"} {
		take(tenant, "q1")
	}
	take("wide", "")
	for name, actual := range map[string]admission.Tokens{"wideq0": 2, "wideq65": 1, "annq1": 9, "cydq1": 4} {
		done, err := y.store.Commit(t.Context(), "c"+name, taken[name], actual)
		check(t, err)
		if again, err := y.store.Commit(t.Context(), "c"+name, taken[name], actual); done != store.Refunded || again != store.RefundedBefore || err != nil {
			t.Errorf("%s: %s, then %s, %v", name, done, again, err)
		}
	}
	now, err := y.store.Time(t.Context())
	check(t, err)
	all, err := y.store.Usage(t.Context(), store.UsageQuery{Day: now})
	check(t, err)
	got := map[string]store.Used{}
	for _, u := range all {
		got[u.Tenant+" "+u.Queue] = u.Used
	}
	want := map[string]store.Used{
		"wide q0": {Calls: 1, Reserved: 5, Refunded: 3}, "wide q1": {Calls: 1, Reserved: 5}, "wide *": {Calls: 4, Reserved: 20, Refunded: 4},
		"ann q1": {Calls: 1, Reserved: 5, Added: 4}, "* *": {Calls: 2, Reserved: 10, Refunded: 1},
	}
	for name, used := range want {
		if got[name] != used {
			t.Errorf("%s: %+v, want %+v", name, got[name], used)
		}
	}
	if len(got) != store.UsageQueues+3 {
		t.Errorf("%d lines, want %d: %v", len(got), store.UsageQueues+3, got)
	}
	key := y.store.Keys().Usage(store.DayOf(now))
	if left := y.client.TTL(t.Context(), key).Val(); left <= store.UsageDays*24*time.Hour || left > (store.UsageDays+1)*24*time.Hour {
		t.Errorf("the day is kept for %s", left)
	}
}

// TestUsageBeginsWithThePolicy: what entered before is not counted, nor what is told of it; a day that is over is not begun again.
func TestUsageBeginsWithThePolicy(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	limits := &[admission.Levels]admission.Limit{}
	at := time.Now().UTC().Truncate(24 * time.Hour).Add(36 * time.Hour)
	y.store.SetTime(at)
	version := int64(0)
	put := func(usage bool) {
		t.Helper()
		version++
		check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{
			Expected: version - 1, Version: version, Edit: fmt.Sprint("e", version), Text: []byte("{}"), Window: time.Minute, Usage: usage,
		}))
	}
	enter := func(id string, usage int) {
		t.Helper()
		j := mail("acme", id)
		j.Cost = 10
		verdicts, err := y.store.Admit(t.Context(), version, []store.Candidate{{Job: &j, Class: 1, Limits: limits, Usage: usage}})
		check(t, err)
		check(t, verdicts[0].Err())
	}
	y.register(9)
	enter("before", 0)
	y.store.SetTime(at.Add(time.Microsecond))
	put(true)
	enter("counted", 9)
	put(true) // Another edit changes nothing of it.
	enter("old", 9)
	leases, err := y.store.Read(t.Context(), "w1", yardPool.ID(), 9, -1, false)
	check(t, err)
	end := func(id string) {
		t.Helper()
		for i := range leases {
			if leases[i].Job.ID == id {
				f := leases[i].Finish(store.Complete)
				f.Spent = &store.Spent{Cost: 4, Class: admission.Medium, Limits: limits, Version: version, Usage: 9}
				ends, _, err := y.store.Finish(t.Context(), yardPool.ID(), "w1", []store.Finish{f})
				check(t, err)
				if ends[0] != store.EndedDone {
					t.Fatalf("%s: %s", id, ends[0])
				}
			}
		}
	}
	want := func(what string, want store.Used) {
		t.Helper()
		all, err := y.store.Usage(t.Context(), store.UsageQuery{Day: at, Tenant: "acme"})
		check(t, err)
		if len(all) != 1 || all[0].Used != want {
			t.Errorf("%s: %+v, want %+v", what, all, want)
		}
	}
	end("before")
	want("told of one from before", store.Used{Jobs: 2, Reserved: 20})
	end("counted")
	want("told of one that counts", store.Used{Jobs: 2, Reserved: 20, Refunded: 6})
	y.store.SetTime(at.Add((store.UsageDays + 1) * 24 * time.Hour))
	end("old")
	want("told after 36 days", store.Used{Jobs: 2, Reserved: 20, Refunded: 6})
}
