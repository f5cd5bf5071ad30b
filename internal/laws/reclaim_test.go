package laws_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// rescuePool serves the same queue as mailPool, and is another pool.
var rescuePool = store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}, {Queue: "hook", Weight: 1}}}

const (
	heldJobs   = 200
	shortLease = 600 * time.Millisecond
)

// TestJobsOfADeadWorkerGoBackWhereTheyStood asserts L4 and L5 when a worker dies with two hundred jobs in its hands:
// after its lease they stand in their lanes again, same seq and same score, 64 moves a call at most, none lost and none
// twice; a worker of another pool then gets them in the order of their deadlines and arrivals; and what the dead worker
// says afterwards is not believed.
func TestJobsOfADeadWorkerGoBackWhereTheyStood(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Shared(t))
	s.scatter(heldJobs)
	before := s.lanes()
	s.register("dead", mailPool, heldJobs, longLease)
	s.fillUp(heldJobs)
	held := s.read("dead", mailPool, heldJobs)
	if len(held) != heldJobs || len(s.lanes()) != 0 {
		t.Fatalf("the worker holds %d jobs, want %d; lanes %v", len(held), heldJobs, s.lanes())
	}
	s.register("dead", mailPool, heldJobs, shortLease) // Its last word. Where the clock of Redis steps, this is the lease that is armed anew.

	calls := s.promoteUntil(func() bool { return s.census().Ready == 0 })
	if least := heldJobs/maxMoves + 1; calls < least || calls > least+2 {
		t.Errorf("%d calls moved %d jobs, want %d or two more", calls, heldJobs, least)
	}
	s.promoteUntil(func() bool { return s.census().Waiting == heldJobs }) // each a little later than the others
	if after := s.lanes(); !maps.Equal(before, after) {
		t.Fatalf("lanes before and after:\n%v\n%v", before, after)
	}
	if _, err := s.store.Partitions()[0].Heartbeat(s.Context(), "dead", longLease, ""); err == nil {
		t.Error("a heartbeat brought a lease back that was taken")
	}

	w := s.watch(rescuePool)
	s.register("alive", rescuePool, heldJobs, longLease)
	s.fillUp(heldJobs)
	s.assertLaneOrder(w.next(), before)
	rescued := s.read("alive", rescuePool, heldJobs)
	for _, l := range rescued {
		if !l.Suspect || l.Lost != 0 || l.Attempts != 0 {
			t.Fatalf("job %s: a suspect: %t; %d deliveries count and %d attempts, want 0 and 0", l.Job.ID, l.Suspect, l.Lost, l.Attempts)
		}
	}
	ends, _, err := s.store.Partitions()[0].Finish(s.Context(), mailPool.ID(), "worker", []store.Finish{complete(held[0]), finishAs(held[1], store.Retry, 0)})
	s.check(err)
	if !slices.Equal(ends, []store.Ended{store.EndedLost, store.EndedLost}) {
		t.Errorf("the dead worker ended jobs: %v", ends)
	}
	s.finish(rescuePool, rescued, complete)
	if c := s.census(); c.Left["completed"] != heldJobs || c.Live != 0 {
		t.Errorf("in the end: %+v", c)
	}
	again := store.Candidate{Job: &rescued[0].Job, Class: rescued[0].Class, Limits: unlimited}
	verdicts, err := s.store.Partitions()[0].Admit(s.Context(), s.version, []store.Candidate{again})
	s.check(err)
	if verdicts[0].Decision != admission.Duplicate {
		t.Errorf("a job that has run and was sent again: %+v", verdicts[0])
	}
}

