package worker_test

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// foreignClock is a rig on a store whose clock differs from this machine's: one in memory, since a Redis takes the machine's.
func foreignClock(t *testing.T, off time.Duration) *rig {
	t.Helper()
	part := memory.New(memory.Config{Now: func() time.Time { return time.Now().Add(off) }})
	r := &rig{tb: t, store: store.Single(part, io.NopCloser(nil))}
	var err error
	if r.producer, err = producer.New(r.store, producer.Config{Policy: new(policy.Unlimited()), Timeout: 20 * time.Second}); err != nil {
		t.Fatal(err)
	}
	return r
}

// halfOpen has an operator open a breaker for a moment: the next call is a probe.
func (r *rig) halfOpen(downstream string) {
	r.tb.Helper()
	if _, err := r.store.ForceBreaker(r.tb.Context(), downstream, breaker.Open, time.Millisecond, store.Intervention{Reason: "look now"}); err != nil {
		r.tb.Fatal(err)
	}
}

// TestTheMachinesClockDoesNotSayHowLongABreakerIsOpen reads the state, and hears of the change, from a Redis whose clock is off.
func TestTheMachinesClockDoesNotSayHowLongABreakerIsOpen(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"ahead": 10 * time.Minute, "behind": -10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := foreignClock(t, off)
			guest, err := worker.NewGuest(r.store, worker.GuestConfig{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			var running sync.WaitGroup
			defer running.Wait()
			defer stop()
			force := func(downstream string) {
				if _, err := r.store.ForceBreaker(ctx, downstream, breaker.Open, time.Hour, store.Intervention{Reason: "maintenance"}); err != nil {
					t.Fatal(err)
				}
			}
			rest := func(downstream string) {
				t.Helper()
				r.await("word of "+downstream, func() bool { return guest.Fleet(downstream).State == breaker.Open })
				if rest := guest.Fleet(downstream).Rest; rest <= time.Hour-patience || rest > time.Hour {
					t.Errorf("%s is open for %s, want an hour", downstream, rest)
				}
			}
			force("read")
			running.Go(func() { _ = guest.Run(ctx) })
			rest("read")
			force("heard")
			rest("heard")
			if state, err := r.store.Breaker(ctx, "read"); err != nil || state.For <= time.Hour-patience || state.For > time.Hour {
				t.Errorf("got %s, %v", state.For, err)
			}
		})
	}
}

// TestAFailedProbesJobComesBackWithTheBreakerWhateverTheMachinesClockSays lets probes fail, and looks for how long Redis put the
// jobs away: as long as the breaker is open, not as long as the two clocks differ.
func TestAFailedProbesJobComesBackWithTheBreakerWhateverTheMachinesClockSays(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"ahead": 10 * time.Minute, "behind": -10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := foreignClock(t, off)
			const open = 20 * time.Second
			config := worker.Config{Concurrency: 1, Backoff: quick, Breaker: breaker.Config{FailureThreshold: 1, OpenBase: open, OpenMax: open, MaxProbes: 1}}
			a := r.runWithTimers(r.store, config, on("send", func(context.Context, worker.Job[[]byte]) error { return errDown }))
			first := to("pay", "first")
			first.MaxAttempts = 1
			r.enqueue(first)
			r.await("the breaker to open", func() bool {
				state, err := r.store.Breaker(t.Context(), "pay")
				return err == nil && state.State == breaker.Open
			})
			r.enqueue(to("pay", "probe"))
			// An operator ends the cooldown: what follows is a probe.
			r.halfOpen("pay")
			r.await("the probe to fail", func() bool { return a.said("probe") == "released(probe_failed)" })
			sight, err := r.store.Look(t.Context(), a.ends("probe")[0].Key)
			if err != nil {
				t.Fatal(err)
			}
			now, err := r.store.Time(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if wait := sight.At.Sub(now); wait <= 0 || wait > open+time.Second {
				t.Errorf("it is to come back in %s, the breaker is open for up to %s", wait, open)
			}
		})
	}
}
