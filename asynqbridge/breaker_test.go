package asynqbridge_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/asynqbridge"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

const pausedKey = "asynq:{mail}:paused"

// ward is an asynq server whose handler calls something that can be ill, behind a breaker.
type ward struct {
	*site
	ill  atomic.Bool
	runs atomic.Int64
	// fails is how many runs fail before the first that does not, which was at recovered (nanoseconds).
	fails, recovered atomic.Int64
	tasks            *asynq.Client
	// retried is the largest count of retries that a handler was told.
	retried atomic.Int64
}

func newWard(t *testing.T, newSite siteOf, config asynqbridge.BreakerConfig) *ward {
	t.Helper()
	w := &ward{site: newSite(t, daily(1))}
	w.tasks = asynq.NewClient(w.asynq)
	t.Cleanup(func() { _ = w.tasks.Close() })
	b := w.guard(config)
	mux := asynq.NewServeMux()
	mux.Use(b.Middleware)
	mux.HandleFunc("send", func(ctx context.Context, _ *asynq.Task) error {
		if n, _ := asynq.GetRetryCount(ctx); int64(n) > w.retried.Load() {
			w.retried.Store(int64(n))
		}
		if n := w.runs.Add(1); w.ill.Load() || n <= w.fails.Load() {
			return errors.New("downstream is ill")
		}
		w.recovered.CompareAndSwap(0, time.Now().UnixNano())
		return nil
	})
	w.serve(asynq.Config{
		Concurrency: 1, Queues: map[string]int{"mail": 1}, TaskCheckInterval: 500 * time.Millisecond, DelayedTaskCheckInterval: 200 * time.Millisecond,
		IsFailure: asynqbridge.IsFailure, RetryDelayFunc: asynqbridge.RetryDelay(func(int, error, *asynq.Task) time.Duration { return 100 * time.Millisecond }),
	}, mux)
	return w
}

func (w *ward) send(n int, options ...asynq.Option) {
	w.tb.Helper()
	for range n {
		_, err := w.tasks.Enqueue(asynq.NewTask("send", nil, asynq.Queue("mail")), options...)
		must(w.tb, err)
	}
}

func (w *ward) paused() string {
	return w.redis.Get(w.tb.Context(), pausedKey).Val()
}

// oversleeps measures until the test ends; the function tells by how much this process was woken too late so far, at most.
func oversleeps(t *testing.T) (most func() time.Duration) {
	t.Helper()
	var worst atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		const nap = 5 * time.Millisecond
		for ctx.Err() == nil {
			began := time.Now()
			<-time.After(nap)
			worst.Store(max(worst.Load(), int64(time.Since(began)-nap)))
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return func() time.Duration { return time.Duration(worst.Load()) }
}

// quick trips at the third failure, and closes after one probe.
func quick(cooldown time.Duration) breaker.Config {
	return breaker.Config{FailureThreshold: 3, SuccessThreshold: 1, OpenBase: cooldown, OpenMax: cooldown, Rand: func() float64 { return 0.999 }}
}

// patient brings back soon what a breaker held back, and nothing else.
func patient(n int, err error, task *asynq.Task) time.Duration {
	return asynqbridge.RetryDelay(func(int, error, *asynq.Task) time.Duration { return time.Hour })(n, err, task)
}

func TestAnOpenBreakerPausesItsQueueAndTheQueueResumesByItself(t *testing.T) {
	t.Parallel()
	pauseWhileOpen(t, onePartition)
}

func pauseWhileOpen(t *testing.T, newSite siteOf) {
	t.Helper()
	const cooldown = 2 * time.Second
	w := newWard(t, newSite, asynqbridge.BreakerConfig{Breaker: quick(cooldown)})
	const tripping = 3
	w.fails.Store(tripping)
	w.send(20)
	soon(t, "the pause", func() bool { return w.paused() != "" })
	asked := time.Now()
	ttl := w.redis.PTTL(t.Context(), pausedKey).Val()
	if !strings.HasPrefix(w.paused(), "headgate:") || ttl <= 0 || ttl > cooldown {
		t.Errorf("paused by %q for %s", w.paused(), ttl)
	}
	over := asked.Add(ttl)
	overslept := oversleeps(t)
	soon(t, "the probe", func() bool { return w.recovered.Load() > 0 })
	// Of the second a busy machine takes its part at each step: asynq's look at the queue, its pop, the word on the probe and
	// the handler.
	const steps = 4
	if late, most := time.Unix(0, w.recovered.Load()).Sub(over), time.Second+steps*overslept(); late < -50*time.Millisecond || late > most {
		t.Errorf("resumed %s after the TTL, want 0 to %s", late, most)
	}
	soon(t, "all tasks", func() bool {
		info, err := w.inspector().GetQueueInfo("mail")
		return err == nil && info.Size == 0
	})
	if held := w.paused(); held != "" {
		t.Errorf("still paused by %q", held)
	}
}

// TestAProbesEndResumesTheQueue: the pause for the time in which a probe is out does not last its second.
func TestAProbesEndResumesTheQueue(t *testing.T) {
	t.Parallel()
	resumeAfterProbe(t, onePartition)
}

func resumeAfterProbe(t *testing.T, newSite siteOf) {
	t.Helper()
	s := newSite(t, daily(1))
	b := s.guard(asynqbridge.BreakerConfig{Breaker: quick(100 * time.Millisecond), MaxPause: time.Minute})
	var runs atomic.Int64
	release := make(chan struct{})
	s.serve(asynq.Config{
		Concurrency: 2, Queues: map[string]int{"mail": 1}, TaskCheckInterval: 20 * time.Millisecond, DelayedTaskCheckInterval: 50 * time.Millisecond,
		IsFailure: asynqbridge.IsFailure, RetryDelayFunc: patient,
	}, b.Middleware(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if runs.Add(1) <= 3 {
			return errors.New("ill")
		}
		<-release
		return nil
	})))
	client := asynq.NewClient(s.asynq)
	t.Cleanup(func() { _ = client.Close() })
	send := func() {
		_, err := client.Enqueue(asynq.NewTask("send", nil, asynq.Queue("mail")))
		must(t, err)
	}
	for range 3 {
		send()
	}
	soon(t, "the failures", func() bool { return s.fleet("mail") != breaker.Closed })
	send()
	soon(t, "the probe", func() bool { return runs.Load() == 4 })
	send()                                                                                     // finds the probe out
	soon(t, "the pause", func() bool { return s.redis.Persist(t.Context(), pausedKey).Val() }) // It no longer ends by time.
	close(release)
	soon(t, "the end of the pause", func() bool { return s.redis.Exists(t.Context(), pausedKey).Val() == 0 })
}

