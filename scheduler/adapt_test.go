package scheduler_test

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
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
