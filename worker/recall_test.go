package worker_test

import (
	"context"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// endless answers each end of a job with an error, as a Redis does that has something else in a key of its, and counts the heartbeats since it was given up.
type endless struct{ refused, beats atomic.Int64 }

func (e *endless) DialHook(next redis.DialHook) redis.DialHook { return next }

func (e *endless) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (e *endless) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		script := ""
		if args := cmd.Args(); cmd.Name() == "fcall" {
			script = args[1].(string)
		}
		switch {
		case strings.HasSuffix(script, "_finish"):
			e.refused.Add(1)
			err := wrongTypeError{}
			cmd.SetErr(err)
			return err
		case strings.HasSuffix(script, "_heartbeat") && e.refused.Load() >= 5:
			e.beats.Add(1)
		}
		return next(ctx, cmd)
	}
}

type wrongTypeError struct{}

func (wrongTypeError) Error() string {
	return "WRONGTYPE Operation against a key holding the wrong kind of value"
}
func (wrongTypeError) RedisError() {}

// TestAJobThatRedisDoesNotEndRunsOnce: it stays with its worker until the lease ends, which learns again and again that it holds it.
func TestAJobThatRedisDoesNotEndRunsOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, hook := r.server.Client(t), &endless{}
	client.AddHook(hook)
	var runs atomic.Int64
	w := r.run(r.open(client), worker.Config{Concurrency: 2, Lease: time.Second}, on("send", func(context.Context, worker.Job[[]byte]) error {
		runs.Add(1)
		return nil
	}))
	r.enqueue(job("send", "s"))
	r.await("heartbeats after the end was given up, behind each of which the worker looks at what Redis says it holds", func() bool { return hook.beats.Load() >= 6 })
	if n := runs.Load(); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	w.stop()
}

// forgetful has the first end wait, loses the answer to the next, which has two, and refuses the one after that.
type forgetful struct {
	calls atomic.Int64
	first chan struct{}
}

func (f *forgetful) DialHook(next redis.DialHook) redis.DialHook { return next }

func (f *forgetful) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (f *forgetful) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) (err error) {
		args := cmd.Args()
		if cmd.Name() != "fcall" || !strings.HasSuffix(args[1].(string), "_finish") {
			return next(ctx, cmd)
		}
		switch f.calls.Add(1) {
		case 1:
			<-f.first
			return next(ctx, cmd)
		case 2:
			_ = next(ctx, cmd)
			err = io.ErrUnexpectedEOF
		case 3:
			err = wrongTypeError{}
		default:
			return next(ctx, cmd)
		}
		cmd.SetErr(err)
		return err
	}
}

// TestAnEndThatWasCarriedOutIsNotLost: the answer to a call that ended two jobs is lost, the next call is refused, and so each is sent alone, when both are gone.
func TestAnEndThatWasCarriedOutIsNotLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, hook := r.server.Client(t), &forgetful{first: make(chan struct{})}
	client.AddHook(hook)
	var mu sync.Mutex
	outcomes := map[string]worker.Outcome{}
	var ran atomic.Int64
	w := r.run(r.open(client), worker.Config{Concurrency: 3, Observer: worker.Observer{Finished: func(e worker.Event) {
		mu.Lock()
		defer mu.Unlock()
		outcomes[e.Key.ID] = e.Outcome
	}}}, on("send", func(_ context.Context, j worker.Job[[]byte]) error {
		if j.ID != "first" {
			r.await("the first end to be on its way", func() bool { return hook.calls.Load() == 1 })
		}
		ran.Add(1)
		return nil
	}))
	r.enqueue(job("send", "first"), job("send", "a"), job("send", "b"))
	r.await("the others to have ended", func() bool { return ran.Load() == 3 && w.EndsWaiting() == 2 })
	close(hook.first)
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
