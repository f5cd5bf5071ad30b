package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

func TestADrainLetsRunningHandlersFinish(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	a := r.run(r.store, worker.Config{Concurrency: 2}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}))
	r.enqueue(job("send", "a"), job("send", "b"), job("send", "c"))
	r.await("two to start", func() bool { return len(a.starts()) == 2 })
	a.stop()
	r.await("the drain", func() bool { return strings.Contains(a.logs.String(), "worker drains") })
	close(release)
	if err := a.wait(); err != nil {
		t.Error(err)
	}
	if c := r.census(); c.Left["completed"] != 2 || c.Waiting != 1 || c.Ready != 0 {
		t.Errorf("got %+v", c)
	}
	if names := r.registrations(); len(names) != 0 {
		t.Errorf("still registered: %v", names)
	}
}

func TestADrainHandsBackUnharmedAndAtOnceWhatDoesNotFinish(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	causes := make(chan error, 3)
	config := worker.Config{Concurrency: 3, DrainTimeout: 100 * time.Millisecond}
	a := r.runWithTimers(r.store, config, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return errors.New("cut short")
	}))
	for i := range 3 {
		j := job("send", fmt.Sprint("job-", i))
		j.MaxAttempts = 1
		r.enqueue(j)
	}
	r.await("all to start", func() bool { return len(a.starts()) == 3 })
	began := time.Now()
	a.stop()
	if err := a.wait(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 10*time.Second { // Jobs that are not handed back stay for a lease.
		t.Errorf("the drain took %s", took)
	}
	for range 3 {
		if cause := <-causes; !errors.Is(cause, worker.ErrDraining) {
			t.Errorf("a handler's ctx ended with %v", cause)
		}
	}
	if c := r.census(); c.Waiting != 3 || c.Later != 0 || c.Ready != 0 || c.Dead != 0 {
		t.Errorf("got %+v", c)
	}
	for i := range 3 {
		if got := a.said(fmt.Sprint("job-", i)); got != "released(shutdown)" {
			t.Errorf("job %d: %s", i, got)
		}
	}
	leases := r.takeByHand(3)
	for _, lease := range leases {
		if lease.Attempts != 0 || lease.Suspect {
			t.Errorf("job %s came back with %d attempts burnt, a suspect: %t", lease.Job.ID, lease.Attempts, lease.Suspect)
		}
	}
}

// takeByHand reads jobs with a registration of its own.
func (r *rig) takeByHand(count int) []store.Lease {
	r.tb.Helper()
	pool := store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}
	if _, err := r.store.Partitions()[0].Register(r.tb.Context(), "by hand", pool, count, time.Minute); err != nil {
		r.tb.Fatal(err)
	}
	leases, err := r.store.Partitions()[0].Read(r.tb.Context(), "by hand", pool.ID(), count, time.Second, false)
	if err != nil || len(leases) != count {
		r.tb.Fatalf("read %d of %d jobs: %v", len(leases), count, err)
	}
	return leases
}

func TestAHandlerThatIgnoresItsCtxDoesNotHoldUpTheDrain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) }) // Runs before the worker is waited for again.
	config := worker.Config{DrainTimeout: 50 * time.Millisecond}
	w, err := worker.New(r.store, withQueue(config))
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan struct{})
	worker.Register(w, "send", func(context.Context, worker.Job[[]byte]) error {
		close(started)
		<-release
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.enqueue(job("send", "stubborn"))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	<-started
	cancel()
	err = <-done
	if err == nil || err.Error() != "run worker: 1 handlers ignored the end of their ctx and were left running" {
		t.Errorf("got %v", err)
	}
	if c := r.census(); c.Waiting != 1 || c.Ready != 0 {
		t.Errorf("got %+v", c)
	}
}

// TestADrainingWorkerGivesUpItsSlots at once, so that others get what waits.
func TestADrainingWorkerGivesUpItsSlots(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	a := r.run(r.store, worker.Config{Concurrency: 8}, on("send", func(context.Context, worker.Job[[]byte]) error {
		<-release
		return nil
	}))
	defer close(release)
	r.enqueue(job("send", "a"))
	r.await("it to start", func() bool { return len(a.starts()) == 1 })
	a.stop()
	r.await("the slots to be those of its running jobs", func() bool {
		workers, err := r.store.Workers(t.Context())
		return err == nil && len(workers) == 1 && workers[0].Slots == 1
	})
}

// TestResultsTravelInBoundedCalls: what waits for one call goes with the next, up to a bound in bytes.
func TestResultsTravelInBoundedCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, r.server.Addr())
	const jobs = 3 * store.MaxBatchBytes / worker.MaxResult
	var largest, calls atomic.Int64
	proxy.Decide(func(c redistest.Command) redistest.Action {
		bytes := int64(0)
		for _, arg := range c.Args {
			bytes += int64(len(arg))
		}
		if bytes < worker.MaxResult || c.Name == "FUNCTION" { // the library, by whoever comes first
			return redistest.Action{}
		}
		largest.Store(max(largest.Load(), bytes))
		calls.Add(1)
		return redistest.Action{Delay: 50 * time.Millisecond} // Others are done meanwhile.
	})
	all := make(chan struct{})
	var done atomic.Int64
	r.run(r.open(proxy.Client(t)), worker.Config{Concurrency: jobs}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
		if done.Add(1) == jobs {
			close(all)
		}
		<-all // They end together.
		return worker.SetResult(ctx, make([]byte, worker.MaxResult), time.Minute)
	}))
	for i := range jobs {
		r.enqueue(job("send", fmt.Sprint("job-", i)))
	}
	if c := r.idle(); c.Left["completed"] != int64(jobs) {
		t.Errorf("got %+v", c)
	}
	if most := int64(store.MaxBatchBytes + 64<<10); largest.Load() > most {
		t.Errorf("a call of %d bytes, want up to %d", largest.Load(), most)
	}
	if calls.Load() >= int64(jobs) {
		t.Errorf("%d calls for %d jobs", calls.Load(), jobs)
	}
}

