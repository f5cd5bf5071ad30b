package worker_test

import (
	"context"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
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

// TestAJobThatRedisDoesNotEndRunsOnce: it stays with its worker until the lease ends, which learns again and again that it holds it.
func TestAJobThatRedisDoesNotEndRunsOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client := r.server.Client(t)
	var runs, refused, registered, beats atomic.Int64 // heartbeats since the end was given up
	redistest.OnScript(client, func(script string, run func() error) error {
		if script == "finish" {
			refused.Add(1)
			return errWrongType
		}
		if script == "register" { // Anew where the machine halts for as long as the lease: then the job runs again.
			registered.Add(1)
		}
		if script == "heartbeat" && refused.Load() >= 5 {
			beats.Add(1)
		}
		return run()
	})
	w := r.run(r.open(client), worker.Config{Concurrency: 2, Lease: 2 * time.Second}, on("send", func(context.Context, worker.Job[[]byte]) error {
		runs.Add(1)
		return nil
	}))
	r.enqueue(job("send", "s"))
	r.await("heartbeats after the end was given up, behind each of which the worker looks at what Redis says it holds", func() bool { return beats.Load() >= 6 })
	if n := runs.Load(); n < 1 || n > registered.Load() {
		t.Errorf("it ran %d times, by %d registrations", n, registered.Load())
	}
	w.stop()
}

const errWrongType = redistest.ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value")

// TestAnEndThatWasCarriedOutIsNotLost: the answer to a call that ended two jobs is lost, the next call is refused, and so each is sent alone, when both are gone.
func TestAnEndThatWasCarriedOutIsNotLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, first := r.server.Client(t), make(chan struct{})
	var calls atomic.Int64
	redistest.OnScript(client, func(script string, run func() error) error {
		if script != "finish" {
			return run()
		}
		switch calls.Add(1) {
		case 1: // waits until both others have ended
			<-first
		case 2:
			_ = run()
			return io.ErrUnexpectedEOF
		case 3:
			return errWrongType
		}
		return run()
	})
	var mu sync.Mutex
	outcomes := map[string]worker.Outcome{}
	var ran atomic.Int64
	w := r.run(r.open(client), worker.Config{Concurrency: 3, Observer: worker.Observer{Finished: func(e worker.Event) {
		mu.Lock()
		defer mu.Unlock()
		outcomes[e.Key.ID] = e.Outcome
	}}}, on("send", func(_ context.Context, j worker.Job[[]byte]) error {
		if j.ID != "first" {
			r.await("the first end to be on its way", func() bool { return calls.Load() == 1 })
		}
		ran.Add(1)
		return nil
	}))
	r.enqueue(job("send", "first"), job("send", "a"), job("send", "b"))
	r.await("the others to have ended", func() bool { return ran.Load() == 3 && w.EndsWaiting() == 2 })
	close(first)
	r.await("all to be told", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(outcomes) == 3
	})
	for id, outcome := range outcomes {
		if outcome != worker.Completed {
			t.Errorf("%s is told as %s", id, outcome)
		}
	}
	w.stop()
}
