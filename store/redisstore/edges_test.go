package redisstore

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/gates"
)

// The tests here stand at the edge of one moment, or in one corner, that random walks seldom come to.

func newEdge(t *testing.T) *goneYard {
	t.Helper()
	y := &goneYard{yard: newYard(t), now: ahead()}
	y.pass(0)
	return y
}

// TestARefusalNamesTheFirstMomentThatAdmits: a microsecond before the wait that a refusal names the same question is refused, at its end it
// is granted.
func TestARefusalNamesTheFirstMomentThatAdmits(t *testing.T) {
	t.Parallel()
	for _, limit := range []admission.Limit{
		admission.PerSecond(1), admission.PerSecond(3).WithBurst(2), admission.PerSecond(7).WithBurst(5),
		{Tokens: 7, Per: time.Minute, Burst: 1},
		{Tokens: 11, Per: 13 * time.Second, Burst: 3},
		admission.PerSecond(999_983).WithBurst(1),
	} {
		y := newEdge(t)
		q := ofTenant("acme", limit.Burst)
		q.Limits[admission.LevelTenant] = limit
		ask := func() admission.Verdict {
			t.Helper()
			_, answers, err := y.store.Check(t.Context(), 0, false, []store.Question{q})
			check(t, err)
			return answers[0].Verdict
		}
		if v := ask(); v.Decision != admission.Admitted {
			t.Fatalf("%+v of a full bucket: %+v", limit, v)
		}
		for range 3 {
			wait := ask().RetryAfter
			y.pass(wait - time.Microsecond)
			if v := ask(); v.Decision == admission.Admitted || v.RetryAfter > 2*time.Microsecond {
				t.Errorf("%+v: a microsecond before %s are over: %+v", limit, wait, v)
			}
			y.pass(time.Microsecond)
			if v := ask(); v.Decision != admission.Admitted {
				t.Errorf("%+v: after %s: %+v", limit, wait, v)
			}
		}
	}
}

// TestADeadlineIsTheLastMomentOfAStart: where a lane's timer runs late, a job whose deadline is now does not expire with those before it.
func TestADeadlineIsTheLastMomentOfAStart(t *testing.T) {
	t.Parallel()
	y := newEdge(t)
	first, second := mail("acme", "first"), mail("acme", "second")
	first.Deadline, second.Deadline = time.UnixMicro(y.now+1_000_000), time.UnixMicro(y.now+2_000_000)
	y.admit(first, second)
	y.pass(2 * time.Second)
	y.promoteAll()
	y.register(2)
	if leases := y.take(); len(leases) != 1 || leases[0].Job.ID != "second" {
		t.Errorf("at its deadline: %+v", leases)
	}
}

// TestAPauseWhoseTimerRanEarlyEnds: its timer is set anew.
func TestAPauseWhoseTimerRanEarlyEnds(t *testing.T) {
	t.Parallel()
	y := newEdge(t)
	_, err := y.store.Pause(t.Context(), store.QueueGate("mail"), time.Minute, store.Intervention{Reason: t.Name()})
	check(t, err)
	check(t, y.client.ZAddXX(t.Context(), y.store.Keys().Due(), redis.Z{Score: float64(y.now), Member: "gq:mail"}).Err())
	y.admit(mail("acme", "a"))
	y.register(1)
	y.pass(time.Second)
	y.promoteAll()
	if got := len(y.take()); got != 0 {
		t.Errorf("%d jobs run in a pause", got)
	}
	y.register(1)
	y.pass(time.Minute)
	y.promoteAll()
	y.register(1)
	if got := len(y.take()); got != 1 {
		t.Errorf("%d jobs run after a pause, want 1", got)
	}
}

// TestTheLastPlainJobsLetAShelfRun: a downstream has half of the slots while others run. When these end, and none of them waits, what
// stands on the shelf takes their slots.
func TestTheLastPlainJobsLetAShelfRun(t *testing.T) {
	t.Parallel()
	y := newEdge(t)
	// Where there are gates, jobs that wait may all stand behind one.
	_, _, err := y.store.SetGate(t.Context(), store.Gate{Name: store.DownstreamGate("other"), Limit: 5})
	check(t, err)
	for i := range 4 {
		slow := mail("acme", fmt.Sprint("slow-", i))
		slow.Downstream = "slow"
		y.admit(mail("other", fmt.Sprint("plain-", i)), slow)
	}
	y.register(4)
	slow := 0
	for range 3 { // Two plain ones run beside two slow ones, then the other two, and then no other job is there.
		var plain []store.Finish
		leases := y.take()
		for i := range leases {
			if leases[i].Job.Downstream == "" {
				plain = append(plain, leases[i].Finish(store.Complete))
			} else {
				slow++
			}
		}
		if len(plain) == 0 {
			break
		}
		if slow != 2 {
			t.Fatalf("%d slow jobs run beside others in four slots", slow)
		}
		_, _, err := y.store.Finish(t.Context(), yardPool.ID(), "w1", plain)
		check(t, err)
	}
	if slow != 4 {
		t.Errorf("%d slow jobs run when no other is left, want 4", slow)
	}
}

