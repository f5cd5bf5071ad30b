package worker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// TestAWorkerOfAnotherLayoutEnds lets what a migration leaves appear under workers that it has not seen: they end by themselves, so
// that whoever supervises them starts them anew.
func TestAWorkerOfAnotherLayoutEnds(t *testing.T) {
	t.Parallel()
	for layout, want := range map[string]error{"3": admission.ErrPartitions, ">redis://there:6379": admission.ErrMoved} {
		for _, partitions := range []int{1, 2} {
			t.Run(fmt.Sprintf("of %d, now %s", partitions, layout), func(t *testing.T) {
				t.Parallel()
				r := newRigOfParts(t, partitions)
				w, err := worker.New(r.store, worker.Config{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}, Lease: 300 * time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				worker.Register(w, "work", func(context.Context, worker.Job[[]byte]) error { return nil })
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("it did not end in a minute"))
				defer cancel()
				ended := make(chan error, 1)
				go func() { ended <- w.Run(ctx) }()
				r.await("the worker to be registered", func() bool { return len(r.registrations()) > 0 })
				for _, part := range r.store.Partitions() {
					if err := r.client.HSet(ctx, redisstore.KeysOf(part).State(), "partitions", layout).Err(); err != nil {
						t.Fatal(err)
					}
				}
				if err := <-ended; !errors.Is(err, want) {
					t.Errorf("it ended with %v", err)
				}
			})
		}
	}
}

// TestAGuestOfAnotherLayoutEnds is the same of a process that has breakers only.
func TestAGuestOfAnotherLayoutEnds(t *testing.T) {
	t.Parallel()
	r := newRigOfParts(t, 2)
	g, err := worker.NewGuest(r.store, worker.GuestConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errors.New("it did not end in a minute"))
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	for _, part := range r.store.Partitions() {
		if err := r.client.HSet(ctx, redisstore.KeysOf(part).State(), "partitions", "3").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; !errors.Is(err, admission.ErrPartitions) {
		t.Errorf("it ended with %v", err)
	}
}
