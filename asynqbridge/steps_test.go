package asynqbridge_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/asynqbridge"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/producer"
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

// enqueue sends five tasks, named after a step.
func (m *migration) enqueue(client enqueuer, step string) {
	m.tb.Helper()
	ctx := asynqbridge.WithTenant(m.tb.Context(), "acme")
	for i := range 5 {
		name := fmt.Sprintf("%s/%d", step, i)
		_, err := client.EnqueueContext(ctx, asynq.NewTask("send", []byte(name), asynq.Queue("mail")), asynq.TaskID(name))
		must(m.tb, err)
	}
}

// done waits until the tasks of a step have run, each once and by who is to have run them.
func (m *migration) done(step, who string) {
	m.tb.Helper()
	soon(m.tb, "the tasks of step "+step, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		n := 0
		for task := range m.ran {
			if strings.HasPrefix(task, step+"/") {
				n++
			}
		}
		return n == 5
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	for task, by := range m.ran {
		if strings.HasPrefix(task, step+"/") && (len(by) != 1 || by[0] != who) {
			m.tb.Errorf("%s was run by %v, want %s, once", task, by, who)
		}
	}
}

// native runs a worker of Headgate's own until the returned function is called.
func (m *migration) native() (stop func()) {
	m.tb.Helper()
	w, err := worker.New(m.store, worker.Config{Queues: []lua.QueueWeight{{Queue: "mail"}}})
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
	}, guard.Middleware(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error { // step 1
		m.note("asynq", string(task.Payload()))
		return nil
	})))
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
			Decided: func(_ headgate.Job, _ headgate.Verdict, err error) {
				if errors.Is(err, headgate.ErrLimited) {
					refused.Add(1)
				}
			},
		}})
		must(t, err)
		periodic, err := producer.NewPeriodic(p, producer.PeriodicConfig{Jobs: []producer.PeriodicJob{{
			Name: "digest", Spec: "@every 1s", Job: headgate.NewJob("acme", "mail", "digest", nil),
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
