package worker_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// TestAReceiverThatSaysWhenIsHeldByTheFleet: once it has refused a call and said to come again in an hour, three workers together begin no
// more calls than they had jobs in hand, for as long as the policy lets it; then it goes on by itself. One of which the policy says nothing
// has its job alone wait.
func TestAReceiverThatSaysWhenIsHeldByTheFleet(t *testing.T) {
	t.Parallel()
	const most, slots = 3 * time.Second, 5
	r := newRig(t)
	p := policy.Unlimited()
	p.Downstreams = map[string]policy.Downstream{"pay": {MaxRunning: 100, MaxRetryAfter: most}}
	if _, err := rollout.Put(t.Context(), r.store, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	follows, err := producer.New(r.store, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r.producer = follows
	var mu sync.Mutex
	var began []time.Time
	var refused bool
	handler := func(ctx context.Context, j worker.Job[[]byte]) error {
		if j.Downstream == "free" {
			return worker.Throttled(worker.RetryAfter(time.Hour, errors.New("429")))
		}
		mu.Lock()
		defer mu.Unlock()
		began = append(began, redistest.Now())
		if !refused && len(began) > 100 {
			refused = true
			return worker.Throttled(worker.Snooze(time.Hour))
		}
		return nil
	}
	r.runWithTimers(r.store, worker.Config{Concurrency: slots}, on("send", handler))
	for range 2 {
		r.run(r.store, worker.Config{Concurrency: slots}, on("send", handler))
	}
	r.enqueue(to("free", "free"))
	r.await("the free one", func() bool { return r.census().Later == 1 })
	ctx, cancel := context.WithCancel(t.Context())
	busy := make(chan struct{})
	go func() {
		defer close(busy)
		r.keepBusy(ctx, "send")
	}()
	defer func() { cancel(); <-busy }()
	var hold store.Hold
	r.await("it is held", func() bool {
		all, err := r.store.Holds(ctx)
		if err != nil || len(all) > 1 {
			t.Fatal(all, err)
		}
		if len(all) == 1 {
			hold = all[0]
		}
		return len(all) == 1
	})
	if hold.Name != store.DownstreamGate("pay") || hold.Author != "headgate" || hold.Reason != "it answered 429, Retry-After 1h" || hold.Until.Sub(hold.Since) != most {
		t.Errorf("%+v for %s", hold, hold.Until.Sub(hold.Since))
	}
	r.await("it goes on", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return began[len(began)-1].After(hold.Until)
	})
	mu.Lock()
	defer mu.Unlock()
	between := 0
	for _, at := range began { // Redis and the test have one clock.
		if at.After(hold.Since) && at.Before(hold.Until) {
			between++
		}
	}
	if between > 3*slots {
		t.Errorf("%d calls while it was held back", between)
	}
	page, err := r.store.Audit(ctx, store.AuditQuery{})
	if err != nil {
		t.Fatal(err)
	}
	pauses := 0
	for _, e := range page.Entries {
		if e.Action == store.AuditPause {
			pauses++
		}
	}
	if pauses != 1 {
		t.Errorf("the audit has %d pauses", pauses)
	}
	if gates, err := r.store.Gates(ctx); err != nil || len(gates) != 1 || gates[0].Limit != 100 {
		t.Errorf("after it: %+v, %v", gates, err)
	}
}

// TestAPauseOfAnOperatorsIsLeftAlone by what a receiver says, where it lasts longer.
func TestAPauseOfAnOperatorsIsLeftAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	gate, ada := store.DownstreamGate("pay"), store.Intervention{Author: "ada", Reason: "their maintenance"}
	for _, length := range []time.Duration{0, time.Hour} {
		if _, err := r.store.Pause(t.Context(), gate, length, ada); err != nil {
			t.Fatal(err)
		}
		did, err := r.store.PauseAtLeast(t.Context(), gate, time.Minute, store.RetryAfterBy(time.Minute))
		all, listed := r.store.Holds(t.Context())
		if did || err != nil || listed != nil || len(all) != 1 || all[0].Author != "ada" || (length == 0) != all[0].Until.IsZero() {
			t.Errorf("after %s: %v, %v; %+v, %v", length, did, err, all, listed)
		}
	}
	if did, err := r.store.PauseAtLeast(t.Context(), gate, 2*time.Hour, store.RetryAfterBy(2*time.Hour)); !did || err != nil {
		t.Errorf("one that lasts longer: %v, %v", did, err)
	}
	if _, err := r.store.PauseAtLeast(t.Context(), "b:pay", time.Minute, ada); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("a gate that nobody pauses: %v", err)
	}
}
