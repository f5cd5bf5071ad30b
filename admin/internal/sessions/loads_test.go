package sessions

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestNothingIsKeptOfSessionsWhileNobodyAsks: no session is remembered, and what its calls bring costs no allocation.
func TestNothingIsKeptOfSessionsWhileNobodyAsks(t *testing.T) {
	a := &Sessions{}
	l, s, cpu := &leased{}, session{worker: "w"}, 40.0
	each := testing.AllocsPerRun(100, func() {
		_ = a.due(t.Context(), s, Busy{CPU: &cpu})
		a.hand(s, l, false, time.Time{})
		a.cameBack(t.Context(), s, l, time.Second, store.EndedDone)
		a.loads.forget("w")
	})
	if each > 0 || a.loads.mu.sessions.all != nil {
		t.Errorf("%v allocations, %v", each, a.loads.mu.sessions.all)
	}
	a.loads.asked(time.Second)
	if a.loads.of("w") == nil {
		t.Error("it is asked, and nothing is kept")
	}
	a.loads.asked(0)
	if a.loads.of("w") != nil || a.loads.mu.sessions.all != nil {
		t.Error("something is kept though nobody asks any more")
	}
}

// TestSessionsThatAreNotHeardOfAreForgotten, so that what is kept is bounded.
func TestSessionsThatAreNotHeardOfAreForgotten(t *testing.T) {
	t.Parallel()
	var l loads
	l.asked(time.Second)
	for i := range 1000 {
		l.of(fmt.Sprint("w", i))
		l.mu.sessions.all[fmt.Sprint("w", i)].at = time.Now().Add(-2 * forgetAfter)
	}
	if n := len(l.mu.sessions.all); n > 200 {
		t.Errorf("%d sessions are remembered of which nobody hears", n)
	}
}

// TestWhatASessionHoldsIsWhatIsToldOfIt where its jobs come back to other servers: what Redis says that it holds counts, and no more is remembered than
// a session may have.
func TestWhatASessionHoldsIsWhatIsToldOfIt(t *testing.T) {
	t.Parallel()
	one := &told{}
	running := func() int64 {
		t.Helper()
		s, err := load.Parse(one.text(time.Now()))
		if err != nil {
			t.Fatal(err)
		}
		return s.Queues["mail"].Running
	}
	now := time.Now()
	name := func(i int) string { return (&leased{Lease: store.Lease{Token: fmt.Sprint(i, "-0")}}).name() }
	for i := range mostInHand + 100 {
		one.hands(name(i), handed{queue: "mail", at: now.Add(time.Duration(i))})
	}
	if n := running(); n != mostInHand {
		t.Errorf("%d jobs are remembered, want %d", n, mostInHand)
	}
	if _, known := one.takes(name(99)); known {
		t.Error("one of the oldest is remembered still")
	}
	if _, known := one.takes(name(100)); !known {
		t.Error("the oldest that there may be is not remembered")
	}
	late := leased{Lease: store.Lease{Token: fmt.Sprint(mostInHand+50, "-0")}}
	one.holds([]leased{late}, now.Add(mostInHand+90))
	if n := running(); n != 1+10 { // What was handed out since that was read, too.
		t.Errorf("%d jobs are in hand, want the one that is held and ten", n)
	}
}

// askedYard is one of a deployment whose policy has workers tell how busy they are.
func askedYard(t *testing.T, partitions int) *yard {
	t.Helper()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: partitions})
	if err != nil {
		t.Fatal(err)
	}
	rules := policy.Unlimited()
	rules.Load = &policy.LoadRules{Every: time.Second}
	if _, err := rollout.Put(t.Context(), s, rules, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	return &yard{t, New(Config{Store: s}), s}
}

