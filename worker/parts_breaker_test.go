package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// TestABreakerIsOneForAllPartitions lets a downstream fail for a tenant of one partition. The breakers of all partitions open
// (law L10), together let one probe through at a time (law L11), and close when it is well again.
func TestABreakerIsOneForAllPartitions(t *testing.T) {
	t.Parallel()
	const partitions = 3
	r := newRigOfParts(t, partitions)
	tenants := make([]string, partitions) // one of each
	for i := 0; tenants[0] == "" || tenants[1] == "" || tenants[2] == ""; i++ {
		name := fmt.Sprintf("tenant-%d", i)
		tenants[r.store.PartitionOf(name)] = name
	}
	enqueue := func(tenant string, n int) {
		jobs := make([]admission.Job, n)
		for i := range jobs {
			jobs[i] = to("pay", fmt.Sprintf("%s-%d-%d", tenant, n, i))
			jobs[i].Tenant, jobs[i].MaxAttempts = tenant, 20
		}
		r.enqueue(jobs...)
	}
	var healed, watched atomic.Bool
	var probes, at, most atomic.Int64
	config := worker.Config{
		Concurrency: 3 * partitions, Backoff: func(int) time.Duration { return 20 * time.Millisecond },
		Breaker: breaker.Config{
			FailureThreshold: 3, OpenBase: 300 * time.Millisecond, OpenMax: 300 * time.Millisecond, SuccessThreshold: 3, MaxProbes: 1,
		},
	}
	a := r.runWithTimers(r.store, config, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
		if healed.Load() {
			return nil
		}
		if !watched.Load() {
			return errDown
		}
		probes.Add(1)
		n := at.Add(1)
		defer at.Add(-1)
		for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
		}
		timer := time.NewTimer(100 * time.Millisecond) // Time for the other partitions to let one through, too.
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return errDown
	}))
	enqueue(tenants[0], 12)
	r.await("the breakers of all partitions to open", func() bool { return r.everywhere(t.Context(), breaker.Open) })
	r.await("calls under way to end", func() bool { return r.census().Ready == 0 })
	watched.Store(true)
	for _, tenant := range tenants {
		enqueue(tenant, 20)
	}
	r.await("probes", func() bool { return probes.Load() >= 6 })
	if most.Load() != 1 {
		t.Errorf("%d probes at a time, the fleet may have one", most.Load())
	}
	healed.Store(true)
	c := r.idle()
	if c.Left["completed"] != 12+20*partitions || c.Dead != 0 {
		t.Errorf("got %+v", c)
	}
	r.await("the breakers to close", func() bool { return r.everywhere(t.Context(), breaker.Closed) })
	if status := a.Breakers(); len(status) != 1 || status[0].Downstream != "pay" || status[0].Opened < 2 {
		t.Errorf("got %+v", status)
	}
}

// everywhere reports whether the breakers of pay are in a state in all partitions.
func (r *rig) everywhere(ctx context.Context, state breaker.State) bool {
	for _, part := range r.store.Partitions() {
		b, err := part.Breaker(ctx, "pay")
		if errors.Is(err, store.ErrNoBreaker) && state == breaker.Closed {
			continue
		}
		if err != nil || b.State != state {
			return false
		}
	}
	return true
}

// TestAGuestIsOfAllPartitions: what its calls come to opens the breakers of all partitions, and closes them; its probes are among
// those that the fleet may have at a time.
func TestAGuestIsOfAllPartitions(t *testing.T) {
	t.Parallel()
	r := newRigOfParts(t, 3)
	guest, err := worker.NewGuest(r.store, worker.GuestConfig{Breaker: breaker.Config{
		FailureThreshold: 3, OpenBase: 300 * time.Millisecond, OpenMax: 300 * time.Millisecond, SuccessThreshold: 1, MaxProbes: 1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = guest.Run(ctx) })
	defer running.Wait()
	defer cancel()
	begin := func() (call *worker.GuestCall, ok bool) {
		call, _, ok = guest.Begin(ctx, "pay")
		return call, ok
	}
	r.await("the breakers of all partitions to open", func() bool {
		if call, ok := begin(); ok {
			call.Failed(ctx)
		}
		return r.everywhere(ctx, breaker.Open)
	})
	// Before it has heard, its own breaker gives probes, which no other partition knows of.
	r.await("the guest to hear of it", func() bool { return guest.Fleet("pay").State != breaker.Closed })
	var probe *worker.GuestCall
	r.await("a probe", func() (ok bool) {
		probe, ok = begin()
		return ok
	})
	lease := func() bool {
		ok, err := r.store.LeaseRight(ctx, "pay", "another's", 1, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if lease() {
		t.Error("another probe may run beside the guest's")
	}
	probe.Succeeded(ctx)
	if !lease() {
		t.Error("no other probe may run after the guest's")
	}
	if err := r.store.ReturnRight(ctx, "pay", "another's"); err != nil {
		t.Fatal(err)
	}
	r.await("the breakers of all partitions to close", func() bool {
		if call, ok := begin(); ok {
			call.Succeeded(ctx)
		}
		return r.everywhere(ctx, breaker.Closed)
	})
}
