package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// isHeartbeat knows a heartbeat by its arguments: sha, 1, state, now, worker, lease. Schedulers' calls look alike but for the
// name.
func (r *rig) isHeartbeat(c redistest.Command) bool {
	return c.IsScript() && len(c.Args) == 6 &&
		r.client.HExists(context.WithoutCancel(r.tb.Context()), redisstore.Keys(r.store).Workers(), c.Args[4]).Val()
}

// lapse is how the ctx of a handler ended whose worker could not extend its lease.
type lapse struct {
	cause error
	// ended and halted are how much later than it should the ctx ended, and a timer of the test's own for the same time.
	ended, halted time.Duration
}

// awaitLapse waits in a handler for the end of its ctx, which should come a tenth of the lease before that ends.
func (r *rig) awaitLapse(ctx context.Context, lease time.Duration) lapse {
	r.tb.Helper()
	workers, err := r.store.Workers(context.WithoutCancel(ctx))
	var leaseEnd time.Time // that of the latest registration; one that was lost may still be there
	for i := range workers {
		if end := workers[i].LeaseEnd; end.After(leaseEnd) {
			leaseEnd = end
		}
	}
	if err != nil || leaseEnd.IsZero() {
		r.tb.Errorf("the lease is not known: %+v, %v", workers, err)
		return lapse{}
	}
	due, halted := leaseEnd.Add(-lease/10), make(chan time.Duration, 1) // Redis is on this machine.
	time.AfterFunc(due.Sub(redistest.Now()), func() { halted <- redistest.Now().Sub(due) })
	<-ctx.Done()
	ended := redistest.Now().Sub(due)
	return lapse{context.Cause(ctx), ended, <-halted}
}

// TestALostLeaseEndsHandlersBeforeAnybodyElseStarts keeps a worker from its heartbeats. A process that halts over the end of its
// lease is late with everything, which a timer beside the worker's shows.
func TestALostLeaseEndsHandlersBeforeAnybodyElseStarts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, r.server.Addr())
	var hears atomic.Bool
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if !hears.Load() && r.isHeartbeat(c) {
			return redistest.Action{Cut: redistest.CutBefore}
		}
		return redistest.Action{}
	})
	const lease = 5 * time.Second
	var runs atomic.Int64
	first, lapses := make(chan context.Context, 1), make(chan lapse, 1)
	handler := func(ctx context.Context, _ worker.Job[[]byte]) error {
		if runs.Add(1) > 1 {
			if (<-first).Err() == nil {
				t.Error("the job starts again while the ctx of its first handler lives")
			}
			return nil
		}
		first <- ctx
		lapses <- r.awaitLapse(ctx, lease)
		hears.Store(true)
		return ctx.Err()
	}
	a := r.runWithTimers(r.open(proxy.Client(t)), worker.Config{Lease: lease}, on("send", handler))
	r.await("the registration", func() bool { return len(r.registrations()) == 1 })
	name := r.registrations()[0]
	r.enqueue(job("send", "a"))
	got := <-lapses
	if !errors.Is(got.cause, admission.ErrLeaseLost) {
		t.Errorf("the ctx ended with %v", got.cause)
	}
	switch margin := lease / 10; {
	case got.ended < margin:
	case got.halted < margin/2:
		t.Errorf("the ctx ended %s after the lease, and this process did not halt", got.ended-margin)
	default:
		t.Logf("this process halted for %s", got.halted)
	}
	c := r.idle()
	if c.Left["completed"] != 1 || runs.Load() != 2 {
		t.Errorf("got %d runs, %+v", runs.Load(), c)
	}
	r.await("the events", func() bool { return len(a.ends("a")) == 2 })
	if got := a.said("a"); got != "lost(shutdown),completed" {
		t.Errorf("got %s", got)
	}
	if names := r.registrations(); len(names) != 1 || names[0] == name {
		t.Errorf("registered as %v, at first as %s", names, name)
	}
}

// leaseEnd returns the latest end of a lease by the clock of Redis, which is that of this machine.
func (r *rig) leaseEnd() time.Time {
	r.tb.Helper()
	workers, err := r.store.Workers(context.WithoutCancel(r.tb.Context()))
	if err != nil {
		r.tb.Error(err)
	}
	var end time.Time
	for i := range workers {
		if workers[i].LeaseEnd.After(end) {
			end = workers[i].LeaseEnd
		}
	}
	return end
}

