package redisstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// arriveYard is a yard with a clock of its own, a pool w2 of eight slots for the queue sms beside that of mail, and a policy under which the tenant ann
// has one job in mail, its latest, and the downstream api one a second, of which two are spent.
func arriveYard(t *testing.T) (*yard, *redistest.Clock) {
	t.Helper()
	clock := redistest.NewClock(t, 0)
	y := newYardOn(t, redistest.Start(t, redistest.Options{Clock: clock}).Client(t), "")
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{
		Version: 1, Text: []byte("{}"), Window: time.Minute,
		Caps:      []store.Cap{{Gate: "s:api", Rate: admission.PerSecond(1).WithBurst(2)}},
		Overflows: []store.TenantOverflow{{Tenant: "ann", Queue: "mail", Overflow: store.Overflow{Policy: store.DropOldest, MaxJobs: 1}}},
	}))
	y.register(1)
	_, err := y.store.Register(t.Context(), "w2", smsPool, 8, time.Minute)
	check(t, err)
	y.admitAt(1, arriving("eve", "sms", "api", "spends-one"), arriving("eve", "sms", "api", "spends-the-other"))
	if n := y.started(); n != 2 {
		t.Fatalf("%d jobs run, want 2", n)
	}
	return y, clock
}

var smsPool = store.Pool{Queues: []store.QueueWeight{{Queue: "sms", Weight: 1}}}

func arriving(tenant, queue, downstream, id string) admission.Job {
	j := mail(tenant, id)
	j.Queue, j.Downstream = queue, downstream
	return j
}

// started returns how many jobs w2 is given.
func (y *yard) started() int {
	y.tb.Helper()
	leases, err := y.store.Read(y.tb.Context(), "w2", smsPool.ID(), 8, -1, false)
	check(y.tb, err)
	return len(leases)
}

// TestWhoWakesFindsWhoCameTogether: what a call does wakes a job that waits for a rate, of a tenant of which another job comes in the same call: all go to workers.
func TestWhoWakesFindsWhoCameTogether(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, together []admission.Job
		began            int
	}{
		"an older job is dropped for a newer one": {
			[]admission.Job{arriving("zed", "mail", "", "has-the-slot"), arriving("ann", "mail", "api", "older")},
			[]admission.Job{arriving("ann", "mail", "api", "newer"), arriving("bob", "sms", "", "goes-at-once")},
			2,
		},
		"another's job goes to a worker": {
			nil, []admission.Job{arriving("bob", "sms", "", "goes-at-once"), arriving("kim", "sms", "api", "wakes-who-waits")}, 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y, clock := arriveYard(t)
			for _, j := range append([]admission.Job{arriving("bob", "sms", "api", "waits-for-one")}, c.before...) {
				y.admitAt(1, j)
			}
			clock.Step(t, 2*time.Second)
			y.admitAt(1, c.together...)
			if n := y.started(); n != c.began {
				t.Errorf("%d jobs began, want %d", n, c.began)
			}
		})
	}
}

// TestAJobThatComesStandsBehindItsOwn: jobs that come together do so beside those of their tenants that stand behind gates, and in the lanes of these behind them.
func TestAJobThatComesStandsBehindItsOwn(t *testing.T) {
	t.Parallel()
	y, clock := arriveYard(t)
	y.admitAt(1, arriving("ann", "sms", "api", "first"))
	var jobs []store.Candidate
	for _, j := range []admission.Job{arriving("ann", "sms", "api", "second"), arriving("bob", "sms", "", "goes-at-once"), arriving("ann", "sms", "", "goes-too")} {
		jobs = append(jobs, store.Candidate{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}})
	}
	verdicts, err := y.store.Admit(t.Context(), 1, jobs)
	check(t, err)
	for i, want := range []int{2, 0, 0} {
		if verdicts[i].Position != want {
			t.Errorf("job %d is at position %d, want %d: %+v", i, verdicts[i].Position, want, verdicts[i])
		}
	}
	if n := y.started(); n != 2 {
		t.Errorf("%d jobs began, want 2", n)
	}
	for _, id := range []string{"first", "second"} {
		clock.Step(t, time.Second)
		y.promoteAll()
		leases, err := y.store.Read(t.Context(), "w2", smsPool.ID(), 8, -1, false)
		check(t, err)
		if len(leases) != 1 || leases[0].Job.ID != id {
			t.Fatalf("%d jobs began, want %s alone", len(leases), id)
		}
	}
}

