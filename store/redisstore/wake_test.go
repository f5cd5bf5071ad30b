package redisstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestAUnitWakesOneOfEachLine (law L12): a gate has waiters in more classes of queues than a call has moves. A unit that comes free
// wakes one of each, in two calls, however many wait. They once began anew with each call, until all were awake.
func TestAUnitWakesOneOfEachLine(t *testing.T) {
	t.Parallel()
	const queues, tenants = 24, 20
	y := newYard(t)
	_, _, err := y.store.SetGate(t.Context(), store.Gate{Name: store.DownstreamGate("api"), Limit: 1, By: store.Intervention{Reason: t.Name()}})
	check(t, err)
	classes := admission.DefaultClasses()
	var pool store.Pool
	for q := range queues {
		pool.Queues = append(pool.Queues, store.QueueWeight{Queue: fmt.Sprint("queue-", q), Weight: 1})
		var jobs []store.Candidate
		for n := range tenants * len(classes) {
			class := n % len(classes)
			j := admission.NewJob(fmt.Sprint("tenant-", n/len(classes)), pool.Queues[q].Queue, "t", nil)
			j.ID, j.Downstream, j.Priority = fmt.Sprint(q, "-", n), "api", classes[class].Name
			jobs = append(jobs, store.Candidate{Job: &j, Class: class, Limits: &[admission.Levels]admission.Limit{}})
		}
		_, err := y.store.Admit(t.Context(), 0, jobs)
		check(t, err)
	}
	_, err = y.store.Register(t.Context(), "w", pool, 10, time.Hour)
	check(t, err)
	y.promoteAll()
	const lines = 3 * queues
	for range 3 {
		leases, err := y.store.Read(t.Context(), "w", pool.ID(), 10, -1, false)
		check(t, err)
		if len(leases) != 1 {
			t.Fatalf("%d jobs run, one may", len(leases))
		}
		done := store.Finish{Token: leases[0].Token, Key: admission.Key{Tenant: leases[0].Job.Tenant, ID: leases[0].Job.ID}, Outcome: store.Complete}
		_, _, err = y.store.Finish(t.Context(), pool.ID(), "w", []store.Finish{done})
		check(t, err)
		if moves := y.promoteAll(); moves > 2*lines { // each wakes, and parks again but for one
			t.Errorf("a unit cost %d moves beside those of finish, for %d lines", moves, lines)
		}
	}
}

// TestASpentRateWakesItsWaitersInTime: a job that found no token of its tenant's rate of dispatches goes when there is one again,
// with nothing but the timers to see to it.
func TestASpentRateWakesItsWaitersInTime(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{
		Version: 1, Text: []byte("{}"), Window: time.Minute,
		Caps: []store.Cap{{Gate: store.TenantRateGate("acme"), Rate: admission.Limit{Tokens: 1, Per: 10 * time.Second, Burst: 1}}},
	}))
	y.register(2)
	y.admitAt(1, mail("acme", "a"), mail("acme", "b"))
	if a, b := y.look("a").Place, y.look("b").Place; a != admission.PlaceReady || b != admission.PlaceWaiting {
		t.Fatalf("a is %s, b is %s", a, b)
	}
	y.store.conn.Now = strconv.FormatInt(time.Now().Add(11*time.Second).UnixMicro(), 10)
	y.promoteAll()
	if b := y.look("b").Place; b != admission.PlaceReady {
		t.Errorf("b is %s when there is a token again", b)
	}
}