// TestAnotherServerKnowsWhenAJobWasTaken: one that did not hand it out goes by its lease, and one that hands out again what is held
// counts no second beginning.
func TestAnotherServerKnowsWhenAJobWasTaken(t *testing.T) {
	t.Parallel()
	y := askedYard(t, 1)
	other := &yard{tb: t, store: y.store, sessions: New(y.sessions.config)}
	s := called[sessionView](y, y.sessions.register, "", `{"queues":[{"queue":"mail"}],"slots":2}`)
	to, err := producer.New(y.store, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := to.EnqueueBatch(t.Context(), []admission.Job{admission.NewJob("acme", "mail", "welcome", nil), admission.NewJob("acme", "mail", "welcome", nil)}); err != nil {
		t.Fatal(err)
	}
	var jobs []leaseView
	for end := time.Now().Add(time.Minute); len(jobs) < 2 && time.Now().Before(end); {
		jobs = append(jobs, called[leasesView](y, y.sessions.lease, s.Worker, `{"max":2,"wait":"1s"}`).Jobs...)
	}
	taken := time.Now()
	for time.Since(taken) < 50*time.Millisecond { // So that it shows which time is meant.
		called[extendedView](y, y.sessions.extend, s.Worker, "")
	}
	called[leasesView](other, other.sessions.lease, s.Worker, `{"max":2,"held":true}`)
	ending := func(job leaseView) string {
		return fmt.Sprintf(`{"tenant":%q,"id":%q,"token":%q}`, job.Tenant, job.ID, job.Token)
	}
	called[endedView](other, other.sessions.complete, s.Worker, ending(jobs[0]))
	third := &yard{tb: t, store: y.store, sessions: New(y.sessions.config)}
	called[extendedView](third, third.sessions.extend, s.Worker, "")
	called[endedView](third, third.sessions.complete, s.Worker, ending(jobs[1]))
	for name, at := range map[string]*yard{"handed out again": other, "of another server": third} {
		runs := at.sessions.loads.of(s.Worker).counts.Sample(time.Now(), load.Unknown, nil).Queues["mail"]
		if runs.Ended != 1 || runs.Took < 50*time.Millisecond || runs.Waited(1) >= 0 {
			t.Errorf("a job that was %s: %+v", name, runs)
		}
	}
}

// TestASessionIsToldOfOnceForAllPartitions: what it runs of each of them is in one word, in the first.
func TestASessionIsToldOfOnceForAllPartitions(t *testing.T) {
	t.Parallel()
	const partitions = 3
	y := askedYard(t, partitions)
	to, err := producer.New(y.store, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := called[sessionView](y, y.sessions.register, "", `{"queues":[{"queue":"mail"},{"queue":"hook"}],"slots":9}`)
	for i := range partitions {
		for range 2 {
			if _, err := to.Enqueue(t.Context(), admission.NewJob(y.tenantIn(i, "t"), "mail", "welcome", nil)); err != nil {
				t.Fatal(err)
			}
		}
	}
	ended := map[string]bool{}
	for end := time.Now().Add(time.Minute); len(ended) < partitions && time.Now().Before(end); {
		for _, job := range called[leasesView](y, y.sessions.lease, s.Worker, `{"max":9,"wait":"1s"}`).Jobs {
			if !ended[job.Tenant] { // The other one of each stays in hand.
				called[endedView](y, y.sessions.complete, s.Worker, fmt.Sprintf(`{"tenant":%q,"id":%q,"token":%q,"ran":"2s"}`, job.Tenant, job.ID, job.Token))
				ended[job.Tenant] = true
			}
		}
	}
	var all []store.WorkerLoad
	var told load.Sample
	for end := time.Now().Add(time.Minute); (len(all) == 0 || told.Queues["mail"].Running < partitions) && time.Now().Before(end); {
		called[leasesView](y, y.sessions.lease, s.Worker, `{"max":9,"wait":"100ms","cpu":50}`)
		if all, err = y.store.WorkerLoads(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(all) > 0 {
			if told, err = load.Parse(all[0].Text); err != nil {
				t.Fatal(err)
			}
		}
	}
	mail := told.Queues["mail"]
	if _, serves := told.Queues["hook"]; len(all) != 1 || !serves || mail.Ended != partitions || mail.Running != partitions || told.CPU != .5 || told.Memory >= 0 {
		t.Errorf("%d tell: %+v", len(all), told)
	}
}

// TestTellingTakesNoCallOfItsOwn: what is told goes with the heartbeats that there are. A server that does not know which queues a session serves asks once.
func TestTellingTakesNoCallOfItsOwn(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	proxy, prefix := redistest.NewProxy(t, server.Addr()), redistest.Prefix(t)
	s, err := redisstore.Open(t.Context(), proxy.Client(t), redisstore.Config{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	y := &yard{t, New(Config{Store: s}), s}
	worker := called[sessionView](y, y.sessions.register, "", `{"queues":[{"queue":"mail"}]}`).Worker
	var others atomic.Int64
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if !c.IsScript() || !strings.HasSuffix(c.Args[0], "_heartbeat") && !strings.HasSuffix(c.Args[0], "_promote") { // It does what is due where nobody else does.
			others.Add(1)
		}
		return redistest.Action{}
	})
	extend := func() extendedView {
		return called[extendedView](y, y.sessions.extend, worker, `{"cpu":50}`)
	}
	for range 10 {
		extend()
	}
	if n := others.Load(); n != 0 {
		t.Errorf("%d calls more while nobody asks", n)
	}
	rules := policy.Unlimited()
	rules.Load = &policy.LoadRules{Every: time.Second}
	if _, err := rollout.Put(t.Context(), s, rules, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	key := redisstore.Keys(s).Load(worker)
	client := server.Client(t)
	told := func() {
		text := ""
		for end, was := time.Now().Add(time.Minute), client.Get(t.Context(), key).Val(); text == "" || text == was; {
			extend()
			if text = client.Get(t.Context(), key).Val(); time.Now().After(end) {
				t.Fatal("nothing is told")
			}
		}
	}
	told()
	before := others.Load()
	for range 2 {
		told()
	}
	if n := others.Load() - before; n != 0 {
		t.Errorf("%d calls more to tell", n)
	}
}
