package worker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/guard"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// gauge is a sampler whose memory a test sets, in bytes. It counts how often it was asked.
type gauge struct{ memory, asked atomic.Int64 }

func (g *gauge) Sample(time.Time) (guard.Sample, error) {
	g.asked.Add(1)
	return guard.Sample{Memory: g.memory.Load()}, nil
}

const megabyte = 1 << 20

// guarded is a config with a limit of 100 MB that is measured by a gauge.
func (g *gauge) guarded(config worker.Config) worker.Config {
	config.Guard = worker.GuardConfig{MaxMemory: 100 * megabyte, Interval: 100 * time.Millisecond, Delays: worker.GuardDelays{Violation: 100 * time.Millisecond}}
	return config.MeasuredBy(g)
}

// slots returns how many the registered workers have together in Redis.
func (r *rig) slots(partition int) int {
	r.tb.Helper()
	all, err := r.client.HGetAll(r.tb.Context(), redisstore.KeysOf(r.store.Partitions()[partition]).Workers()).Result()
	if err != nil {
		r.tb.Fatal(err)
	}
	sum := 0
	for _, line := range all {
		var n int
		if _, err := fmt.Sscanf(strings.Split(line, "|")[1], "%d", &n); err != nil {
			r.tb.Fatal(err)
		}
		sum += n
	}
	return sum
}

