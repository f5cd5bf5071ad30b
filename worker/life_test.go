package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// connect opens a store with connections of its own, which is closed at the end of the test at the latest.
func (r *rig) connect() store.Deployment {
	r.tb.Helper()
	s, err := redisstore.Connect(r.tb.Context(), r.server.URL(), redisstore.Config{Prefix: r.prefix})
	if err != nil {
		r.tb.Fatal(err)
	}
	r.tb.Cleanup(func() { _ = s.Close() })
	return s
}

// ends waits for goroutines that are to end.
func (r *rig) ends(tb testing.TB, running *sync.WaitGroup) {
	tb.Helper()
	done := make(chan struct{})
	go func() {
		running.Wait()
		close(done)
	}()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		tb.Fatalf("it has not ended within %s", patience)
	}
}

// TestAWorkerEndsWhateverItWasDoing: its ctx ends at any moment from before its start on, its store is closed under it or not, its
// Run is called twice at a time. One call runs, the other is an error, both return, and no goroutine is left (TestMain).
func TestAWorkerEndsWhateverItWasDoing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 20 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			s := r.connect()
			var jobs []admission.Job
			for n := range 4 {
				jobs = append(jobs, job("send", strings.Repeat("x", i+1)+string(rune('a'+n))))
			}
			r.enqueue(jobs...)
			w, err := worker.New(s, worker.Config{Queues: []store.QueueWeight{{Queue: "mail"}}, Concurrency: 2, Backoff: quick, DrainTimeout: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			worker.Register(w, "send", func(ctx context.Context, _ worker.Job[[]byte]) error {
				timer := time.NewTimer(20 * time.Millisecond)
				defer timer.Stop()
				select {
				case <-timer.C:
				case <-ctx.Done():
				}
				return ctx.Err()
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*10*time.Millisecond)
			defer cancel()
			if i%2 == 1 {
				defer time.AfterFunc(time.Duration(i)*5*time.Millisecond, func() { _ = s.Close() }).Stop()
			}
			var running sync.WaitGroup
			ended := make(chan error, 2)
			for range 2 {
				running.Go(func() { ended <- w.Run(ctx) })
			}
			r.ends(t, &running)
			if err := errors.Join(<-ended, <-ended); err == nil || err.Error() != "run worker: it ran before" {
				t.Errorf("they end with %v", err)
			}
			if err := w.Run(t.Context()); err == nil {
				t.Error("it ran once more")
			}
			_ = w.Breakers()
			_ = w.SchedulerStats()
		})
	}
}

// TestAGuestEndsWhateverItWasDoing, also where its store is closed under it.
func TestAGuestEndsWhateverItWasDoing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for i := range 10 {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			store := r.connect()
			guest, err := worker.NewGuest(store, worker.GuestConfig{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Millisecond)
			defer cancel()
			if i%2 == 1 {
				defer time.AfterFunc(time.Duration(i)*10*time.Millisecond, func() { _ = store.Close() }).Stop()
			}
			var running sync.WaitGroup
			running.Go(func() {
				if err := guest.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			for ctx.Err() == nil {
				if call, _, ok := guest.Begin(ctx, "ship"); ok {
					call.Failed(ctx)
					call.Succeeded(ctx)
				}
			}
			r.ends(t, &running)
		})
	}
}

// TestAProducerOfAClosedStoreSaysSo at once, and runs until its ctx ends.
func TestAProducerOfAClosedStoreSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	store := r.connect()
	p, err := producer.New(store, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() {
			if err := p.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	for range 4 {
		running.Go(func() {
			for range 20 {
				_, err := p.Enqueue(t.Context(), job("send", ""))
				if err != nil && !errors.Is(err, admission.ErrUnavailable) && !errors.Is(err, admission.ErrOutcomeUnknown) {
					t.Error(err)
				}
			}
		})
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
	_ = store.Close()
	r.ends(t, &running)
}
