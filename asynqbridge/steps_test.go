package asynqbridge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/asynqbridge"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// migration is a deployment that goes from asynq to Headgate and back, with tasks under way at each step. It notes who
// ran each task.
type migration struct {
	*site
	mu  sync.Mutex
	ran map[string][]string
}

func (m *migration) note(who, task string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ran[task] = append(m.ran[task], who)
}

// perStep is how many tasks are sent in a step.
const perStep = 5

// enqueue sends them, named after the step.
func (m *migration) enqueue(client enqueuer, step string) {
	m.tb.Helper()
	ctx := asynqbridge.WithTenant(m.tb.Context(), "acme")
	for i := range perStep {
		name := fmt.Sprintf("%s/%d", step, i)
		_, err := client.EnqueueContext(ctx, asynq.NewTask("send", []byte(name), asynq.Queue("mail")), asynq.TaskID(name))
		must(m.tb, err)
	}
}

// asynqs is the handler of asynq's server.
func (m *migration) asynqs() asynq.Handler {
	return asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		m.note("asynq", string(task.Payload()))
		return nil
	})
}

// count returns how many tasks of a step have run.
func (m *migration) count(step string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for task := range m.ran {
		if strings.HasPrefix(task, step+"/") {
			n++
		}
	}
	return n
}

// done waits until the tasks of a step have run, each once and by who is to have run them.
func (m *migration) done(step, who string) {
	m.tb.Helper()
	soon(m.tb, "the tasks of step "+step, func() bool { return m.count(step) == perStep })
	m.once(step, who)
}

// once asks that each task of a step that has run has done so once, and by one of those.
func (m *migration) once(step string, who ...string) {
	m.tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	for task, by := range m.ran {
		if strings.HasPrefix(task, step+"/") && (len(by) != 1 || !slices.Contains(who, by[0])) {
			m.tb.Errorf("%s was run by %v, want %v, once", task, by, who)
		}
	}
}

// native runs a worker of Headgate's own until the returned function is called.
func (m *migration) native() (stop func()) {
	m.tb.Helper()
	w, err := worker.New(m.store, worker.Config{Queues: []store.QueueWeight{{Queue: "mail"}}})
	must(m.tb, err)
	worker.RegisterAny(w, func(_ context.Context, job worker.Job[[]byte]) error {
		m.note("headgate", string(job.Payload))
		return nil
	})
	ctx, cancel := context.WithCancel(m.tb.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Run(ctx); err != nil {
			m.tb.Error(err)
		}
	})
	return func() { cancel(); wg.Wait() }
}

// TestEachStepOfTheMigrationCanBeTakenBack walks the table of docs/ASYNQ.md down and up again. Nothing is lost and nothing
// runs twice, also of what waits while one program has stopped and the next has not begun.
func TestEachStepOfTheMigrationCanBeTakenBack(t *testing.T) {
	t.Parallel()
	m := &migration{site: newSite(t, 1, daily(10_000)), ran: map[string][]string{}}
	guard := m.guard(asynqbridge.BreakerConfig{})
	m.serve(asynq.Config{
		Concurrency: 2, Queues: map[string]int{"mail": 1}, TaskCheckInterval: 20 * time.Millisecond,
		IsFailure: asynqbridge.IsFailure, RetryDelayFunc: asynqbridge.RetryDelay(nil),
	}, guard.Middleware(m.asynqs())) // step 1
	alone := asynq.NewClient(m.asynq)
	t.Cleanup(func() { _ = alone.Close() })
	gate, fair := m.client(), m.fair()
	release := func() (stop func()) { return m.release(asynqbridge.ReleaserConfig{Queues: []string{"mail"}}) }

	m.enqueue(alone, "alone")
	m.enqueue(gate, "gate")
	m.enqueue(fair, "before-the-releaser")
	m.done("alone", "asynq")
	m.done("gate", "asynq")
	stopReleaser := release()
	m.done("before-the-releaser", "asynq")
	m.enqueue(fair, "fair")
	m.done("fair", "asynq")
	stopReleaser()
	m.enqueue(fair, "before-the-worker")
	stopWorker := m.native()
	m.done("before-the-worker", "headgate")
	m.enqueue(fair, "native")
	m.done("native", "headgate")

	stopWorker()
	m.enqueue(fair, "after-the-worker")
	stopReleaser = release()
	m.done("after-the-worker", "asynq")
	m.enqueue(fair, "last-of-fair")
	m.enqueue(gate, "gate-again")
	m.done("last-of-fair", "asynq")
	m.done("gate-again", "asynq")
	soon(t, "all jobs to have gone over", func() bool {
		census, err := m.store.Census(t.Context())
		return err == nil && census.Live == 0 && census.Conserved()
	})
	stopReleaser()
	m.enqueue(alone, "alone-again")
	m.done("alone-again", "asynq")
	if state := m.fleet("mail"); state != breaker.Closed {
		t.Errorf("the breaker is %s", state)
	}
}

