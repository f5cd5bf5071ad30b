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

// called reports calls of smtp until the test ends, each as long as runTime says, as a worker would that is always busy.
func called(t *testing.T, s store.Deployment, runTime *atomic.Int64) {
	t.Helper()
	done := make(chan struct{})
	t.Cleanup(func() { <-done })
	go func() {
		defer close(done)
		for sequence := uint64(1); t.Context().Err() == nil; sequence++ {
			const calls = 20
			_, _, _ = s.Partitions()[0].ReportOutcomes(t.Context(), store.Reporter{Name: "w"}, []store.Outcomes{{
				Downstream: "smtp", Report: breaker.Report{Sequence: sequence, Counts: breaker.Counts{Successes: calls}}, Ran: calls * time.Duration(runTime.Load()),
			}})
			time.Sleep(20 * time.Millisecond) //nolint:forbidigo // the pace of a worker's reports
		}
	}()
}

// TestLimitsMoveByOneOfManySchedulers: by the one that holds the timer lease, by another from where that left off, not while they are frozen,
// by another policy, and by none once the policy says so.
func TestLimitsMoveByOneOfManySchedulers(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	put := func(adaptive map[string]policy.Adaptive) {
		t.Helper()
		p := policy.Unlimited()
		p.Downstreams, p.Adaptive = map[string]policy.Downstream{"smtp": {MaxRunning: 40}}, adaptive
		if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
			t.Fatal(err)
		}
	}
	newBench(t, s.Partitions()[0])
	for i := range 60 {
		j := admission.NewJob("acme", "mail", "send", nil)
		j.ID, j.Downstream = strconv.Itoa(i), "smtp"
		none := admission.Limit{Disabled: true}
		if _, err := s.Partitions()[0].Admit(t.Context(), 0, []store.Candidate{{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{none, none, none, none}}}); err != nil {
			t.Fatal(err)
		}
	}
	limit := func() int {
		gates, err := s.Gates(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range gates {
			if g.Name == store.DownstreamGate("smtp") {
				return g.Limit
			}
		}
		return -1
	}
	out := policy.Adaptive{Of: "downstream smtp", Min: 2, Interval: 200 * time.Millisecond, MaxRunTime: time.Second}
	put(map[string]policy.Adaptive{"out": out})
	var runTime atomic.Int64
	runTime.Store(int64(10 * time.Second))
	called(t, s, &runTime)
	var said logs
	stop := run(t, s, scheduler.Config{TimerLease: time.Second, Logger: said.logger()})
	run(t, s, scheduler.Config{TimerLease: time.Second, Logger: said.logger()})
	await(t, "calls that take too long to lower it to min", func() bool { return limit() == 2 })
	stop()
	if n := limit(); n != 2 {
		t.Errorf("with its scheduler gone the limit is %d", n)
	}
	runTime.Store(int64(10 * time.Millisecond))
	await(t, "the other one to raise it", func() bool { return limit() > 10 })
	if _, err := s.Freeze(t.Context(), store.DownstreamGate("smtp"), true, store.Intervention{}); err != nil {
		t.Fatal(err)
	}
	frozen := limit()
	runTime.Store(int64(10 * time.Second))
	out.Min = 3
	put(map[string]policy.Adaptive{"out": out})
	time.Sleep(time.Second) //nolint:forbidigo // five looks, none of which may move it
	if n := limit(); n != frozen {
		t.Errorf("frozen at %d it is %d", frozen, n)
	}
	if _, err := s.Freeze(t.Context(), store.DownstreamGate("smtp"), false, store.Intervention{}); err != nil {
		t.Fatal(err)
	}
	await(t, "the new min", func() bool { return limit() == 3 })
	if _, err := s.Override(t.Context(), store.DownstreamGate("smtp"), 17, 2*time.Second, store.Intervention{}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	time.Sleep(time.Second) //nolint:forbidigo // five looks, none of which may move it
	if n := limit(); n != 17 && time.Since(began) < 2*time.Second {
		t.Errorf("overridden by 17 it is %d", n)
	}
	await(t, "the end of that", func() bool { return limit() == 3 })
	put(nil)
	if n := limit(); n != 40 {
		t.Errorf("when nothing moves it any more it is %d", n)
	}
}

// TestLimitsGoByWhatWorkersTell: one of a downstream by how much its workers' processors are used, those of a queue by how many runs fail, and the global one by how long
// they take; down where that is above its target, up where it is below, and back to what is configured where nobody tells any more.
func TestLimitsGoByWhatWorkersTell(t *testing.T) {
	t.Parallel()
	s, of := partsBench(t, map[string]policy.Adaptive{
		"out":     {Of: "downstream smtp", Min: 2, Interval: 200 * time.Millisecond, Controller: policy.AIMD, Signal: policy.SignalCPU, Target: .7},
		"mail-in": {Of: "queue mail", Min: 30, Signal: policy.SignalErrors, Target: .6},
		"all-in":  {Of: "global", Min: 30, Controller: policy.AIMD, Signal: policy.SignalRunP95, Target: 5},
	})
	b := newBench(t, s.Partitions()[0])
	version, err := s.PolicyInForce(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		j := admission.NewJob("acme", "mail", "send", nil)
		j.ID, j.Downstream = strconv.Itoa(i), "smtp"
		none := admission.Limit{Disabled: true}
		if _, err := s.Partitions()[0].Admit(t.Context(), version, []store.Candidate{{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{none, none, none, none}}}); err != nil {
			t.Fatal(err)
		}
	}
	tell := func(cpu float64, downstreams map[string]load.Runs) {
		t.Helper()
		var w load.Window
		for i := range 20 {
			w.Ended(time.Now(), "mail", 10*time.Second, i%2 == 0)
		}
		told := load.Sample{Use: load.Use{CPU: cpu, Memory: .1}, Queues: w.Sum(time.Now()), Downstreams: downstreams}
		if _, err := s.Partitions()[0].Heartbeat(t.Context(), b.worker, time.Hour, told.Text()); err != nil {
			t.Fatal(err)
		}
	}
	smtp := map[string]load.Runs{"smtp": {Running: 3}}
	tell(.95, smtp)
	var runTime atomic.Int64
	runTime.Store(int64(10 * time.Millisecond))
	called(t, s, &runTime)
	run(t, s, scheduler.Config{TimerLease: handOver})
	out := store.DownstreamGate("smtp")
	await(t, "busy processors to lower it to min", func() bool { return of(out).Limit == 2 })
	if a := of(out); a.Why != "above_target" {
		t.Errorf("it fell for %q", a.Why)
	}
	await(t, "the first looks at the others", func() bool {
		return !of(store.QueueLimitsGate("mail")).At.IsZero() && !of(store.GlobalLimitGate).At.IsZero()
	})
	if a := of(store.QueueLimitsGate("mail")); a.Limit != store.PartWhole || a.Cause != "below_target" { // The queue is pressed as much as can be.
		t.Errorf("with half of the runs failed, of six tenths that may: %+v", a)
	}
	if a := of(store.GlobalLimitGate); a.Limit != 900 || a.Why != "above_target" { // No score is above 1.
		t.Errorf("with runs twice as long as may be: %+v", a)
	}
	tell(.2, smtp)
	await(t, "idle processors to raise it to max", func() bool { return of(out).Limit == 40 })
	tell(.95, smtp)
	await(t, "busy processors to lower it again", func() bool { return of(out).Limit == 2 })
	tell(.95, nil) // It calls that downstream no more.
	await(t, "what nobody tells to end at what is configured", func() bool { return of(out).Limit == 40 })
	if a := of(out); a.Why != "missing" {
		t.Errorf("it came back for %q", a.Why)
	}
}

// TestNothingIsReadForASignalThatNobodyNames: a limit that moves by its own measurement takes no command more for those that others may go by.
func TestNothingIsReadForASignalThatNobodyNames(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t, redistest.Options{}).Client(t)
	s := open(t, client)
	p := policy.Unlimited()
	p.Downstreams = map[string]policy.Downstream{"smtp": {MaxRunning: 40}}
	put := func(a policy.Adaptive) {
		t.Helper()
		p.Adaptive = map[string]policy.Adaptive{"out": a}
		if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
			t.Fatal(err)
		}
	}
	calls := func(command string) int64 {
		t.Helper()
		return redistest.CommandStats(t, client)[command].Calls
	}
	put(policy.Adaptive{Of: "downstream smtp", Min: 2, Interval: 200 * time.Millisecond})
	run(t, s, scheduler.Config{TimerLease: handOver})
	const enough = 10
	looks, read := calls("hscan"), calls("hkeys") // Who the workers are, of which the loads are; other duties ask for it, too, once in a while.
	await(t, "ten looks", func() bool { return calls("hscan") >= looks+enough })
	if n := calls("hkeys") - read; n > enough/3 {
		t.Errorf("nobody names a signal, and what workers tell is read %d times", n)
	}
	p.Load = &policy.LoadRules{}
	put(policy.Adaptive{Of: "downstream smtp", Min: 2, Interval: 200 * time.Millisecond, Signal: policy.SignalCPU, Target: .7})
	read = calls("hkeys")
	await(t, "ten readings where one is named", func() bool { return calls("hkeys") >= read+enough })
}
