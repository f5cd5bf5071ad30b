package redisstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestAClassGoesThatJobsAreOf: an edit of the policy takes a class away in which no job waits, but of which jobs run, are put off or are kept aside. They come back in the last
// class that is left, and nothing that goes with them in one call is lost.
func TestAClassGoesThatJobsAreOf(t *testing.T) {
	t.Parallel()
	classes := admission.DefaultClasses()
	limits := &[admission.Levels]admission.Limit{}
	pool := store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}, {Queue: "hook", Weight: 1}}}
	for name, c := range map[string]struct {
		delay time.Duration
		aside bool
	}{"running": {}, "put off": {delay: time.Second}, "aside": {aside: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := &goneYard{yard: newYard(t), now: ahead()}
			y.pass(0)
			put := func(version int64, hooks []admission.Class) {
				t.Helper()
				settings := func(queue string, classes []admission.Class) store.QueueSettings {
					return store.QueueSettings{Queue: queue, Classes: classes, Horizon: time.Hour, MaxDead: 100, KeepDead: time.Hour, PoisonLimit: 3}
				}
				hook := settings("hook", hooks)
				if c.aside && version == 1 {
					hook.Overflow = store.Overflow{Policy: store.Spillover, MaxJobs: 1, MaxSpilled: 10, LowWater: 100}
				}
				check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{
					Expected: version - 1, Version: version, Text: []byte("{}"), Window: time.Minute, Queues: []store.QueueSettings{hook, settings("mail", classes)},
				}))
			}
			put(1, classes)
			register := func() {
				t.Helper()
				_, err := y.store.Register(t.Context(), "w1", pool, 64, time.Hour)
				check(t, err)
			}
			read := func() []store.Lease {
				t.Helper()
				leases, err := y.store.Read(t.Context(), "w1", pool.ID(), 64, -1, false)
				check(t, err)
				return leases
			}
			if c.delay == 0 && !c.aside {
				register()
			}
			var candidates []store.Candidate
			add := func(tenant, queue, id string, class int, delay time.Duration) {
				j := admission.NewJob(tenant, queue, "t", nil)
				j.ID, j.Delay = id, delay
				candidates = append(candidates, store.Candidate{Job: &j, Class: class, Limits: limits})
			}
			for i := range 31 {
				add("bolt", "mail", fmt.Sprint("job-", i), 1, c.delay)
			}
			if c.aside {
				add("acme", "hook", "first", 0, 0)
			}
			add("acme", "hook", "low", 2, c.delay)
			verdicts, err := y.store.Admit(t.Context(), 1, candidates)
			check(t, err)
			for i := range verdicts {
				check(t, verdicts[i].Err())
			}
			var held []store.Finish
			if c.delay == 0 && !c.aside {
				leases := read()
				if len(leases) != len(candidates) {
					t.Fatalf("%d jobs run of %d", len(leases), len(candidates))
				}
				for i := range leases {
					f := leases[i].Finish(store.Release)
					held = append(held, f)
				}
			}
			put(2, classes[:2])
			if held != nil {
				_, _, err := y.store.Finish(t.Context(), pool.ID(), "w1", held)
				check(t, err)
			}
			y.pass(5 * time.Second)
			y.promoteAll()
			register()
			y.promoteAll()
			leases := read()
			census, err := y.store.Census(t.Context())
			check(t, err)
			if !census.Conserved() || len(leases) != len(candidates) {
				t.Errorf("%d of %d jobs run, law L4 holds: %t; %+v", len(leases), len(candidates), census.Conserved(), census)
			}
			low := slices.IndexFunc(leases, func(l store.Lease) bool { return l.Job.ID == "low" })
			if low < 0 || leases[low].Class != 1 {
				t.Error("the job of the class that is gone is not of the last that is left")
			}
		})
	}
}
