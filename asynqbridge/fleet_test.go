package asynqbridge_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/asynqbridge"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

var errIll = errors.New("downstream is ill")

// staff runs an asynq server of queue "mail" behind a Breaker of its own, as another process would.
func (s *site) staff(config asynqbridge.BreakerConfig, concurrency int, handler asynq.HandlerFunc) {
	s.tb.Helper()
	s.serve(asynq.Config{
		Concurrency: concurrency, Queues: map[string]int{"mail": 1}, TaskCheckInterval: 20 * time.Millisecond, DelayedTaskCheckInterval: 50 * time.Millisecond,
		IsFailure: asynqbridge.IsFailure, RetryDelayFunc: asynqbridge.RetryDelay(func(int, error, *asynq.Task) time.Duration { return 10 * time.Millisecond }),
	}, s.guard(config).Middleware(handler))
}

// send enqueues n tasks with asynq's own client.
func (s *site) send(n int) {
	s.tb.Helper()
	client := asynq.NewClient(s.asynq)
	defer func() { _ = client.Close() }()
	for range n {
		_, err := client.Enqueue(asynq.NewTask("send", nil, asynq.Queue("mail")))
		must(s.tb, err)
	}
}

// empty reports whether asynq has nothing left.
func (s *site) empty() bool {
	info, err := s.inspector().GetQueueInfo("mail")
	return err == nil && info.Size == 0
}

// native runs a worker of Headgate's own on queue "native", whose jobs call smtp, and returns what enqueues one.
func (s *site) native(rules breaker.Config, handler func() error) (enqueue func(id string)) {
	s.tb.Helper()
	w, err := worker.New(s.store, worker.Config{
		Queues: []store.QueueWeight{{Queue: "native"}}, Breaker: rules, Backoff: worker.ExponentialBackoff(time.Millisecond, 10*time.Millisecond),
	})
	must(s.tb, err)
	worker.RegisterAny(w, func(context.Context, worker.Job[[]byte]) error { return handler() })
	s.run(w.Run)
	p, err := producer.New(s.store, producer.Config{})
	must(s.tb, err)
	return func(id string) {
		job := admission.NewJob("acme", "native", "call", nil)
		job.ID, job.Downstream, job.MaxAttempts = id, "smtp", policy.DefaultMostAttempts
		_, err := p.Enqueue(s.tb.Context(), job)
		must(s.tb, err)
	}
}

// TestAWorkersFailuresPauseAsynq: a worker and a server that call one downstream have one breaker.
func TestAWorkersFailuresPauseAsynq(t *testing.T) {
	t.Parallel()
	failAtWorker(t, onePartition)
}

func failAtWorker(t *testing.T, newSite siteOf) {
	t.Helper()
	s := newSite(t, daily(1000))
	rules := quick(2 * time.Second)
	var ill atomic.Bool
	var tasks, jobs, early atomic.Int64
	ill.Store(true)
	s.staff(asynqbridge.BreakerConfig{Downstreams: map[string]string{"mail": "smtp"}, Breaker: rules}, 2, func(context.Context, *asynq.Task) error {
		tasks.Add(1)
		if ill.Load() {
			early.Add(1)
		}
		return nil
	})
	enqueue := s.native(rules, func() error {
		if ill.Load() {
			return errIll
		}
		jobs.Add(1)
		return nil
	})
	enqueue("one")
	soon(t, "the pause", func() bool { return s.redis.Get(t.Context(), pausedKey).Val() == "headgate:smtp" })
	s.send(5)
	ill.Store(false)
	soon(t, "all tasks after the cooldown", func() bool { return tasks.Load() == 5 && jobs.Load() == 1 })
	if early.Load() != 0 {
		t.Errorf("%d tasks ran while the breaker was open", early.Load())
	}
}

// TestAsynqsFailuresHoldAWorkersJobs is the other way round.
func TestAsynqsFailuresHoldAWorkersJobs(t *testing.T) {
	t.Parallel()
	failAtAsynq(t, onePartition)
}