// TestOrphansAreTakenBack asserts L5 for entries that a consumer has read which is not registered: the audit of
// consumers takes them back, 64 moves a call, and leaves a registered worker's alone.
func TestOrphansAreTakenBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Shared(t))
	const own, orphaned = 40, 150
	s.scatter(own + orphaned)
	s.register("alive", mailPool, own+orphaned, shortLease) // The first audit is due with the first lease.
	_, err := s.store.Partitions()[0].Heartbeat(s.Context(), "alive", longLease, "")
	s.check(err)
	s.fillUp(own + orphaned)
	held := s.read("alive", mailPool, own)
	_, err = s.store.Partitions()[0].Reclaim(s.Context(), "zombie-1") // Unknown, and stays so.
	s.check(err)
	zombies := append(s.read("zombie-1", mailPool, orphaned/2), s.read("zombie-2", mailPool, orphaned)...)
	if len(held) != own || len(zombies) != orphaned {
		t.Fatalf("%d and %d jobs are held, want %d and %d", len(held), len(zombies), own, orphaned)
	}
	w := s.watch(mailPool)
	w.next()
	var again []dispatch
	s.promoteUntil(func() bool {
		again = append(again, w.next()...)
		return len(again) == orphaned
	})
	for _, d := range again {
		if !slices.ContainsFunc(zombies, func(l store.Lease) bool { return l.Job.Tenant == d.tenant && l.Job.ID == d.id }) {
			t.Errorf("job %s was dispatched again, and no zombie held it", d.key())
		}
	}
	ends, _, err := s.store.Partitions()[0].Finish(s.Context(), mailPool.ID(), "worker", []store.Finish{complete(zombies[0])})
	s.check(err)
	if ends[0] != store.EndedLost {
		t.Errorf("a zombie's job ended as %s", ends[0])
	}
	s.finish(mailPool, append(held, s.read("alive", mailPool, orphaned)...), complete)
	if c := s.census(); c.Left["completed"] != own+orphaned || c.Live != 0 {
		t.Errorf("in the end: %+v", c)
	}
	s.register("gone", mailPool, 1, longLease)
	s.scatter(1)
	if n := len(s.read("gone", mailPool, 1)); n != 1 {
		t.Errorf("a worker that is about to go has %d jobs, want 1", n)
	}
	_, err = s.store.Partitions()[0].Reclaim(s.Context(), "gone")
	s.check(err)
	consumers, err := s.client.XInfoConsumers(s.Context(), redisstore.Keys(s.store).Ready(mailPool.ID()), "g").Result()
	s.check(err)
	if len(consumers) != 1 || consumers[0].Name != "alive" {
		t.Errorf("consumers: %+v", consumers)
	}
}

// scatter admits jobs of several tenants, classes and downstreams, with deadlines and without.
func (s *site) scatter(n int) {
	classes := admission.DefaultClasses()
	jobs := make([]store.Candidate, n)
	for i := range jobs {
		j := s.job(tenantName(s.between(0, 9)), "mail", s.between(0, len(classes)-1), classes)
		j.Job.Downstream = choose(s, "", "api")
		if s.chance(2) {
			j.Job.Deadline = redistest.Now().Add(time.Duration(s.between(15, 25)) * time.Minute) // beyond what the clock of Redis may step in these tests
		}
		jobs[i] = j
	}
	s.admit(jobs...)
}

// fillUp promotes until so many jobs are ready: a register makes 64 moves, as every call does.
func (s *site) fillUp(jobs int64) {
	s.Helper()
	s.promoteUntil(func() bool { return s.census().Ready == jobs })
}

// promoteUntil calls promote until done, asserts L4 and the bound of moves after each call, and returns how many of
// them moved something.
func (s *site) promoteUntil(done func() bool) (calls int) {
	s.Helper()
	deadline := time.Now().Add(time.Minute)
	for !done() {
		if time.Now().After(deadline) {
			s.Fatalf("nothing more happens: %+v", s.census())
		}
		next := s.promote()
		s.census()
		if next.Moved > maxMoves {
			s.Fatalf("law L12: promote made %d moves", next.Moved)
		}
		if next.Moved > 0 {
			calls++
		}
		if !next.More {
			s.pause(max(time.Millisecond, min(20*time.Millisecond, next.Next)))
		}
	}
	return calls
}

// lanes returns the members of all lanes as "LANE n" → "score member", n being their place.
func (s *site) lanes() map[string]string {
	s.Helper()
	all := map[string]string{}
	for _, name := range s.keys() {
		if !strings.HasPrefix(name, "lane:") {
			continue
		}
		members, err := s.client.ZRangeWithScores(s.Context(), s.key(name), 0, -1).Result()
		s.check(err)
		for i, m := range members {
			all[fmt.Sprintf("%s %d", name, i)] = fmt.Sprintf("%.0f %s", m.Score, m.Member)
		}
	}
	return all
}

// assertLaneOrder compares the order of dispatch of each lane with how its jobs stood.
func (s *site) assertLaneOrder(dispatches []dispatch, stood map[string]string) {
	s.Helper()
	next := map[string]int{}
	for _, d := range dispatches {
		kind := "n"
		if d.dated {
			kind = "d"
		}
		lane := fmt.Sprintf("lane:%d:mail:%s:%s%s", d.class, d.tenant, kind, d.downstream)
		place := fmt.Sprintf("%s %d", lane, next[lane])
		next[lane]++
		if !strings.HasSuffix(stood[place], d.id) {
			s.Fatalf("job %s was dispatched from %s, where %q stood", d.key(), place, stood[place])
		}
	}
	if len(dispatches) != len(stood) {
		s.Fatalf("%d jobs were dispatched, %d stood in lanes", len(dispatches), len(stood))
	}
}