// TestAnOperatorsPauseSurvives whatever the breaker does: opens, lets probes through, or closes. Another queue of the same
// downstream, which no operator has paused, shows that the breaker's word has come.
func TestAnOperatorsPauseSurvives(t *testing.T) {
	t.Parallel()
	s := newSite(t, 1, daily(1))
	s.guard(asynqbridge.BreakerConfig{Downstreams: map[string]string{"held": "smtp", "free": "smtp"}})
	client := asynq.NewClient(s.asynq)
	t.Cleanup(func() { _ = client.Close() })
	for _, queue := range []string{"held", "free"} {
		_, err := client.Enqueue(asynq.NewTask("send", nil, asynq.Queue(queue)))
		must(t, err)
	}
	must(t, s.inspector().PauseQueue("held"))
	const held, free = "asynq:{held}:paused", "asynq:{free}:paused"
	operators := s.redis.Get(t.Context(), held).Val()
	for range 3 {
		_, err := s.store.ForceBreaker(t.Context(), "smtp", breaker.Open, 0, store.Intervention{Reason: "test"})
		must(t, err)
		soon(t, "a pause", func() bool { return s.redis.Exists(t.Context(), free).Val() == 1 })
		_, err = s.store.ResetBreaker(t.Context(), "smtp", store.Intervention{Reason: "test"})
		must(t, err)
		soon(t, "the end of the pause", func() bool { return s.redis.Exists(t.Context(), free).Val() == 0 })
		if now, ttl := s.redis.Get(t.Context(), held).Val(), s.redis.TTL(t.Context(), held).Val(); now != operators || ttl != -1 {
			t.Fatalf("the pause is %q for %s, want the operator's %q without an end", now, ttl, operators)
		}
	}
}

// TestAHeldBackTaskLosesNoAttempt: with one that has none left, which asynq would archive; nor does a probe that fails.
func TestAHeldBackTaskLosesNoAttempt(t *testing.T) {
	t.Parallel()
	holdBack(t, onePartition)
}

func holdBack(t *testing.T, newSite siteOf) {
	t.Helper()
	w := newWard(t, newSite, asynqbridge.BreakerConfig{Breaker: quick(time.Second), MaxPause: 200 * time.Millisecond})
	w.ill.Store(true)
	w.send(3, asynq.MaxRetry(5))
	soon(t, "a probe to fail", func() bool { return w.runs.Load() == 4 })
	w.ill.Store(false)
	w.send(3, asynq.MaxRetry(1))
	w.send(1, asynq.MaxRetry(0))
	soon(t, "all tasks", func() bool {
		info, err := w.inspector().GetQueueInfo("mail")
		return err == nil && info.Size == 0 && info.ProcessedTotal >= 7
	})
	archived, err := w.inspector().ListArchivedTasks("mail")
	must(t, err)
	if len(archived) != 0 || w.runs.Load() != 11 || w.retried.Load() != 1 {
		t.Errorf("%d tasks archived, %d runs, up to %d retries, want 0, 11 and 1", len(archived), w.runs.Load(), w.retried.Load())
	}
}

func TestABadBreakerConfigSaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := asynqbridge.NewBreaker(asynq.RedisClientOpt{}, newSite(t, 1, daily(1)).store, asynqbridge.BreakerConfig{MaxPause: time.Millisecond, Breaker: breaker.Config{Buckets: 101}})
	if !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), "MaxPause") || !strings.Contains(err.Error(), "Buckets") {
		t.Errorf("%v", err)
	}
}