// TestALoneJobStandsBehindItsOwnWhoseGateIsGone: one call wakes 64 of those that wait behind a gate which is taken away. A job that comes when these run, before
// the timer that wakes the others, stands behind that of its tenant.
func TestALoneJobStandsBehindItsOwnWhoseGateIsGone(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	const tenants = 70
	y.register(2 * tenants)
	gate := store.Gate{Name: store.DownstreamGate("api")}
	for _, g := range []store.Gate{gate, {Name: store.DownstreamGate("elsewhere"), Limit: 5}} {
		_, _, err := y.store.SetGate(t.Context(), g)
		check(t, err)
	}
	of := func(n int) string { return fmt.Sprintf("tenant-%02d", n) }
	for n := range tenants {
		y.admit(arriving(of(n), "mail", "api", "first"))
	}
	gate.Limit = store.Unlimited
	_, _, err := y.store.SetGate(t.Context(), gate)
	check(t, err)
	for n := range 2 { // Each call sends 64 at most.
		y.admit(arriving("other", "mail", "", strconv.Itoa(n)))
	}
	if n := y.ready(); n != 66 {
		t.Fatalf("%d jobs are ready, want those 64 and 2 of another tenant", n)
	}
	last := arriving(of(tenants-1), "mail", "api", "second")
	verdicts, err := y.store.Admit(t.Context(), 0, []store.Candidate{{Job: &last, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
	check(t, err)
	if v := verdicts[0]; v.Place != admission.PlaceWaiting || v.Position != 2 {
		t.Errorf("it is at position %d, %s, want the second that waits", v.Position, v.Place)
	}
}

// TestJobsOfOneDeadlineStandInTheirOrder: two jobs of one deadline whose time comes in the reverse of the order in which they were let in go to workers in that.
func TestJobsOfOneDeadlineStandInTheirOrder(t *testing.T) {
	t.Parallel()
	y, clock := arriveYard(t)
	ids := []string{"first", "second"}
	for i, id := range ids {
		j := arriving("ann", "sms", "", id)
		j.Deadline = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)
		j.Delay = time.Duration(len(ids)-i) * 100 * time.Millisecond
		y.admitAt(1, j)
	}
	clock.Step(t, time.Second)
	y.promoteAll()
	leases, err := y.store.Read(t.Context(), "w2", smsPool.ID(), 8, -1, false)
	check(t, err)
	for i, l := range leases {
		if len(leases) != len(ids) || l.Job.ID != ids[i] {
			t.Fatalf("job %d of %d is %s, want %v", i, len(leases), l.Job.ID, ids)
		}
	}
}

// TestPositionsAmongThoseThatComeTogether: each of the jobs that one call lets in is told its place among those before it, by their deadlines.
func TestPositionsAmongThoseThatComeTogether(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	var jobs []store.Candidate
	for i, year := range []int{2103, 2101, 2102, 2101} {
		j := mail("ann", strconv.Itoa(i))
		j.Deadline = time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
		jobs = append(jobs, store.Candidate{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}})
	}
	verdicts, err := y.store.Admit(t.Context(), 0, jobs)
	check(t, err)
	for i, want := range []int{1, 1, 2, 2} {
		if verdicts[i].Position != want {
			t.Errorf("job %d is at position %d, want %d", i, verdicts[i].Position, want)
		}
	}
}