// TestATenantThatParksIsNoneThatRunsBeside: a pool holds its share of one downstream. The one tenant beside comes to the head and has
// to wait behind a gate, so that from then on the pool has no other work, and the share binds no longer.
func TestATenantThatParksIsNoneThatRunsBeside(t *testing.T) {
	t.Parallel()
	y := newEdge(t)
	_, _, err := y.store.SetGate(t.Context(), store.Gate{Name: store.DownstreamGate("capped"), Limit: 1})
	check(t, err)
	enqueue := func(tenant, downstream string, class int) {
		j := mail(tenant, downstream)
		j.Downstream = downstream
		_, err := y.store.Admit(t.Context(), 0, []store.Candidate{{Job: &j, Class: class, Limits: &[admission.Levels]admission.Limit{}}})
		check(t, err)
	}
	y.register(3)
	for _, tenant := range []string{"one", "two"} {
		enqueue(tenant, "slow", 2)
	}
	enqueue("three", "capped", 2)
	if held := y.take(); len(held) != 3 {
		t.Fatalf("%d jobs run in 3 slots", len(held))
	}
	enqueue("shelved", "slow", 0)
	enqueue("parked", "capped", 1)
	enqueue("last", "slow", 2)
	y.register(4)
	leases := y.take()
	if len(leases) != 1 || leases[0].Job.Tenant != "last" {
		t.Errorf("%d jobs run in the fourth slot, the first is %+v, want that of tenant last", len(leases), leases)
	}
}

// TestAnOlderReleasesFinishGivesUnitsBack: it does not name the queue of a job that is complete.
func TestAnOlderReleasesFinishGivesUnitsBack(t *testing.T) {
	t.Parallel()
	y := newEdge(t)
	_, _, err := y.store.SetGate(t.Context(), store.Gate{Name: store.QueueGate("mail"), Limit: 1})
	check(t, err)
	y.admit(mail("acme", "a"), mail("acme", "b"))
	y.register(2)
	for range 2 {
		leases := y.take()
		if len(leases) != 1 {
			t.Fatalf("%d jobs run under a cap of 1", len(leases))
		}
		f := leases[0].Finish(store.Complete)
		f.Queue = ""
		_, _, err := y.store.Finish(t.Context(), yardPool.ID(), "w1", []store.Finish{f})
		check(t, err)
	}
}

// TestACancelledJobOfALostWorkerDoesNotRunAgain: it was cancelled while the worker held it, and the worker never heard of it.
func TestACancelledJobOfALostWorkerDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	y := newEdge(t)
	y.admit(mail("acme", "a"), mail("acme", "b"))
	y.register(2)
	y.take()
	running, _, err := y.store.Cancel(t.Context(), admission.Key{Tenant: "acme", ID: "a"}, store.Intervention{})
	check(t, err)
	for range 2 {
		y.pass(time.Hour)
		y.promoteAll()
	}
	c, err := y.store.Census(t.Context())
	check(t, err)
	if !running || c.Left["cancelled"] != 1 || c.Waiting != 1 || !c.Conserved() {
		t.Errorf("running %t, %+v", running, c)
	}
}

// TestAHistoryIsBounded: of a job that fails more often than that the last are kept.
func TestAHistoryIsBounded(t *testing.T) {
	t.Parallel()
	y := newEdge(t)
	j := mail("acme", "a")
	j.MaxAttempts = 100
	y.admit(j)
	const most = 20 // HISTORY_CAP of record.lua
	for i := range most + 5 {
		y.register(1)
		leases := y.take()
		if len(leases) != 1 {
			t.Fatalf("attempt %d: %d jobs", i, len(leases))
		}
		f := leases[0].Finish(store.Retry)
		f.Text = fmt.Sprint("failure ", i)
		_, _, err := y.store.Finish(t.Context(), yardPool.ID(), "w1", []store.Finish{f})
		check(t, err)
		y.promoteAll()
	}
	history := y.look("a").History
	if len(history) != most || history[most-1].Text != fmt.Sprint("failure ", most+4) {
		t.Errorf("%d entries: %+v", len(history), history)
	}
}