// TestAReleaserThatStopsGivesBackWhatItHolds is the way from step 3 to 4 with tasks in the Releaser's hands, for which asynq's
// list has no room: a worker runs them, and nobody runs one twice.
func TestAReleaserThatStopsGivesBackWhatItHolds(t *testing.T) {
	t.Parallel()
	const high, slots = 2, 2
	m := &migration{site: newSite(t, 1, daily(10_000)), ran: map[string][]string{}}
	through, looks := m.watched()
	stop := through.release(asynqbridge.ReleaserConfig{Queues: []string{"mail"}, Low: 1, High: high, Concurrency: slots})
	m.enqueue(m.fair(), "held")
	soon(t, "its hands and asynq's list to be full", func() bool {
		census, err := m.store.Census(t.Context())
		return err == nil && census.Ready == slots && census.Left["completed"] == high
	})
	seen := looks.Load()
	soon(t, "it to wait with them", func() bool { return looks.Load() > seen+1 })
	stop()
	stopWorker := m.native()
	soon(t, "what asynq does not have", func() bool { return m.count("held") == perStep-high })
	stopWorker()
	m.serve(asynq.Config{Concurrency: 1, Queues: map[string]int{"mail": 1}, TaskCheckInterval: 20 * time.Millisecond}, m.asynqs())
	soon(t, "what asynq has", func() bool { return m.count("held") == perStep })
	census, err := m.store.Census(t.Context())
	must(t, err)
	if census.Live != 0 || census.Left["completed"] != perStep || !census.Conserved() {
		t.Errorf("%+v", census)
	}
	m.once("held", "asynq", "headgate")
}

// TestAServerWithoutTheMiddlewareGoesOn is the way back from step 1 while a breaker is open: the pause ends by itself, and a
// server that knows nothing of it runs what waits.
func TestAServerWithoutTheMiddlewareGoesOn(t *testing.T) {
	t.Parallel()
	m := &migration{site: newSite(t, 1, daily(10_000)), ran: map[string][]string{}}
	guard, err := asynqbridge.NewBreaker(m.asynq, m.store, asynqbridge.BreakerConfig{Breaker: quick(time.Minute), MaxPause: time.Second})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := guard.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	config := asynq.Config{
		Concurrency: 1, Queues: map[string]int{"mail": 1}, TaskCheckInterval: 20 * time.Millisecond, DelayedTaskCheckInterval: 50 * time.Millisecond,
		LogLevel: asynq.FatalLevel, IsFailure: asynqbridge.IsFailure, RetryDelayFunc: asynqbridge.RetryDelay(func(int, error, *asynq.Task) time.Duration { return 10 * time.Millisecond }),
	}
	guarded := asynq.NewServer(m.asynq, config)
	must(t, guarded.Start(guard.Middleware(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return errIll }))))
	alone := asynq.NewClient(m.asynq)
	t.Cleanup(func() { _ = alone.Close() })
	m.enqueue(alone, "waits")
	soon(t, "the pause", func() bool { return m.redis.Exists(t.Context(), pausedKey).Val() == 1 })
	guarded.Shutdown()
	cancel()
	running.Wait()
	must(t, guard.Close())
	m.serve(config, m.asynqs())
	m.done("waits", "asynq")
	if !m.open("mail") {
		t.Error("the breaker is not open: the pause did not end by itself")
	}
}

// TestPeriodicTasksPassTheBuckets: a tick of producer.NewPeriodic is a task of asynq's servers in step 3, once over any
// number of processes, and is refused like any other.
func TestPeriodicTasksPassTheBuckets(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, daily(2))
	var mu sync.Mutex
	ids := map[string]int{}
	s.serve(asynq.Config{Concurrency: 2, Queues: map[string]int{"mail": 1}, TaskCheckInterval: 20 * time.Millisecond},
		asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			id, _ := asynq.GetTaskID(ctx)
			mu.Lock()
			defer mu.Unlock()
			ids[task.Type()+" "+id]++
			return nil
		}))
	t.Cleanup(s.release(asynqbridge.ReleaserConfig{Queues: []string{"mail"}}))
	var refused atomic.Int64
	for range 2 {
		p, err := producer.New(s.store, producer.Config{Observer: producer.Observer{
			Decided: func(_ admission.Job, _ admission.Verdict, err error) {
				if errors.Is(err, admission.ErrLimited) {
					refused.Add(1)
				}
			},
		}})
		must(t, err)
		periodic, err := producer.NewPeriodic(p, producer.PeriodicConfig{Jobs: []producer.PeriodicJob{{
			Name: "digest", Spec: "@every 1s", Job: admission.NewJob("acme", "mail", "digest", nil),
		}}})
		must(t, err)
		s.run(periodic.Run)
	}
	soon(t, "two ticks, and one that is refused", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(ids) == 2 && refused.Load() > 0
	})
	mu.Lock()
	defer mu.Unlock()
	for id, n := range ids {
		if !strings.HasPrefix(id, "digest acme:digest@") || n != 1 {
			t.Errorf("%s ran %d times", id, n)
		}
	}
}