// TestAWorkerThatIsToldToStopWhileRedisIsAwayEnds: Redis never comes back, and a handler does not mind its ctx or has an end to
// tell that nobody takes.
func TestAWorkerThatIsToldToStopWhileRedisIsAwayEnds(t *testing.T) {
	t.Parallel()
	stubborn := "run worker: 1 handlers ignored the end of their ctx and were left running"
	for _, c := range []struct {
		name    string
		away    func(*redistest.Server, testing.TB)
		ignores bool
		want    string
	}{
		{"killed, under a handler that ignores its ctx", (*redistest.Server).Kill, true, stubborn},
		{"hanging, under a handler that ignores its ctx", (*redistest.Server).Pause, true, stubborn},
		{"killed, before a job is done", (*redistest.Server).Kill, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Options{})
			r := newRigOn(t, server)
			w, err := worker.New(r.store, withQueue(worker.Config{Lease: 2 * time.Second, DrainTimeout: 50 * time.Millisecond}))
			if err != nil {
				t.Fatal(err)
			}
			started, release := make(chan struct{}), make(chan struct{})
			defer close(release)
			worker.Register(w, "send", func(ctx context.Context, _ worker.Job[[]byte]) error {
				close(started)
				if c.ignores {
					<-release
				}
				<-ctx.Done()
				return nil
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			r.enqueue(job("send", "a"))
			done := make(chan error, 1)
			go func() { done <- w.Run(ctx) }()
			<-started
			c.away(server, t)
			cancel()
			select {
			case err := <-done:
				if err != nil && err.Error() != c.want || err == nil && c.want != "" {
					t.Errorf("got %v", err)
				}
			case <-time.After(patience):
				t.Error("the worker waits for Redis")
				server.Restart(t)
				<-done //nolint:errcheck // It has failed already.
			}
		})
	}
}

func withQueue(c worker.Config) worker.Config {
	c.Queues = []store.QueueWeight{{Queue: "mail"}}
	return c
}

func TestAnIdleWorkerDrainsInAMomentWhenItIsTheLastOfItsPool(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// One that waits for its blocked read takes a second, each time.
	took := time.Hour
	for end := time.Now().Add(patience); took > 500*time.Millisecond && time.Now().Before(end); {
		a := r.run(r.store, worker.Config{}, on("send", nothing))
		r.await("the registration", func() bool { return len(r.registrations()) == 1 })
		began := time.Now()
		a.stop()
		if err := a.wait(); err != nil {
			t.Error(err)
		}
		took = time.Since(began)
	}
	if took > 500*time.Millisecond {
		t.Errorf("the drain took %s at best", took)
	}
}

func TestAJobReadDuringADrainGoesToAnotherWorker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	hold := func(_ context.Context, job worker.Job[[]byte]) error {
		if job.ID == "held" {
			<-release
		}
		return nil
	}
	a := r.run(r.store, worker.Config{Concurrency: 2}, on("send", hold))
	r.enqueue(job("send", "held"))
	r.await("it to start", func() bool { return len(a.starts()) == 1 })
	b := r.run(r.store, worker.Config{Concurrency: 1}, on("send", nothing))
	r.await("both to be registered", func() bool { return len(r.registrations()) == 2 })
	a.stop() // Its read is blocked for up to a second more, and may be served.
	for i := range 20 {
		r.enqueue(job("send", fmt.Sprint("job-", i)))
	}
	r.await("the others to be done", func() bool { return r.census().Left["completed"] == 20 })
	close(release)
	if err := a.wait(); err != nil {
		t.Error(err)
	}
	if n := len(a.starts()); n != 1 {
		t.Errorf("the draining worker started %d jobs", n)
	}
	r.idle()
	if n := len(b.starts()); n != 20 {
		t.Errorf("the other worker started %d jobs", n)
	}
}

func TestRunReportsWhatRegisterFound(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w, err := worker.New(r.store, withQueue(worker.Config{}))
	if err != nil {
		t.Fatal(err)
	}
	worker.Register(w, "send", nothing)
	worker.Register(w, "send", nothing)
	worker.Register(w, "se nd", nothing)
	err = w.Run(t.Context())
	want := "run worker: register handler: invalid type \"send\": allowed is one handler a type\n" +
		"register handler: invalid type \"se nd\": allowed is 1-128 bytes of [A-Za-z0-9._:@/-]"
	if !errors.Is(err, admission.ErrInvalid) || err.Error() != want {
		t.Errorf("got %v", err)
	}
	if err := w.Run(t.Context()); err == nil || err.Error() != "run worker: it ran before" {
		t.Errorf("got %v", err)
	}
}
