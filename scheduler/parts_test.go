package scheduler_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
)

// partsBench is a deployment whose queue mail is pressed by how many jobs wait, of which 40 are as many as may, and whose limits move by that.
func partsBench(t *testing.T, adaptive map[string]policy.Adaptive) (s store.Deployment, part func(store.GateName) store.Adaptation) {
	t.Helper()
	s = open(t, redistest.Shared(t).Client(t))
	return s, partsOn(t, s, adaptive)
}

// partsOn is partsBench on a deployment.
func partsOn(t *testing.T, s store.Deployment, adaptive map[string]policy.Adaptive) (part func(store.GateName) store.Adaptation) {
	t.Helper()
	p := policy.Unlimited()
	p.Global = admission.PerSecond(1000)
	p.Queues = map[string]policy.Queue{"mail": {
		EachTenant: policy.EachTenant{Limit: admission.PerSecond(100)}, Pressure: &policy.PressureRules{MaxDepth: 40, Interval: 200 * time.Millisecond},
	}}
	p.Downstreams = map[string]policy.Downstream{"smtp": {MaxRunning: 40}, "push": {Dispatch: new(admission.PerSecond(1000))}}
	p.Downstreams["near"] = policy.Downstream{MaxRunning: 40, Breaker: &policy.BreakerRules{Config: breaker.Config{Window: 400 * time.Millisecond}}}
	p.Adaptive = adaptive
	for _, a := range adaptive {
		if a.Signal != "" {
			p.Load = &policy.LoadRules{}
		}
	}
	if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	return func(gate store.GateName) store.Adaptation {
		t.Helper()
		all, err := s.Adaptations(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range all {
			if a.Gate == gate {
				return a
			}
		}
		t.Fatalf("nothing moves %s", gate)
		return store.Adaptation{}
	}
}

// fill enqueues jobs that wait, as no worker serves their queue.
func fill(t *testing.T, s store.Deployment, n int) {
	t.Helper()
	version, err := s.PolicyInForce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		j := admission.NewJob("acme", "mail", "send", nil)
		j.ID = strconv.Itoa(i)
		none := admission.Limit{Disabled: true}
		_, err := s.Partitions()[0].Admit(t.Context(), version, []store.Candidate{{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{none, none, none, none}}})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestLimitsMoveByPressure: those of a queue, and the global one, fall to their min while too many jobs wait, a scheduler that takes over goes on
// from there, and they come back to all of what the policy says when the jobs are gone.
func TestLimitsMoveByPressure(t *testing.T) {
	t.Parallel()
	s, part := partsBench(t, map[string]policy.Adaptive{
		"mail-in": {Of: "queue mail", Min: 30, Interval: 200 * time.Millisecond}, "all-in": {Of: "global", Min: 50, Interval: 200 * time.Millisecond, Controller: policy.Health, MinChange: time.Second},
	})
	mail, global := store.QueueLimitsGate("mail"), store.GlobalLimitGate
	fill(t, s, 60)
	stop := run(t, s, scheduler.Config{TimerLease: time.Second})
	await(t, "too many jobs to lower both to min", func() bool { return part(mail).Limit == 300 && part(global).Limit == 500 })
	if cause := part(mail).Why; cause != "above_target" {
		t.Errorf("the queue's fell for %q", cause)
	}
	if cause := part(global).Why; cause != "ill" {
		t.Errorf("the global one fell for %q", cause)
	}
	stop()
	run(t, s, scheduler.Config{TimerLease: time.Second})
	for i := range 60 {
		if _, _, err := s.Partitions()[0].Cancel(t.Context(), admission.Key{Tenant: "acme", ID: strconv.Itoa(i)}, store.Intervention{}); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "all of it to be back", func() bool { return part(mail).Limit == store.PartWhole && part(global).Limit == store.PartWhole })
}

// TestATripHalvesWhatDependsOnIt: limits that depend on a circuit breaker are half of what they were within a second of its opening, whatever their
// own loop finds and though the last change was a moment ago; they do not grow while it is open, and do after.
func TestATripHalvesWhatDependsOnIt(t *testing.T) {
	t.Parallel()
	depends := []string{"smtp", "nobody"}
	s, part := partsBench(t, map[string]policy.Adaptive{
		"all-in": {Of: "global", Min: 10, Interval: time.Minute, Controller: policy.Health, DependsOn: depends},
		"quick":  {Of: "queue mail", Min: 10, Interval: 200 * time.Millisecond, DependsOn: depends},
		"out":    {Of: "downstream smtp", Min: 5, Interval: 200 * time.Millisecond, DependsOn: depends},
	})
	run(t, s, scheduler.Config{TimerLease: time.Minute})
	quick, global, out := store.QueueLimitsGate("mail"), store.GlobalLimitGate, store.DownstreamGate("smtp")
	await(t, "the first looks", func() bool { return !part(quick).At.IsZero() && !part(global).At.IsZero() && !part(out).At.IsZero() })
	for _, of := range []store.GateName{quick, global, out} {
		if a := part(of); a.Limit != a.Own {
			t.Fatalf("before it: %+v", a)
		}
	}
	if _, err := s.ForceBreaker(t.Context(), "smtp", breaker.Open, 0, store.Intervention{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	await(t, "halves", func() bool { return part(global).Limit == 500 && part(quick).Limit == 500 && part(out).Limit == 20 })
	t.Logf("heeded after %s", time.Since(began))
	if a := part(global); a.Why != "tripped" {
		t.Errorf("for %q", a.Why)
	}
	for range 20 { // Five looks, none of which may raise it.
		time.Sleep(50 * time.Millisecond) //nolint:forbidigo // the pace of the test's own looks
		if a := part(quick); a.Limit != 500 {
			t.Fatalf("while it is open: %+v", a)
		}
	}
	await(t, "a look that was not too late to say why", func() bool { return part(quick).Cause == "tripped" })
	if _, err := s.ResetBreaker(t.Context(), "smtp", store.Intervention{}); err != nil {
		t.Fatal(err)
	}
	await(t, "what is not pressed to grow again", func() bool { return part(quick).Limit > 500 })
}

// TestTooLittleToChangeIsCounted: with a gain so small that a look wants less than 2 % of the limits gone, every other one leaves them alone, and Redis
// is told how many did.
func TestTooLittleToChangeIsCounted(t *testing.T) {
	t.Parallel()
	s, part := partsBench(t, map[string]policy.Adaptive{
		"mail-in": {Of: "queue mail", Min: 30, Interval: 200 * time.Millisecond, Gains: policy.Gains{Proportional: 0.05}},
	})
	mail := store.QueueLimitsGate("mail")
	fill(t, s, 30)
	run(t, s, scheduler.Config{TimerLease: time.Second})
	await(t, "three looks that change too little", func() bool { return part(mail).DeadBand >= 3 })
	if a := part(mail); a.Lowered < 2 || a.Limit == store.PartWhole {
		t.Errorf("what was too little does not add up: %+v", a)
	}
}

// TestADownstreamGoesByHowNearItsBreakerIs to opening: it falls while more of its calls fail than its target is of what opens the breaker, and comes back.
func TestADownstreamGoesByHowNearItsBreakerIs(t *testing.T) {
	t.Parallel()
	s, of := partsBench(t, map[string]policy.Adaptive{
		"out": {Of: "downstream near", Min: 2, Interval: 200 * time.Millisecond, MaxFailures: 1, Controller: policy.AIMD, Signal: policy.SignalPressure, Target: .3},
	})
	version, err := s.PolicyInForce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		j := admission.NewJob("acme", "mail", "send", nil)
		j.ID, j.Downstream = strconv.Itoa(i), "near"
		none := admission.Limit{Disabled: true}
		if _, err := s.Partitions()[0].Admit(t.Context(), version, []store.Candidate{{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{none, none, none, none}}}); err != nil {
			t.Fatal(err)
		}
	}
	newBench(t, s.Partitions()[0])
	rules, err := breaker.Config{Window: 400 * time.Millisecond}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	var failing atomic.Bool
	failing.Store(true)
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		for sequence := uint64(1); t.Context().Err() == nil; sequence++ {
			counts := breaker.Counts{Successes: 20}
			if failing.Load() {
				counts = breaker.Counts{Successes: 16, Failures: 4}
			}
			_, _, _ = s.Partitions()[0].ReportOutcomes(t.Context(), store.Reporter{Name: "w"}, []store.Outcomes{{
				Downstream: "near", Config: rules, Report: breaker.Report{Sequence: sequence, Counts: counts}, Ran: 100 * time.Millisecond,
			}})
			time.Sleep(20 * time.Millisecond) //nolint:forbidigo // the pace of a worker's reports
		}
	}()
	run(t, s, scheduler.Config{TimerLease: handOver})
	out := store.DownstreamGate("near")
	await(t, "a fifth of failures to lower it to min", func() bool { return of(out).Limit == 2 })
	if a := of(out); a.Why != "above_target" {
		t.Errorf("it fell for %q", a.Why)
	}
	failing.Store(false)
	await(t, "calls that succeed to raise it to max", func() bool { return of(out).Limit == 40 })
	if a := of(out); a.Why != "below_target" {
		t.Errorf("it rose for %q", a.Why)
	}
}

// TestADispatchGoesByASignal: it falls while processors are busier than they may be, grows while they are not and it is used, and what the receiver refuses cuts it all the
// same.
func TestADispatchGoesByASignal(t *testing.T) {
	t.Parallel()
	s, of := partsBench(t, map[string]policy.Adaptive{
		"rate": {Of: "downstream push", Moves: policy.MovesDispatch, Min: 300, Interval: 200 * time.Millisecond, Signal: policy.SignalCPU, Target: .7},
	})
	b := newBench(t, s.Partitions()[0])
	tell := func(cpu float64) {
		t.Helper()
		told := load.Sample{Use: load.Use{CPU: cpu, Memory: .1}, Downstreams: map[string]load.Runs{"push": {Running: 3}}}
		if _, err := s.Partitions()[0].Heartbeat(t.Context(), b.worker, time.Hour, told.Text()); err != nil {
			t.Fatal(err)
		}
	}
	var refusing, calling atomic.Bool
	calling.Store(true)
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		for sequence := uint64(1); t.Context().Err() == nil; sequence++ {
			o := store.Outcomes{Downstream: "push", Report: breaker.Report{Sequence: sequence, Counts: breaker.Counts{Successes: 1}}, Ran: time.Millisecond}
			if calling.Load() {
				o.Successes = 40
			}
			if refusing.Load() {
				o.Refused = 20
			}
			_, _, _ = s.Partitions()[0].ReportOutcomes(t.Context(), store.Reporter{Name: "w"}, []store.Outcomes{o})
			time.Sleep(20 * time.Millisecond) //nolint:forbidigo // the pace of a worker's reports
		}
	}()
	tell(.95)
	run(t, s, scheduler.Config{TimerLease: handOver})
	rate := store.DownstreamRateGate("push")
	await(t, "busy processors to lower it to min", func() bool { return of(rate).Limit == 300*store.RateUnit })
	if a := of(rate); a.Why != "above_target" {
		t.Errorf("it fell for %q", a.Why)
	}
	calling.Store(false)
	tell(.2)
	await(t, "idle processors, and a rate that is not used", func() bool { return of(rate).Cause == "not_bound" })
	if a := of(rate); a.Limit > 500*store.RateUnit {
		t.Errorf("it is used by a sixth, and grew to %d", a.Limit)
	}
	calling.Store(true)
	await(t, "it to be at max where it is used", func() bool { return of(rate).Limit == 1000*store.RateUnit })
	if a := of(rate); a.Why != "below_target" {
		t.Errorf("it rose for %q", a.Why)
	}
	refusing.Store(true)
	await(t, "a receiver that refuses to cut it", func() bool { a := of(rate); return a.Why == "refused" && a.Limit < 700*store.RateUnit })
	refusing.Store(false)
	await(t, "it to be at max again", func() bool { return of(rate).Limit == 1000*store.RateUnit })
	if _, err := s.Override(t.Context(), rate, 400*store.RateUnit, time.Second, store.Intervention{}); err != nil {
		t.Fatal(err)
	}
	if a := of(rate); a.Limit != 400*store.RateUnit {
		t.Errorf("set for a time it is %d", a.Limit)
	}
	await(t, "what was before to come back", func() bool { return of(rate).Limit == 1000*store.RateUnit })
	if a := of(rate); a.Why != store.CauseOverrideOver {
		t.Errorf("it came back for %q", a.Why)
	}
	if _, err := s.Freeze(t.Context(), rate, true, store.Intervention{}); err != nil {
		t.Fatal(err)
	}
	tell(.95)
	time.Sleep(time.Second) //nolint:forbidigo // five looks, none of which may move it
	if a := of(rate); a.Limit != 1000*store.RateUnit {
		t.Errorf("frozen it is %d", a.Limit)
	}
	if _, err := s.Freeze(t.Context(), rate, false, store.Intervention{}); err != nil {
		t.Fatal(err)
	}
	await(t, "busy processors to lower it again", func() bool { return of(rate).Limit < 600*store.RateUnit })
}