// TestACallOfAnOldPeriodGivesNoUnitBack: the probe of a period that is over ends, while a job is the one probe of the present one.
func TestACallOfAnOldPeriodGivesNoUnitBack(t *testing.T) {
	t.Parallel()
	y := newEdge(t)
	config, err := breaker.Config{MaxProbes: 1, ProbeTimeout: time.Hour, OpenBase: time.Second, OpenMax: time.Second}.Complete()
	check(t, err)
	_, _, err = y.store.ReportOutcomes(t.Context(), store.Reporter{Name: "w"}, []store.Outcomes{{Downstream: "api", Config: config, Report: breaker.Report{Sequence: 1}}})
	check(t, err)
	open := func() {
		t.Helper()
		_, err := y.store.ForceBreaker(t.Context(), "api", breaker.Open, time.Second, store.Intervention{Reason: "test"})
		check(t, err)
		y.pass(3 * time.Second)
		y.promoteAll()
	}
	begin := func(call string) bool {
		t.Helper()
		probe, _, _, err := y.store.BeginProbe(t.Context(), "api", call)
		check(t, err)
		return probe
	}
	open()
	if !begin("old") {
		t.Fatal("no probe in half-open")
	}
	open()
	j := mail("acme", "a")
	j.Downstream = "api"
	y.admit(j)
	y.register(1)
	if leases := y.take(); len(leases) != 1 || leases[0].Period == 0 {
		t.Fatalf("the job is no probe: %+v", leases)
	}
	_, _, err = y.store.EndProbe(t.Context(), "api", "old")
	check(t, err)
	if begin("new") {
		t.Error("two probes at a time, of which one may be")
	}
}

// TestARefundsReceiptEndsWithItsWindow: else each refund would leave a key for ever.
func TestARefundsReceiptEndsWithItsWindow(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	q := ofTenant("acme", 1)
	q.Limits[admission.LevelTenant] = admission.PerSecond(1).WithBurst(5)
	_, receipt, err := y.store.Take(t.Context(), 0, q)
	check(t, err)
	word, err := y.store.Refund(t.Context(), "work", receipt)
	check(t, err)
	life, err := y.client.PTTL(t.Context(), y.store.Keys().Base()+"refund:work").Result()
	if word != store.Refunded || err != nil || life <= 0 || life > time.Hour {
		t.Errorf("%s, its receipt stays for %s: %v", word, life, err)
	}
}

// TestAPartKeepsItsReservation for as long as if it had just been made: else a call of more than two minutes could not tell its cost over HTTP.
func TestAPartKeepsItsReservation(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	q := ofTenant("acme", 1)
	q.Limits[admission.LevelTenant] = admission.PerSecond(1).WithBurst(5)
	for _, expiry := range []time.Duration{0, store.RefundWindow, 30 * time.Second, 10 * time.Minute} {
		id := "stream-" + expiry.String()
		_, r, err := y.store.Reserve(t.Context(), 0, id, expiry, q)
		check(t, err)
		expiry = cmp.Or(expiry, store.RefundWindow)
		key := y.store.Keys().Base() + "reserved:acme:" + id
		stays := func(key string, least, most time.Duration) {
			t.Helper()
			if life, err := y.client.PTTL(t.Context(), key).Result(); err != nil || life <= least || life > most {
				t.Errorf("%s stays for %s, want %s to %s: %v", key, life, least, most, err)
			}
		}
		stays(key, expiry, 2*expiry)
		check(t, y.client.PExpire(t.Context(), key, time.Second).Err())
		kept, err := y.store.Reserved(t.Context(), "acme", id)
		check(t, err)
		if kept.Ref != r.Ref || kept.Taken.ExpireAfter != expiry || r.Taken.ExpireAfter != expiry {
			t.Errorf("%+v is kept of %+v", kept, r)
		}
		word, err := y.store.CommitPart(t.Context(), kept.Ref, kept.Taken, 1)
		check(t, err)
		if word != store.Refunded {
			t.Errorf("a part: %s", word)
		}
		stays(key, expiry, 2*expiry)
		stays(y.store.Keys().Base()+"refund:"+r.Ref, 0, expiry)
	}
}

// TestABallotHasOneOwner: the second balancer with the same number changes nothing, and hears of it.
func TestABallotHasOneOwner(t *testing.T) {
	t.Parallel()
	s := openParts(t, 2, 0)
	part := s.parts[0]
	for i, owner := range []string{"one", "one", "two"} {
		_, _, err := part.Share(t.Context(), 7, owner, nil)
		if errors.Is(err, gates.ErrTaken) != (i == 2) {
			t.Errorf("call %d, of %s: %v", i, owner, err)
		}
	}
}