func failAtAsynq(t *testing.T, newSite siteOf) {
	t.Helper()
	s := newSite(t, daily(1000))
	rules := quick(time.Minute)
	var jobs atomic.Int64
	s.staff(asynqbridge.BreakerConfig{Downstreams: map[string]string{"mail": "smtp"}, Breaker: rules}, 2, func(context.Context, *asynq.Task) error { return errIll })
	enqueue := s.native(rules, func() error { jobs.Add(1); return nil })
	s.send(3)
	soon(t, "the fleet's breaker to open", func() bool { return s.open("smtp") })
	enqueue("one")
	if census, err := s.store.Census(t.Context()); err != nil || census.Waiting != 1 || jobs.Load() != 0 {
		t.Errorf("%+v, %v, and %d jobs ran", census, err, jobs.Load())
	}
	_, err := s.store.ResetBreaker(t.Context(), "smtp", store.Intervention{Reason: "test"})
	must(t, err)
	soon(t, "the job", func() bool { return jobs.Load() == 1 })
}

// TestOneServerWithABrokenNetworkOpensNothing: the quorum is that of workers, and its tasks are left to the others.
func TestOneServerWithABrokenNetworkOpensNothing(t *testing.T) {
	t.Parallel()
	failAlone(t, onePartition)
}

func failAlone(t *testing.T, newSite siteOf) {
	t.Helper()
	s := newSite(t, daily(1000))
	rules := quick(time.Minute)
	rules.Window = 10 * time.Minute
	config := asynqbridge.BreakerConfig{Breaker: rules}
	var healthy, broken atomic.Int64
	gate := make(chan struct{}, 1)
	gate <- struct{}{}
	s.staff(config, 1, func(context.Context, *asynq.Task) error {
		<-gate
		defer func() { gate <- struct{}{} }()
		healthy.Add(1)
		return nil
	})
	s.send(1)
	soon(t, "a report of the healthy one", func() bool {
		state, err := s.store.Breaker(t.Context(), "mail")
		return err == nil && len(state.Callers) == 1
	})
	<-gate // The healthy server holds one task, so that the broken one gets the others.
	s.staff(config, 1, func(context.Context, *asynq.Task) error {
		broken.Add(1)
		return errIll
	})
	s.send(10)
	soon(t, "the failures", func() bool { return broken.Load() == 3 })
	soon(t, "a report of the broken one", func() bool {
		state, err := s.store.Breaker(t.Context(), "mail")
		return err == nil && len(state.Callers) == 2 && len(state.Voters) == 1
	})
	gate <- struct{}{}
	soon(t, "all tasks to be done by the healthy one", func() bool { return healthy.Load() == 11 && s.empty() })
	state, err := s.store.Breaker(t.Context(), "mail")
	must(t, err)
	if state.Trips != 0 || broken.Load() != 3 {
		t.Errorf("the breaker opened %d times, and %d calls failed, want 0 and 3", state.Trips, broken.Load())
	}
}

// TestOneProbeOverAllServers is law L11 for asynq's servers: three servers with four slots each, one probe.
func TestOneProbeOverAllServers(t *testing.T) {
	t.Parallel()
	probeOnce(t, onePartition)
}

func probeOnce(t *testing.T, newSite siteOf) {
	t.Helper()
	s := newSite(t, daily(1000))
	rules := quick(time.Second)
	rules.SuccessThreshold = 3
	var ill atomic.Bool
	ill.Store(true)
	var mu sync.Mutex
	running, most, probes := 0, 0, 0
	handler := func(ctx context.Context, _ *asynq.Task) error {
		if ill.Load() {
			return errIll
		}
		fleet, err := s.home(ctx, "mail")
		if err != nil {
			return err
		}
		mu.Lock()
		running++
		if fleet.State == breaker.HalfOpen {
			probes++
			most = max(most, running)
		}
		mu.Unlock()
		if fleet.State == breaker.HalfOpen {
			soon(t, "others to be held back", func() bool { return s.redis.Exists(ctx, pausedKey).Val() == 1 })
		}
		mu.Lock()
		running--
		mu.Unlock()
		return nil
	}
	for range 3 {
		s.staff(asynqbridge.BreakerConfig{Breaker: rules}, 4, handler)
	}
	s.send(20)
	soon(t, "the breaker to open", func() bool { return s.fleet("mail") == breaker.Open })
	ill.Store(false)
	soon(t, "all tasks", func() bool { return s.empty() })
	mu.Lock()
	defer mu.Unlock()
	if most != 1 || probes < 3 {
		t.Errorf("%d probes, up to %d at a time, want 3 or more, one at a time", probes, most)
	}
}