// TestAGuardKeepsNewJobsAwayAndDropsNone: over its limit a worker takes nothing, gives its free slots up, and extends the lease of what it
// runs; others get what comes. Below the limit it takes jobs again. Every job runs once, with its first attempt.
func TestAGuardKeepsNewJobsAwayAndDropsNone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	memory, done, runs := &gauge{}, make(chan struct{}), &tally{}
	counted := countedCalls{r.store, &countedPartition{Partition: r.store.Partitions()[0]}}
	a := r.run(counted, memory.guarded(worker.Config{Concurrency: 4}), func(w *worker.Worker) {
		worker.Register(w, "hold", func(ctx context.Context, job worker.Job[[]byte]) error {
			runs.add(job.ID)
			select {
			case <-done:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		worker.Register(w, "send", func(_ context.Context, job worker.Job[[]byte]) error {
			runs.add(job.ID)
			return nil
		})
	})
	r.enqueue(job("hold", "held-1"), job("hold", "held-2"))
	r.await("two to start", func() bool { return len(a.starts()) == 2 })
	memory.memory.Store(85 * megabyte)
	r.await("the warning", func() bool { return strings.Contains(a.logs.String(), "approaches limit") })
	memory.memory.Store(110 * megabyte)
	r.await("the slots to be those of its running jobs", func() bool { return r.slots(0) == 2 })
	for i := range 20 {
		r.enqueue(job("send", fmt.Sprint("job-", i)))
	}
	beats := counted.one.beats.Load()
	r.await("its lease to be extended", func() bool { return counted.one.beats.Load() >= beats+3 })
	if c := r.census(); len(a.starts()) != 2 || c.Waiting != 20 {
		t.Errorf("%d have started, and of 20 wait %d", len(a.starts()), c.Waiting)
	}

	b := r.run(r.store, worker.Config{Concurrency: 4}, on("send", func(_ context.Context, job worker.Job[[]byte]) error {
		runs.add(job.ID)
		return nil
	}))
	r.await("the other to run them", func() bool { return len(b.ends("")) == 20 })
	b.stop()
	if err := b.wait(); err != nil {
		t.Error(err)
	}
	close(done)
	r.await("those that were held to end", func() bool { return len(a.ends("")) == 2 })
	r.await("no slot to be left", func() bool { return r.slots(0) == 0 })

	memory.memory.Store(97 * megabyte)
	asked := memory.asked.Load()
	r.await("a look", func() bool { return memory.asked.Load() >= asked+2 })
	if strings.Contains(a.logs.String(), "taken again") {
		t.Error("jobs are taken just below the limit")
	}
	memory.memory.Store(10 * megabyte)
	r.await("the slots to be there again", func() bool { return r.slots(0) == 4 })
	for i := range 8 {
		r.enqueue(job("send", fmt.Sprint("later-", i)))
	}
	r.await("all to end", func() bool { return len(a.ends(""))+len(b.ends("")) == 30 })
	if c := r.idle(); c.Left["completed"] != 30 || c.Dead != 0 {
		t.Errorf("got %+v", c)
	}
	if bad := runs.repeated(30); bad != "" {
		t.Error(bad)
	}
	for _, e := range append(a.ends(""), b.ends("")...) {
		if e.Attempt != 1 || e.Outcome != worker.Completed {
			t.Errorf("%s: attempt %d, %s", e.Key.ID, e.Attempt, e.Outcome)
		}
	}
	if names := r.registrations(); len(names) != 1 {
		t.Errorf("registered are %v: a lease was lost", names)
	}
	for _, line := range []string{"approaches limit 100.0MB", "memory usage 110.0MB exceeds limit 100.0MB", "no new work is taken", "is below limit", "new work is taken again"} {
		if got := strings.Count(a.logs.String(), line); got != 1 {
			t.Errorf("%q is said %d times", line, got)
		}
	}
	if strings.Contains(a.logs.String(), "lease lost") {
		t.Error("a lease was lost")
	}
}

// TestAGuardOfPartitions shuts the slots of all of them, and gives them back.
func TestAGuardOfPartitions(t *testing.T) {
	t.Parallel()
	r := newRigOfParts(t, 2)
	memory := &gauge{}
	a := r.run(r.store, memory.guarded(worker.Config{Concurrency: 4}), on("send", nothing))
	slots := func() int { return r.slots(0) + r.slots(1) }
	r.await("its slots", func() bool { return slots() == 4 })
	memory.memory.Store(110 * megabyte)
	r.await("no slot", func() bool { return slots() == 0 })
	for i := range 40 {
		j := admission.NewJob(fmt.Sprint("tenant-", i), "mail", "send", nil)
		j.ID = fmt.Sprint("job-", i)
		r.enqueue(j)
	}
	asked := memory.asked.Load()
	r.await("ten looks", func() bool { return memory.asked.Load() >= asked+10 })
	if len(a.starts()) != 0 {
		t.Errorf("%d started", len(a.starts()))
	}
	memory.memory.Store(10 * megabyte)
	r.await("all to end", func() bool { return len(a.ends("")) == 40 })
	if c := r.idle(); c.Left["completed"] != 40 {
		t.Errorf("got %+v", c)
	}
}

// countedCalls counts the reads and heartbeats of a store of one partition.
type countedCalls struct {
	store.Deployment

	one *countedPartition
}

type countedPartition struct {
	store.Partition

	reads, beats atomic.Int64
}

func (c countedCalls) Partitions() []store.Partition { return []store.Partition{c.one} }

func (c *countedPartition) Read(ctx context.Context, worker, pool string, count int, block time.Duration, history bool) ([]store.Lease, error) {
	c.reads.Add(1)
	return c.Partition.Read(ctx, worker, pool, count, block, history)
}

func (c *countedPartition) Heartbeat(ctx context.Context, worker string, lease time.Duration, load string) (store.Beat, error) {
	c.beats.Add(1)
	return c.Partition.Heartbeat(ctx, worker, lease, load)
}

// TestAThrottledWorkerReadsNothing, so it does not burn the processors that it lacks; and what the read brings that was under way goes
// back unharmed. A second registration, of nobody, has the room that jobs get into the stream by.
func TestAThrottledWorkerReadsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	pool := store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}
	partition := r.store.Partitions()[0]
	if _, err := partition.Register(t.Context(), "by hand", pool, 10, time.Minute); err != nil {
		t.Fatal(err)
	}
	counted := countedCalls{r.store, &countedPartition{Partition: partition}}
	memory := &gauge{}
	a := r.run(counted, memory.guarded(worker.Config{Concurrency: 4}), on("send", nothing))
	for i := 0; ; i++ {
		if i == 20 {
			t.Fatal("no read was under way as the slots were shut, twenty times")
		}
		memory.memory.Store(0)
		r.await("its slots", func() bool { return r.slots(0) == 14 })
		reads := counted.one.reads.Load()
		r.await("a read", func() bool { return counted.one.reads.Load() > reads })
		memory.memory.Store(110 * megabyte)
		r.await("its slots to go", func() bool { return r.slots(0) == 10 })
		id := fmt.Sprint("job-", i)
		r.enqueue(job("send", id))
		leases, err := partition.Read(t.Context(), "by hand", pool.ID(), 1, 3*time.Second, false)
		if err != nil || len(leases) != 1 || leases[0].Attempts != 0 || leases[0].Suspect || leases[0].Job.ID != id {
			t.Fatalf("%+v, %v", leases, err)
		}
		if _, _, err = partition.Finish(t.Context(), pool.ID(), "by hand", []store.Finish{leases[0].Finish(store.Complete)}); err != nil {
			t.Fatal(err)
		}
		if got := a.said(id); got == "released(guard)" {
			break
		} else if got != "" {
			t.Fatalf("job %s: %s", id, got)
		}
	}
	reads, asked := counted.one.reads.Load(), memory.asked.Load()
	r.await("20 looks", func() bool { return memory.asked.Load() >= asked+20 })
	if got := counted.one.reads.Load() - reads; got > 0 || len(a.starts()) != 0 {
		t.Errorf("%d reads while nothing may be taken, %d jobs started", got, len(a.starts()))
	}
}

