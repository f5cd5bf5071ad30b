package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// hearing is how late a handler may hear of its job's cancelling on a busy machine; on a quiet one it is under 1 s.
const hearing = 3 * time.Second

func (r *rig) cancel(id, reason string) (running bool) {
	r.tb.Helper()
	running, _, err := r.store.Cancel(r.tb.Context(), admission.Key{Tenant: "acme", ID: id}, store.Intervention{Reason: reason})
	if err != nil {
		r.tb.Fatal(err)
	}
	return running
}

func TestACancelledHandlerHearsOfItSoonAndItsJobIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	answers := map[string]func(ctx context.Context) error{
		"error": func(context.Context) error { return errDown },
		"cause": context.Cause,
		"nil":   func(context.Context) error { return nil },
		"retry": func(context.Context) error { return worker.RetryAfter(time.Minute, errDown) },
		"kill":  func(context.Context) error { return worker.Discard(errDown) },
		"panic": func(context.Context) error { panic("stop") },
	}
	ended, release := make(chan time.Time, len(answers)), make(chan struct{})
	// The lease is long, so that nothing but the pace for cancelling brings the word.
	a := r.runWithTimers(r.store, worker.Config{Lease: time.Minute, Concurrency: 10}, on("send", func(ctx context.Context, job worker.Job[[]byte]) error {
		if job.ID == "neighbour" {
			<-release
			return ctx.Err()
		}
		<-ctx.Done()
		ended <- time.Now()
		if cause := context.Cause(ctx); !errors.Is(cause, worker.ErrCancelled) || cause.Error() != "job cancelled: no longer wanted" {
			t.Errorf("the ctx of %s ended with %v", job.ID, cause)
		}
		return answers[job.ID](ctx)
	}))
	r.enqueue(job("send", "neighbour"))
	for id := range answers {
		j := job("send", id)
		j.MaxAttempts = 1
		r.enqueue(j)
	}
	r.await("all to start", func() bool { return len(a.starts()) == len(answers)+1 })
	var late []time.Duration
	for id := range answers {
		asked := time.Now()
		if !r.cancel(id, "no longer wanted") {
			t.Errorf("%s did not run", id)
		}
		late = append(late, (<-ended).Sub(asked))
	}
	slices.Sort(late)
	t.Logf("handlers heard of it after %s", late)
	if worst := late[len(late)-1]; worst > hearing {
		t.Errorf("a handler heard of it after %s", worst)
	}
	r.await("the events", func() bool { return len(a.ends("")) == len(answers) })
	for id := range answers {
		if got := a.said(id); got != "cancelled(no longer wanted)" {
			t.Errorf("%s: %s", id, got)
		}
	}
	close(release)
	if c := r.idle(); c.Left["cancelled"] != int64(len(answers)) || c.Left["completed"] != 1 || c.Dead != 0 {
		t.Errorf("got %+v", c)
	}
}

func TestACancelledCallIsNotCountedByTheBreaker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	config := worker.Config{Breaker: breaker.Config{FailureThreshold: 1, OpenBase: time.Minute}}
	a := r.runWithTimers(r.store, config, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
		<-ctx.Done()
		return errDown
	}))
	r.enqueue(to("pay", "a"))
	r.await("the start", func() bool { return len(a.starts()) == 1 })
	r.cancel("a", "")
	r.await("the event", func() bool { return a.said("a") == "cancelled(cancelled)" })
	if status := a.Breakers(); len(status) != 1 || status[0].Opened != 0 {
		t.Errorf("got %+v", status)
	}
}

func TestAnAnswerThatOvertakesTheWordOfCancellingEndsTheJobToo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, r.server.Addr())
	var deaf atomic.Bool
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if deaf.Load() && r.isHeartbeat(c) {
			return redistest.Action{Cut: redistest.CutBefore}
		}
		return redistest.Action{}
	})
	release := make(chan struct{})
	config := worker.Config{Lease: time.Minute, Backoff: quick}
	a := r.runWithTimers(r.open(proxy.Client(t)), config, on("send", func(_ context.Context, job worker.Job[[]byte]) error {
		<-release
		if job.ID == "done" {
			return nil
		}
		return errDown
	}))
	r.enqueue(job("send", "failed"), job("send", "done"))
	r.await("both to start", func() bool { return len(a.starts()) == 2 })
	deaf.Store(true)
	r.cancel("failed", "no longer wanted")
	r.cancel("done", "no longer wanted")
	close(release)
	c := r.idle()
	if c.Left["cancelled"] != 1 || c.Left["completed"] != 1 {
		t.Errorf("got %+v", c)
	}
	r.await("the events", func() bool { return a.said("failed") == "cancelled(cancelled)" && a.said("done") == "completed" })
}

// TestAWorkerThatHoldsNothingBeatsAsSeldomAsItsLeaseAllows: asking for cancelled jobs costs nothing where there are none.
func TestAWorkerThatHoldsNothingBeatsAsSeldomAsItsLeaseAllows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, r.server.Addr())
	var beats atomic.Int64
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if r.isHeartbeat(c) {
			beats.Add(1)
		}
		return redistest.Action{}
	})
	release := make(chan struct{})
	a := r.run(r.open(proxy.Client(t)), worker.Config{Lease: time.Minute}, on("send", func(context.Context, worker.Job[[]byte]) error {
		<-release
		return nil
	}))
	r.await("the registration", func() bool { return strings.Contains(fmt.Sprint(a.logs), "worker registered") })
	idle := time.NewTimer(1500 * time.Millisecond)
	defer idle.Stop()
	<-idle.C
	if n := beats.Load(); n != 0 {
		t.Errorf("an idle worker sent %d heartbeats", n)
	}
	r.enqueue(job("send", "a"))
	r.await("heartbeats", func() bool { return beats.Load() >= 3 })
	close(release)
	r.idle()
}
