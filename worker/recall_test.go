package worker_test

import (
	"context"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// TestJobsThatOnlyRedisKnowsOfRunWithinTheSlots gives a worker jobs that it was never told of, as one has whose
// master took their ends, or the answer to a read, and was replaced by a replica that had neither. No read of its own fails.
func TestJobsThatOnlyRedisKnowsOfRunWithinTheSlots(t *testing.T) {
	t.Parallel()
	const slots, lost = 2, 5
	r := newRig(t)
	hold := make(chan struct{})
	var running, most atomic.Int64
	held := func(ctx context.Context, _ worker.Job[[]byte]) error {
		running.Add(1)
		defer running.Add(-1)
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return ctx.Err()
	}
	send := func(ctx context.Context, _ worker.Job[[]byte]) error {
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		<-time.After(10 * time.Millisecond)
		running.Add(-1)
		return ctx.Err()
	}
	w := r.run(r.store, worker.Config{Concurrency: slots, Lease: 3 * time.Second}, func(w *worker.Worker) {
		on("hold", held)(w)
		on("send", send)(w)
	})
	r.enqueue(job("hold", "h0"), job("hold", "h1"))
	r.await("all slots to be taken", func() bool { return running.Load() == slots })
	name := r.registrations()[0]

	pool := store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}
	if _, err := r.store.Partitions()[0].Register(t.Context(), "other", pool, lost, time.Hour); err != nil {
		t.Fatal(err)
	}
	for i := range lost {
		r.enqueue(job("send", "s"+strconv.Itoa(i)))
	}
	leases, err := r.store.Partitions()[0].Read(t.Context(), "other", pool.ID(), lost, -1, false)
	if err != nil || len(leases) != lost {
		t.Fatalf("%d jobs for the other worker: %v", len(leases), err)
	}
	claim := &redis.XClaimArgs{Stream: redisstore.Keys(r.store).Ready(pool.ID()), Group: "g", Consumer: name}
	for i := range leases {
		claim.Messages = append(claim.Messages, leases[i].Token)
	}
	if err := r.client.XClaimJustID(t.Context(), claim).Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.store.Partitions()[0].Reclaim(t.Context(), "other"); err != nil {
		t.Fatal(err)
	}
	close(hold)
	c := r.idle()
	if c.Left["completed"] != slots+lost || most.Load() > slots {
		t.Errorf("%+v; %d ran at a time in %d slots", c, most.Load(), slots)
	}
	if names := r.registrations(); !slices.Equal(names, []string{name}) {
		t.Errorf("the worker registered anew: %q, it was %q", names, name)
	}
	w.stop()
	if err := w.wait(); err != nil {
		t.Error(err)
	}
}
