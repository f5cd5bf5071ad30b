package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
)

// TestAReceiverThatAsksForLessGetsLess: within a second of its first X-Backpressure-Level: HIGH three `headgate worker --deliver` together post no more than a
// fifth of the downstream's rate; and when it says so no more, that comes back level by level.
func TestAReceiverThatAsksForLessGetsLess(t *testing.T) {
	t.Parallel()
	const rate, burst, jobs = 100, 5, 2000
	var calls atomic.Int64
	var pressed atomic.Bool
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		if pressed.Load() {
			w.Header().Set("X-Backpressure-Level", "HIGH")
		}
	}))
	t.Cleanup(receiver.Close)
	d := newDeployment(t)
	document := policy.Unlimited()
	document.Downstreams = map[string]policy.Downstream{"smtp": {Dispatch: new(admission.PerSecond(rate).WithBurst(burst))}}
	document.Adaptive = map[string]policy.Adaptive{"mail-rate": {Of: "downstream smtp", Moves: policy.MovesDispatch, Min: 1, Interval: 200 * time.Millisecond}}
	_, err := rollout.Put(t.Context(), d.store, document, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion})
	must(t, err)
	sends, err := producer.New(d.store, producer.Config{})
	must(t, err)
	all := make([]admission.Job, jobs)
	for i := range all {
		all[i] = admission.NewJob("acme", "q", "send", nil)
		all[i].ID, all[i].Downstream = fmt.Sprint("j", i), "smtp"
	}
	for some := range slices.Chunk(all, store.MaxBatchJobs) {
		_, err = sends.EnqueueBatch(t.Context(), some)
		must(t, err)
	}
	for range 3 {
		d.work("--deliver", receiver.URL, "--allow-private")
	}
	push := func() admission.PressureLevel {
		adaptations, err := d.store.Adaptations(t.Context())
		must(t, err)
		return adaptations[0].Push
	}
	during := func(span time.Duration) (n int64, took time.Duration) {
		before, from := calls.Load(), time.Now()
		time.Sleep(span) //nolint:forbidigo // what is measured is calls over a time
		return calls.Load() - before, time.Since(from)
	}
	quick := func(store.Census) bool {
		n, _ := during(500 * time.Millisecond)
		return n > rate/4
	}
	d.await("half of the rate at least", quick)
	pressed.Store(true)
	during(time.Second) // By then it is heeded.
	n, took := during(time.Second)
	if most := rate/5*took.Seconds() + burst; float64(n) > most || n == 0 {
		t.Errorf("%d calls in %s, want 1 to %g", n, took, most)
	}
	steps := []admission.PressureLevel{push()}
	pressed.Store(false)
	d.await("all of the rate", func(store.Census) bool {
		if now := push(); now != steps[len(steps)-1] {
			steps = append(steps, now)
		}
		return steps[len(steps)-1] == 0
	})
	if !slices.Equal(steps, []admission.PressureLevel{admission.PressureHigh, admission.PressureMedium, admission.PressureLow, 0}) {
		t.Errorf("it came back by %v", steps)
	}
	d.await("half of the rate again", quick)
}