// TestTheLeaseIsCountedFromTheSendingOfAHeartbeat: the last one that comes through is answered late, and no other follows. A handler's
// ctx ends before the lease does in Redis.
func TestTheLeaseIsCountedFromTheSendingOfAHeartbeat(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, r.server.Addr())
	const lease, late = 5 * time.Second, 750 * time.Millisecond // late enough for the margin, and not for the time-out of a call
	// Redis knows the script from here on: the first call is the first heartbeat, not an answer that the script is unknown.
	if _, err := r.store.Partitions()[0].Heartbeat(t.Context(), "nobody", lease, ""); !errors.Is(err, admission.ErrLeaseLost) {
		t.Fatal(err)
	}
	var beats atomic.Int64
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if !r.isHeartbeat(c) {
			return redistest.Action{}
		}
		if beats.Add(1) == 1 {
			return redistest.Action{Late: late}
		}
		return redistest.Action{Cut: redistest.CutBefore}
	})
	over, stopped := make(chan time.Duration, 1), make(chan time.Duration, 1)
	a := r.runWithTimers(r.open(proxy.Client(t)), worker.Config{Lease: lease}, on("send", func(ctx context.Context, job worker.Job[[]byte]) error {
		if job.Suspect {
			return nil
		}
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		last, longest := time.Now(), time.Duration(0) // of the times for which this process stood
		var end time.Time                             // before the worker registers anew
		for ctx.Err() == nil {
			end = r.leaseEnd() //nolint:contextcheck // the test's own
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
			longest, last = max(longest, time.Since(last)), time.Now()
		}
		over <- redistest.Now().Sub(end)
		stopped <- longest
		return ctx.Err()
	}))
	r.enqueue(job("send", "a"))
	if over, stopped := <-over, <-stopped; over > 0 && stopped < lease/20 {
		t.Errorf("the ctx ended %s after the lease, and this process stood for %s at most", over, stopped)
	}
	a.stop()
}

// TestHeartbeatsKeepAHandlersCtx for longer than the first lease.
func TestHeartbeatsKeepAHandlersCtx(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const lease = 2 * time.Second
	ended := make(chan time.Duration, 1)
	r.runWithTimers(r.store, worker.Config{Lease: lease}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
		first, last := r.leaseEnd(), time.Time{} //nolint:contextcheck // the test's own
		for ctx.Err() == nil && last.Before(first.Add(lease)) {
			last = r.leaseEnd() //nolint:contextcheck // the test's own
		}
		if ctx.Err() != nil {
			ended <- last.Sub(redistest.Now())
		}
		close(ended)
		return nil
	}))
	r.enqueue(job("send", "a"))
	if left, cut := <-ended; cut && left > lease/2 {
		t.Errorf("the ctx ended with %s of the lease left", left)
	}
}

// TestARefusedHeartbeatEndsTheHandlers at once: Redis says that the jobs are no longer this worker's, so no other heartbeat is sent
// under its name.
func TestARefusedHeartbeatEndsTheHandlers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, r.server.Addr())
	started := make(chan struct{}, 1)
	causes := make(chan error, 1)
	// With its one slot taken the worker does not read, so only a heartbeat can tell it.
	config := worker.Config{Lease: 10 * time.Minute, Concurrency: 1}
	r.runWithTimers(r.open(proxy.Client(t)), config, on("send", func(ctx context.Context, job worker.Job[[]byte]) error {
		if job.Suspect {
			return nil
		}
		started <- struct{}{}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	}))
	r.await("the registration", func() bool { return len(r.registrations()) == 1 })
	name := r.registrations()[0]
	r.enqueue(job("send", "a"))
	<-started
	var refused atomic.Int64
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if c.IsScript() && len(c.Args) == 6 && c.Args[4] == name {
			refused.Add(1)
		}
		return redistest.Action{}
	})
	for more := true; more; {
		var err error
		if more, err = r.store.Partitions()[0].Reclaim(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case cause := <-causes:
		if !errors.Is(cause, admission.ErrLeaseLost) {
			t.Errorf("the ctx ended with %v", cause)
		}
	case <-time.After(patience): // The guard would end it after nine minutes.
		t.Error("the handler goes on")
	}
	if n := refused.Load(); n > 2 {
		t.Errorf("%d heartbeats under a name that Redis does not know", n)
	}
}

func TestACompletionByAWorkerThatLostItsLeaseIsRefused(t *testing.T) {
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
	release, again := make(chan struct{}), make(chan struct{})
	var runs atomic.Int64
	a := r.runWithTimers(r.open(proxy.Client(t)), worker.Config{Lease: 2 * time.Second}, on("send", func(context.Context, worker.Job[[]byte]) error {
		if runs.Add(1) == 1 {
			deaf.Store(true)
			<-release // deaf to its ctx, too
			return nil
		}
		deaf.Store(false)
		close(again)
		<-release
		return nil
	}))
	r.enqueue(job("send", "a"))
	<-again
	close(release)
	c := r.idle()
	if c.Left["completed"] != 1 {
		t.Errorf("got %+v", c)
	}
	r.await("the events", func() bool { return len(a.ends("a")) == 2 })
	if got := a.said("a"); got != "lost,completed" && got != "completed,lost" {
		t.Errorf("got %s", got)
	}
}

func TestAWorkerOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{AppendFsync: "always"})
	r := newRigOn(t, server)
	var runs tally
	a := r.runWithTimers(r.store, worker.Config{Lease: time.Second}, on("send", func(_ context.Context, job worker.Job[[]byte]) error {
		runs.add(job.ID)
		return nil
	}))
	for i := range 20 {
		r.enqueue(job("send", fmt.Sprint("before-", i)))
	}
	r.await("the first to be done", func() bool { return r.census().Left["completed"] == 20 })
	server.Pause(t) // longer than the lease: everything has to begin anew
	r.await("the lease to be lost", func() bool { return strings.Contains(a.logs.String(), "lease lost") })
	server.Resume(t)
	for i := range 20 {
		r.enqueue(job("send", fmt.Sprint("between-", i)))
	}
	r.await("those between to be done", func() bool { return r.census().Left["completed"] == 40 })
	server.Restart(t)
	for i := range 20 {
		r.enqueue(job("send", fmt.Sprint("after-", i)))
	}
	if c := r.idle(); c.Left["completed"] != 60 {
		t.Errorf("got %+v", c)
	}
	// The pause lost a lease while nothing ran. A starved machine may lose another one, which the log tells; then jobs may run again.
	lost := strings.Count(a.logs.String(), "lease lost") - 1
	if bad := runs.repeated(60); bad != "" && lost == 0 {
		t.Errorf("ran: %s", bad)
	}
}

// TestEveryJobRunsOnceWhateverIsLost cuts the worker's connections before commands and before replies. As long as its
// lease holds, that costs time only: no job runs twice, none is left behind.
func TestEveryJobRunsOnceWhateverIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, r.server.Addr())
	store := r.open(proxy.Client(t))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	cuts := map[string]int{}
	var mu sync.Mutex
	proxy.Decide(func(c redistest.Command) redistest.Action {
		cut := redistest.CutNone
		switch dice.IntN(8) {
		case 0:
			cut = redistest.CutBefore
		case 1:
			cut = redistest.CutAfter
		}
		if cut != redistest.CutNone {
			mu.Lock()
			defer mu.Unlock()
			cuts[c.Name]++
		}
		return redistest.Action{Cut: cut}
	})
	var runs tally
	a := r.run(store, worker.Config{Concurrency: 16, Lease: time.Minute}, on("send", func(_ context.Context, job worker.Job[[]byte]) error {
		runs.add(job.ID)
		return nil
	}))
	const jobs = 1000
	for from := 0; from < jobs; from += 100 {
		batch := make([]admission.Job, 100)
		for i := range batch {
			batch[i] = job("send", fmt.Sprint("job-", from+i))
			if i%25 == 0 {
				batch[i].Payload = make([]byte, 8<<10) // under a key of its own
			}
		}
		r.enqueue(batch...)
	}
	c := r.idle()
	proxy.Decide(nil)
	mu.Lock()
	t.Logf("cut: %v", cuts)
	if cuts["XREADGROUP"] < 10 || cuts["FCALL"] < 10 {
		t.Errorf("too little was lost for a test: %v", cuts)
	}
	mu.Unlock()
	if c.Left["completed"] != jobs {
		t.Errorf("got %+v", c)
	}
	if bad := runs.repeated(jobs); bad != "" {
		t.Errorf("ran: %s", bad)
	}
	for _, e := range a.ends("") {
		if e.Outcome != worker.Completed {
			t.Errorf("job %s: %s", e.Key.ID, e.Outcome)
		}
	}
}

func TestCompletionsShareRoundTrips(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, r.server.Addr())
	store := r.open(proxy.Client(t))
	const jobs = 2000
	for from := 0; from < jobs; from += 500 {
		batch := make([]admission.Job, 500)
		for i := range batch {
			batch[i] = job("send", fmt.Sprint("job-", from+i))
		}
		r.enqueue(batch...)
	}
	var scripts atomic.Int64
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if c.IsScript() {
			scripts.Add(1)
			return redistest.Action{Delay: time.Millisecond}
		}
		return redistest.Action{}
	})
	r.run(store, worker.Config{Concurrency: 64}, on("send", nothing))
	if c := r.idle(); c.Left["completed"] != jobs {
		t.Errorf("got %+v", c)
	}
	if n := scripts.Load(); n > jobs/8 {
		t.Errorf("%d script calls for %d jobs", n, jobs)
	}
}

// TestAnOutageIsALineOfTheLog of the worker and one of its scheduler, whatever each of their goroutines finds; and one each when it is over.
func TestAnOutageIsALineOfTheLog(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{AppendFsync: "always"})
	r := newRigOn(t, server)
	a := r.runWithTimers(r.store, worker.Config{Lease: 2 * time.Second}, on("send", nothing))
	r.await("the registration", func() bool { return len(r.registrations()) == 1 })
	server.Kill(t)
	r.await("the lease to be lost", func() bool { return strings.Contains(a.logs.String(), "lease lost") })
	told := 0
	for _, line := range a.logs.lines(t, "redis does not answer") {
		if line["level"] == "error" {
			told++
		}
	}
	if told != 2 {
		t.Errorf("%d lines:\n%s", told, a.logs)
	}
	server.Restart(t)
	r.await("both to say that it is over", func() bool { return len(a.logs.lines(t, "redis answers again")) >= 2 })
}