// TestRequestsOfAMinute: the jobs of a minute may be as many as that, and what one read brings.
func TestRequestsOfAMinute(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	config := worker.Config{Concurrency: 2, Guard: worker.GuardConfig{MaxRequestsPerMinute: 10, Interval: time.Minute}}
	a := r.run(r.store, config.MeasuredBy(&gauge{}), on("send", nothing))
	for i := range 30 {
		r.enqueue(job("send", fmt.Sprint("job-", i)))
	}
	r.await("the guard", func() bool { return strings.Contains(a.logs.String(), "no new work is taken") })
	r.await("no slot", func() bool { return r.slots(0) == 0 })
	if started := len(a.starts()); started < 10 || started > 13 {
		t.Errorf("%d started", started)
	}
}

func TestABadGuardIsToldAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := worker.New(r.store, withQueue(worker.Config{Guard: worker.GuardConfig{MaxMemory: -5, WarnAt: 3}}))
	if field, ok := errors.AsType[*admission.FieldError](err); !ok || field.Field != "MaxMemory" || !strings.Contains(err.Error(), "invalid WarnAt 3: allowed is 0.1 to 1") {
		t.Error(err)
	}
}

// TestAGuardThatComesAndGoes: while the guards of two workers shut and open them at random, every job runs, once, with its first attempt, and
// no lease is lost.
func TestAGuardThatComesAndGoes(t *testing.T) {
	t.Parallel()
	const jobs, looks = 400, 30
	r := newRigOfParts(t, 2)
	runs := &tally{}
	var memories [2]*gauge
	var workers [2]*running
	for i := range workers {
		memories[i] = &gauge{}
		workers[i] = r.runWithTimers(r.store, memories[i].guarded(worker.Config{Concurrency: 8}), on("send", func(_ context.Context, job worker.Job[[]byte]) error {
			runs.add(job.ID)
			return nil
		}))
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // A test's dice.
	for i := range looks {
		for _, m := range memories {
			m.memory.Store([]int64{10, 110}[random.IntN(2)] * megabyte)
		}
		var some []admission.Job
		for n := range jobs / looks {
			j := admission.NewJob(fmt.Sprint("tenant-", random.IntN(20)), "mail", "send", nil)
			j.ID, j.MaxAttempts = fmt.Sprint("job-", i, "-", n), 1
			some = append(some, j)
		}
		r.enqueue(some...)
		asked := memories[0].asked.Load()
		r.await("a look", func() bool { return memories[0].asked.Load() > asked })
	}
	for _, m := range memories {
		m.memory.Store(10 * megabyte)
	}
	const all = jobs / looks * looks
	if c := r.idle(); c.Left["completed"] != all || c.Dead != 0 {
		t.Errorf("got %+v", c)
	}
	if bad := runs.repeated(all); bad != "" {
		t.Error(bad)
	}
	for _, w := range workers {
		for _, e := range w.ends("") {
			if e.Attempt != 1 || e.Outcome == worker.Lost || e.Outcome == worker.Dead {
				t.Errorf("%s: attempt %d, %s", e.Key.ID, e.Attempt, e.Outcome)
			}
		}
		if strings.Contains(w.logs.String(), "lease lost") || !strings.Contains(w.logs.String(), "no new work is taken") {
			t.Error("a lease was lost, or the guard was never at its limit")
		}
	}
}

// TestAWorkerReadsSlowerAtAWarning: with a delay it waits before each read, at least nine tenths of it, and takes what there is after it.
func TestAWorkerReadsSlowerAtAWarning(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	memory := &gauge{}
	config := memory.guarded(worker.Config{Concurrency: 1})
	config.Guard.Delays.Warn = 200 * time.Millisecond
	memory.memory.Store(85 * megabyte)
	a := r.run(r.store, config, on("send", func(context.Context, worker.Job[[]byte]) error { return nil }))
	r.await("the warning", func() bool { return strings.Contains(a.logs.String(), "approaches limit") })
	r.enqueue(job("send", "first"))
	r.await("the first, whose read may have begun before", func() bool { return len(a.ends("")) == 1 })
	began := time.Now()
	r.enqueue(job("send", "a"), job("send", "b"), job("send", "c"))
	r.await("all to end", func() bool { return len(a.ends("")) == 4 })
	if took := time.Since(began); took < 2*180*time.Millisecond {
		t.Errorf("three jobs, each read by itself, took %s", took)
	}
}
