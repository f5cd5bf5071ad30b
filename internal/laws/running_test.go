package laws_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// running is a site whose policy bounds what workers hold.
type running struct {
	*site
	caps map[store.GateName]int
	// recorded is nil where tenants have no records.
	*recorded
	// leases are what each worker has read.
	leases map[string][]store.Lease
	// held is how many entries each cap covered when it was last looked at.
	held map[store.GateName]int
}

const (
	runningWorkers = 8
	runningSteps   = 300
	runningSlots   = 5
)

var (
	runningTenants     = []string{"ann", "bob", "cy"}
	runningDownstreams = []string{"", "api", "db"}
)

// TestCapsAreNeverPassed asserts the caps of design.md over eight workers, of which some die with jobs in their hands and
// lose their leases: no dispatch goes beyond a cap of the queue, a tenant, a tenant in the queue or a downstream, of its own
// or of all that have none; a lower cap takes nothing away and lets nothing more through; and jobs of which no cap is
// reached do not wait while there is room.
func TestCapsAreNeverPassed(t *testing.T) {
	t.Parallel()
	r := &running{site: newSite(t, redistest.Shared(t)), leases: map[string][]store.Lease{}, held: map[store.GateName]int{}}
	r.change()
	reached := map[store.GateName]bool{}
	for range runningSteps {
		r.step()
		for r.promote().More {
		}
		r.look(reached)
	}
	for _, kind := range []string{"q:", "t:", "u:", "d:"} {
		found := false
		for name := range reached {
			found = found || string(name[:2]) == kind
		}
		if !found {
			t.Errorf("no cap of kind %s was ever reached: %v", kind, reached)
		}
	}
	r.change()
	r.putPolicy(store.PolicyUpdate{})
	r.drainAll()
}

// drainAll ends all jobs.
func (r *running) drainAll() {
	r.Helper()
	left := func() int64 {
		c := r.census()
		if redistest.Steps() { // Retries wait by the clock of Redis, which may be ten minutes behind.
			return c.Live - c.Later
		}
		return c.Live
	}
	for rounds := 0; left() > 0; rounds++ {
		if rounds == 2000 {
			r.Fatalf("jobs are left over that nothing holds: %+v", r.census())
		}
		for i := range runningWorkers {
			r.register(runningWorker(i), mailPool, runningSlots, longLease)
			r.take(runningWorker(i))
			r.finish(mailPool, r.leases[runningWorker(i)], complete)
			delete(r.leases, runningWorker(i))
		}
		for r.promote().More {
		}
	}
}

// TestACapInThePlaceOfAnotherCountsWhatRuns asserts that units come back of jobs that were dispatched beside the cap of another
// tenant, where a cap of their own has come since and that one has gone, so that there are as many as before. The first cap after a
// time without any counts them, too. Caps come with a policy and by themselves, and an older release changes them by a policy
// without their version.
func TestACapInThePlaceOfAnotherCountsWhatRuns(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Shared(t))
	s.putPolicy(store.PolicyUpdate{})
	s.register("w", mailPool, 4, longLease)
	classes := admission.DefaultClasses()
	run := func(want int) []store.Lease {
		t.Helper()
		leases := s.read("w", mailPool, 4)
		if len(leases) != want {
			t.Fatalf("%d jobs run, want %d", len(leases), want)
		}
		return leases
	}
	byPolicy := func(_, tenants []string) {
		u := store.PolicyUpdate{}
		for _, tenant := range tenants {
			u.Caps = append(u.Caps, store.Cap{Gate: store.TenantGate(tenant), Limit: 1})
		}
		s.putPolicy(u)
	}
	alone := func(was, tenants []string) {
		for _, tenant := range was {
			s.setGate(store.TenantGate(tenant), store.Unlimited)
		}
		for _, tenant := range tenants {
			s.setGate(store.TenantGate(tenant), 1)
		}
	}
	for _, way := range []struct {
		name   string
		change func(was, tenants []string)
		older  bool
	}{{"by policy", byPolicy, false}, {"by an older release", byPolicy, true}, {"alone", alone, false}} {
		for _, before := range [][]string{{"ann"}, {"ann", "cy"}, {}} {
			for _, after := range [][]string{{"bob"}, {"bob", "cy"}} {
				way.change(nil, before)
				counts := s.client.HGet(t.Context(), s.key("state"), "ng").Val()
				s.admit(s.job("bob", "mail", 0, classes))
				first := run(1)
				way.change(before, nil)
				way.change(nil, after)
				if way.older && len(before) == len(after) { // It knows no version of the caps, and so leaves it as it is.
					s.check(s.client.HSet(t.Context(), s.key("state"), "ng", counts).Err())
				}
				s.admit(s.job("bob", "mail", 0, classes))
				run(0)
				s.finish(mailPool, first, complete)
				second := run(1)
				way.change(after, nil)
				s.finish(mailPool, second, complete)
				if s.census().Live != 0 {
					t.Fatalf("%s: %q, then %q: %+v", way.name, before, after, s.census())
				}
			}
		}
	}
}