// TestARefusalNamesTheScopeThatWaitsLongest: of several scopes that lack tokens, whichever is the outer.
func TestARefusalNamesTheScopeThatWaitsLongest(t *testing.T) {
	t.Parallel()
	for longest, shorter := range map[admission.Level]admission.Level{
		admission.LevelQueue: admission.LevelTenant, admission.LevelTenant: admission.LevelQueue, admission.LevelPriority: admission.LevelGlobal,
	} {
		y := newEdge(t)
		q := ofTenant("acme", 5)
		q.Queue, q.Class, q.Limits = "mail", admission.Medium, [admission.Levels]admission.Limit{}
		q.Limits[shorter] = admission.Limit{Tokens: 1, Per: time.Second, Burst: 5}
		q.Limits[longest] = admission.Limit{Tokens: 1, Per: time.Minute, Burst: 5}
		for _, want := range []admission.Decision{admission.Admitted, admission.Refused} {
			_, answers, err := y.store.Check(t.Context(), 0, false, []store.Question{q})
			check(t, err)
			v := answers[0].Verdict
			if v.Decision != want {
				t.Fatalf("%+v, want %v", v, want)
			}
			if want == admission.Refused && (v.Scope.Level() != longest || v.RetryAfter != 5*time.Minute) {
				t.Errorf("5 seconds at level %v and 5 minutes at level %v: %+v", shorter, longest, v)
			}
		}
	}
}

// TestNobodyIsDoomedWhileASlotIsFree: while a call dispatches part of what waits, the pace is that of before, and slots are free: a job is let
// in that nobody would start in time at that pace, and refused once all slots are taken.
func TestNobodyIsDoomedWhileASlotIsFree(t *testing.T) {
	t.Parallel()
	y := newEdge(t)
	enter := func(id string) admission.Verdict {
		t.Helper()
		j := mail("acme", id)
		j.Deadline = time.UnixMicro(y.now + time.Second.Microseconds())
		verdicts, err := y.store.Admit(t.Context(), 0, []store.Candidate{{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}, Doomed: 100}})
		check(t, err)
		return verdicts[0]
	}
	y.register(1)
	for i := range 400 {
		y.admit(mail("acme", strconv.Itoa(i)))
	}
	for range 3 {
		y.pass(10 * time.Second)
		leases, err := y.store.Read(t.Context(), "w1", yardPool.ID(), 1, -1, false)
		check(t, err)
		_, _, err = y.store.Finish(t.Context(), yardPool.ID(), "w1", []store.Finish{leases[0].Finish(store.Complete)})
		check(t, err)
	}
	if v := enter("late"); v.Reason != admission.ReasonDoomed {
		t.Fatalf("at one job in 10 s, behind 396, with a second to go: %+v", v)
	}
	y.register(350)
	if v := enter("in time"); v.Decision != admission.Admitted {
		t.Errorf("with a slot to spare: %+v", v)
	}
}

// TestWhatCameInSinceIsNotGivenBackToo: of ten tokens that a job reserved four came in while it ran; where it cost none, the bucket is full by
// six of them, and holds no more than had nothing been reserved.
func TestWhatCameInSinceIsNotGivenBackToo(t *testing.T) {
	t.Parallel()
	y := newEdge(t)
	limits := &[admission.Levels]admission.Limit{}
	limits[admission.LevelTenant] = admission.Limit{Tokens: 1, Per: time.Second, Burst: 100}
	y.register(1)
	enter := func(id string, cost admission.Tokens) {
		t.Helper()
		j := mail("acme", id)
		j.Cost = cost
		verdicts, err := y.store.Admit(t.Context(), 0, []store.Candidate{{Job: &j, Class: 1, Limits: limits}})
		check(t, err)
		check(t, verdicts[0].Err())
	}
	enter("it", 10)
	leases, err := y.store.Read(t.Context(), "w1", yardPool.ID(), 1, -1, false)
	check(t, err)
	y.pass(4 * time.Second)
	enter("another", 50)
	f := leases[0].Finish(store.Complete)
	f.Spent = &store.Spent{Cost: 0, Class: admission.Medium, Limits: limits}
	_, _, err = y.store.Finish(t.Context(), yardPool.ID(), "w1", []store.Finish{f})
	check(t, err)
	q := store.Question{Tenant: "acme", Queue: "mail", Class: admission.Medium, Cost: 1, Limits: *limits}
	_, answers, err := y.store.Check(t.Context(), 0, true, []store.Question{q})
	check(t, err)
	// 100 - 10 + 4 - 50 are 44, and at least 5 of the 10 tokens come back: a microsecond is rounded against the caller.
	if left := answers[0].Left[admission.LevelTenant].Tokens(); left < 49 || left > 50 {
		t.Errorf("the bucket holds %d, want 49 or 50: it would hold 50 had the job not been", left)
	}
}
