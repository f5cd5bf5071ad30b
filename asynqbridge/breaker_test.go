package asynqbridge_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/asynqbridge"
	"github.com/headgate/headgate/breaker"
)

const pausedKey = "asynq:{mail}:paused"

// ward is an asynq server whose handler calls something that can be ill, behind a breaker.
type ward struct {
	*site
	ill   atomic.Bool
	runs  atomic.Int64
	tasks *asynq.Client
}

func newWard(t *testing.T, config asynqbridge.BreakerConfig) *ward {
	t.Helper()
	w := &ward{site: newSite(t, daily(1))}
	b, err := asynqbridge.NewBreaker(w.asynq, config)
	must(t, err)
	w.tasks = asynq.NewClient(w.asynq)
	t.Cleanup(func() { _, _ = w.tasks.Close(), b.Close() })
	mux := asynq.NewServeMux()
	mux.Use(b.Middleware)
	mux.HandleFunc("send", func(context.Context, *asynq.Task) error {
		w.runs.Add(1)
		if w.ill.Load() {
			return errors.New("downstream is ill")
		}
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

// quick trips at the third failure, and closes after one probe.
func quick(cooldown time.Duration) breaker.Config {
	return breaker.Config{FailureThreshold: 3, SuccessThreshold: 1, OpenBase: cooldown, OpenMax: cooldown, Rand: func() float64 { return 0.999 }}
}

func TestAnOpenBreakerPausesItsQueueAndTheQueueResumesByItself(t *testing.T) {
	t.Parallel()
	const cooldown = 2 * time.Second
	w := newWard(t, asynqbridge.BreakerConfig{Breaker: quick(cooldown)})
	w.ill.Store(true)
	w.send(20)
	soon(t, "the pause", func() bool { return w.paused() != "" })
	ttl := w.redis.PTTL(t.Context(), pausedKey).Val()
	if !strings.HasPrefix(w.paused(), "headgate:") || ttl <= 0 || ttl > cooldown {
		t.Errorf("paused by %q for %s", w.paused(), ttl)
	}
	over := time.Now().Add(ttl)
	if ran := w.runs.Load(); ran != 3 {
		t.Errorf("%d tasks ran, want the 3 that tripped", ran)
	}
	w.ill.Store(false)
	soon(t, "the probe", func() bool { return w.runs.Load() > 3 })
	if late := time.Since(over); late < -50*time.Millisecond || late > time.Second {
		t.Errorf("resumed %s after the TTL, want 0 to 1 s", late)
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
	s := newSite(t, daily(1))
	b, err := asynqbridge.NewBreaker(s.asynq, asynqbridge.BreakerConfig{Breaker: quick(100 * time.Millisecond), MaxPause: time.Minute})
	must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	var runs atomic.Int64
	release := make(chan struct{})
	s.serve(asynq.Config{
		Concurrency: 2, Queues: map[string]int{"mail": 1}, TaskCheckInterval: 20 * time.Millisecond, IsFailure: asynqbridge.IsFailure,
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
	soon(t, "the failures", func() bool { return runs.Load() == 3 })
	send()
	soon(t, "the probe", func() bool { return runs.Load() == 4 })
	send() // finds the probe out
	soon(t, "the pause", func() bool { return s.redis.Exists(t.Context(), pausedKey).Val() == 1 })
	close(release)
	began := time.Now()
	soon(t, "the end of the pause", func() bool { return s.redis.Exists(t.Context(), pausedKey).Val() == 0 })
	if took := time.Since(began); took > 500*time.Millisecond {
		t.Errorf("the queue was paused for another %s", took)
	}
}

// TestAnOperatorsPauseSurvives whatever the breaker does: opens, resumes after probes, or opens anew.
func TestAnOperatorsPauseSurvives(t *testing.T) {
	t.Parallel()
	w := newWard(t, asynqbridge.BreakerConfig{Breaker: quick(time.Second)})
	release := make(chan struct{})
	w.ill.Store(true)
	b, err := asynqbridge.NewBreaker(w.asynq, asynqbridge.BreakerConfig{Breaker: quick(time.Second)})
	must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	// A second server has a task in hand while the operator pauses; its failures open the breaker then.
	inHand := make(chan struct{}, 8)
	w.serve(asynq.Config{Concurrency: 4, Queues: map[string]int{"held": 1}, TaskCheckInterval: 50 * time.Millisecond}, b.Middleware(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		inHand <- struct{}{}
		<-release
		return errors.New("ill")
	})))
	for range 4 {
		_, err := w.tasks.Enqueue(asynq.NewTask("send", nil, asynq.Queue("held"), asynq.MaxRetry(1)))
		must(t, err)
	}
	for range 4 {
		<-inHand
	}
	must(t, w.inspector().PauseQueue("held"))
	operators := w.redis.Get(t.Context(), "asynq:{held}:paused").Val()
	close(release)
	soon(t, "the failures", func() bool {
		info, err := w.inspector().GetQueueInfo("held")
		return err == nil && info.Retry == 4
	})
	<-time.After(1500 * time.Millisecond) // beyond the cooldown
	if held, ttl := w.redis.Get(t.Context(), "asynq:{held}:paused").Val(), w.redis.TTL(t.Context(), "asynq:{held}:paused").Val(); held != operators || ttl != -1 {
		t.Errorf("the pause is %q for %s, want the operator's %q without an end", held, ttl, operators)
	}
}

// TestAHeldBackTaskLosesNoAttempt: with one that has none left, which asynq would archive.
func TestAHeldBackTaskLosesNoAttempt(t *testing.T) {
	t.Parallel()
	w := newWard(t, asynqbridge.BreakerConfig{Breaker: quick(2 * time.Second), MaxPause: 200 * time.Millisecond})
	w.ill.Store(true)
	w.send(3, asynq.MaxRetry(1))
	soon(t, "the pause", func() bool { return w.paused() != "" })
	w.ill.Store(false)
	w.send(3, asynq.MaxRetry(1))
	w.send(1, asynq.MaxRetry(0))
	soon(t, "all tasks", func() bool {
		info, err := w.inspector().GetQueueInfo("mail")
		return err == nil && info.Size == 0 && info.ProcessedTotal >= 7
	})
	archived, err := w.inspector().ListArchivedTasks("mail")
	must(t, err)
	if len(archived) != 0 || w.runs.Load() != 10 {
		t.Errorf("%d tasks archived, %d runs, want 0 and 10", len(archived), w.runs.Load())
	}
}

func TestABadBreakerConfigSaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	_, err := asynqbridge.NewBreaker(asynq.RedisClientOpt{}, asynqbridge.BreakerConfig{MaxPause: time.Millisecond, Breaker: breaker.Config{Buckets: 101}})
	if !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), "MaxPause") || !strings.Contains(err.Error(), "Buckets") {
		t.Errorf("%v", err)
	}
}