func runningWorker(i int) string { return fmt.Sprintf("w%d", i) }

func (r *running) step() {
	r.Helper()
	classes := admission.DefaultClasses()
	worker := runningWorker(r.between(0, runningWorkers-1))
	switch r.between(0, 11) {
	case 0, 1, 2, 3:
		var jobs []store.Candidate
		for range r.between(1, 12) {
			j := r.job(choose(r.site, runningTenants...), "mail", r.between(0, 2), classes)
			j.Job.Downstream, j.Job.MaxAttempts = choose(r.site, runningDownstreams...), admission.MaxAttemptsLimit // None may end as a dead letter.
			jobs = append(jobs, j)
		}
		r.admit(jobs...)
	case 4, 5:
		r.register(worker, mailPool, r.between(1, runningSlots), longLease)
	case 6, 7:
		r.take(worker)
	case 8, 9:
		n := min(len(r.leases[worker]), r.between(1, runningSlots))
		r.finish(mailPool, r.leases[worker][:n], func(l store.Lease) store.Finish {
			return finishAs(l, choose(r.site, store.Complete, store.Complete, store.Release, store.Retry), 0)
		})
		r.leases[worker] = r.leases[worker][n:]
	case 10: // It dies, and its lease ends.
		r.register(worker, mailPool, 1, 200*time.Millisecond)
		r.pause(250 * time.Millisecond)
		delete(r.leases, worker)
	case 11:
		r.change()
	}
}

func (r *running) take(worker string) {
	r.Helper()
	r.register(worker, mailPool, runningSlots, longLease)
	r.leases[worker] = append(r.leases[worker], r.read(worker, mailPool, runningSlots)...)
}

// change stores another set of caps.
func (r *running) change() {
	r.Helper()
	r.caps = map[store.GateName]int{}
	for _, name := range []store.GateName{
		store.QueueGate("mail"), store.TenantGate("ann"), store.TenantQueueGate("bob", "mail"), store.DownstreamGate("api"),
		store.TenantGate(store.Every), store.TenantQueueGate(store.Every, "mail"), store.DownstreamGate(store.Every),
	} {
		if r.chance(3) {
			r.caps[name] = r.between(1, 6)
		}
	}
	var u store.PolicyUpdate
	for name, limit := range r.caps {
		u.Caps = append(u.Caps, store.Cap{Gate: name, Limit: limit})
	}
	if r.recorded != nil {
		r.draw(r.site, &u)
	}
	r.putPolicy(u)
}

// capsOf returns the caps that count for an entry, each with its limit.
func (r *running) capsOf(tenant, downstream string) map[store.GateName]int {
	found := map[store.GateName]int{}
	add := func(own, every store.GateName) {
		if limit, ok := r.caps[own]; ok {
			found[own] = limit
		} else if limit, ok := r.caps[every]; ok {
			found[own] = limit
		}
	}
	add(store.QueueGate("mail"), "")
	if limit, capped := r.tenantCap(tenant); capped {
		found[store.TenantGate(tenant)] = limit
	}
	add(store.TenantQueueGate(tenant, "mail"), store.TenantQueueGate(store.Every, "mail"))
	if downstream != "" {
		add(store.DownstreamGate(downstream), store.DownstreamGate(store.Every))
	}
	return found
}

// look compares the entries of the ready stream with the caps, and what waits with the room.
func (r *running) look(reached map[store.GateName]bool) {
	r.Helper()
	held, limits, entries := map[store.GateName]int{}, map[store.GateName]int{}, r.watch(mailPool).next()
	for _, e := range entries {
		maps.Copy(limits, r.capsOf(e.tenant, e.downstream))
		for _, name := range []store.GateName{
			store.QueueGate("mail"), store.TenantGate(e.tenant), store.TenantQueueGate(e.tenant, "mail"), store.DownstreamGate(e.downstream),
		} {
			held[name]++
		}
	}
	for name, limit := range limits {
		if n := held[name]; n > limit && n > r.held[name] {
			r.Fatalf("%s has %d entries, %d may be and %d were", name, n, limit, r.held[name])
		}
		reached[name] = reached[name] || held[name] >= limit
	}
	r.held = held
	census := r.census()
	slots := 0
	workers, err := r.store.Workers(r.Context())
	r.check(err)
	for _, w := range workers {
		slots += w.Slots
	}
	if len(entries) >= slots || census.Waiting == 0 {
		return
	}
	r.assertCapped(held)
}

// assertCapped asserts that every job which waits, though there is room, is of a tenant or a downstream at its cap.
func (r *running) assertCapped(held map[store.GateName]int) {
	r.Helper()
	for cursor := ""; ; {
		page, err := r.store.List(r.Context(), store.ListQuery{Place: admission.PlaceWaiting, Queue: "mail", Limit: 100, Cursor: cursor})
		r.check(err)
		for _, listed := range page.Jobs {
			job, full := listed.Record.Job, false
			for name, limit := range r.capsOf(job.Tenant, job.Downstream) {
				full = full || held[name] >= limit
			}
			if !full {
				r.Fatalf("job %s:%s for %q waits though there is room and no cap is reached: %v", job.Tenant, job.ID, job.Downstream, held)
			}
		}
		if cursor = page.Cursor; cursor == "" {
			return
		}
	}
}

// TestRatesOfDispatchAreExact asserts that two workers together never get more jobs of a tenant or a downstream than its
// rate of dispatches allows, in any window, that they get all that it does allow while jobs wait, and that others pass.
func TestRatesOfDispatchAreExact(t *testing.T) {
	t.Parallel()
	const rate, burst, slots, span = 100, 50, 200, 2 * time.Second
	s := newSite(t, redistest.Shared(t))
	limit := admission.PerSecond(rate).WithBurst(burst)
	s.putPolicy(store.PolicyUpdate{Caps: []store.Cap{
		{Gate: store.DownstreamRateGate("api"), Rate: limit}, {Gate: store.TenantRateGate("ann"), Rate: limit},
	}})
	classes := admission.DefaultClasses()
	var jobs []store.Candidate
	for i := range 2 * rate * int(span/time.Second) {
		called, own := s.job(fmt.Sprintf("t%d", i%7), "mail", i%3, classes), s.job("ann", "mail", i%3, classes)
		called.Job.Downstream = "api"
		jobs = append(jobs, called, own)
	}
	for range 50 {
		jobs = append(jobs, s.job("free", "mail", 2, classes))
	}
	s.admit(jobs...)
	began := s.now()
	for _, worker := range []string{"a", "b"} {
		s.register(worker, mailPool, slots, longLease)
	}
	type dispatched struct{ after, seen time.Time } // It was dispatched in between.
	times := map[string][]dispatched{}
	least, last := 0.0, began // What was to be had: a bucket that nobody asks for half a second is full, and loses tokens.
	after := began
	for s.now().Sub(began) < span {
		for s.promote().More {
		}
		round := s.now()
		least += min(burst, rate*round.Sub(last).Seconds())
		last = round
		for _, worker := range []string{"a", "b"} {
			before := s.now()
			leases := s.read(worker, mailPool, slots) // All there are, for either.
			seen := s.now()
			for _, l := range leases {
				name := l.Job.Downstream + "/"
				if l.Job.Tenant == "ann" {
					name += "ann"
				}
				times[name] = append(times[name], dispatched{after, seen})
			}
			after = before
			s.finish(mailPool, leases, complete)
		}
	}
	ended := s.now().Sub(began)
	for _, name := range []string{"api/", "/ann"} {
		got := times[name]
		for i := range got {
			for k := i + burst + 1; k < len(got); k += 7 {
				if window := got[k].seen.Sub(got[i].after).Seconds(); float64(k-i+1) > burst+rate*window+1 {
					t.Fatalf("%s: %d dispatches in %.3f s", name, k-i+1, window)
				}
			}
		}
		if total, allowed := float64(len(got)), burst+rate*ended.Seconds(); total > allowed+1 || total < 0.9*least {
			t.Errorf("%s: %v dispatches in %s, %.0f were allowed and %.0f to be had", name, total, ended, allowed, least)
		}
	}
	if len(times["/"]) != 50 {
		t.Errorf("%d of 50 jobs without a rate ran", len(times["/"]))
	}
}

// now is Redis TIME.
func (s *site) now() time.Time {
	s.Helper()
	now, err := s.client.Time(s.Context()).Result()
	s.check(err)
	return now
}

// TestADownstreamThatHangsGetsHalf asserts that one downstream whose jobs do not end holds half of the slots at most while
// others have jobs, through which everything else runs, and all of them while there is nothing else.
func TestADownstreamThatHangsGetsHalf(t *testing.T) {
	t.Parallel()
	const slots, others = 10, 200
	s := newSite(t, redistest.Shared(t))
	classes := admission.DefaultClasses()
	var jobs []store.Candidate
	for i := range 4 * others {
		j := s.job(tenantName(i%40), "mail", i%3, classes)
		j.Job.Downstream = "hung"
		if i%4 == 0 {
			j.Job.Downstream = choose(s, "", "api", "db")
		}
		jobs = append(jobs, j)
	}
	s.admit(jobs...)
	s.register("w", mailPool, slots, longLease)
	ran, hung := 0, 0
	for ran < others {
		leases := s.read("w", mailPool, slots)
		if len(leases) == 0 && !s.promote().More {
			t.Fatalf("%d of %d others ran, %d slots hang", ran, others, hung)
		}
		var well []store.Lease
		for _, l := range leases {
			if l.Job.Downstream == "hung" {
				hung++
			} else {
				well = append(well, l)
			}
		}
		if hung > slots/2 && ran+len(well) < others {
			t.Fatalf("%d of %d slots hang while others wait", hung, slots)
		}
		s.finish(mailPool, well, complete)
		ran += len(well)
	}
	for s.promote().More {
	}
	if hung += len(s.read("w", mailPool, slots)); hung != slots {
		t.Errorf("%d of %d slots are used when nothing else waits", hung, slots)
	}
}
