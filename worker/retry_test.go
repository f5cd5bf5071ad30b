package worker_test

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

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

func TestRetryAfterBurnsAnAttemptAndSaysWhen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var mu sync.Mutex
	var runs []time.Time
	config := worker.Config{Backoff: func(int) time.Duration { return time.Hour }}
	a := r.runWithTimers(r.store, config, on("send", func(_ context.Context, job worker.Job[[]byte]) error {
		mu.Lock()
		defer mu.Unlock()
		runs = append(runs, time.Now())
		return fmt.Errorf("attempt %d: %w", job.Attempt, worker.RetryAfter(time.Second, errDown))
	}))
	j := job("send", "a")
	j.MaxAttempts = 2
	r.enqueue(j)
	if c := r.idle(); c.Died["max_attempts"] != 1 {
		t.Errorf("got %+v", c)
	}
	r.await("the events", func() bool { return a.said("a") == "retried,dead" })
	if got := r.why(); got != "max_attempts|attempt 2: retry after 1s: connection refused" {
		t.Errorf("got %s", got)
	}
	mu.Lock()
	defer mu.Unlock()
	if between := runs[1].Sub(runs[0]); between < time.Second || between > 10*time.Second {
		t.Errorf("%s between the runs", between)
	}
}

// TestALastAttemptIsADeathAlsoWhenTheAnswerIsLost: sent again, Redis only says that the job is gone.
func TestALastAttemptIsADeathAlsoWhenTheAnswerIsLost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, r.server.Addr())
	var cut atomic.Int64
	proxy.Decide(func(c redistest.Command) redistest.Action {
		if c.IsScript() && slices.Contains(c.Args, string(store.Retry)) && cut.Add(1)%2 == 1 {
			return redistest.Action{Cut: redistest.CutAfter}
		}
		return redistest.Action{}
	})
	a := r.runWithTimers(r.open(proxy.Client(t)), worker.Config{Backoff: quick, Lease: patience}, on("send", func(context.Context, worker.Job[[]byte]) error { return errDown }))
	j := job("send", "a")
	j.MaxAttempts = 2
	r.enqueue(j)
	if c := r.idle(); c.Died["max_attempts"] != 1 {
		t.Errorf("got %+v", c)
	}
	r.await("the events", func() bool { return len(a.ends("a")) == 2 })
	if got := a.said("a"); got != "retried,dead" || cut.Load() < 3 {
		t.Errorf("got %s after %d calls", got, cut.Load())
	}
}

func TestTheBreakerCountsWhatRetryAfterWraps(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	config := worker.Config{Breaker: breaker.Config{FailureThreshold: 1, OpenBase: time.Minute}}
	a := r.runWithTimers(r.store, config, on("send", func(_ context.Context, job worker.Job[[]byte]) error {
		if job.Downstream == "ship" {
			return worker.RetryAfter(time.Minute, worker.Ignore(errDown))
		}
		return worker.RetryAfter(time.Minute, errDown)
	}))
	r.enqueue(to("pay", "a"), to("ship", "b"))
	r.await("both to fail", func() bool { return len(a.ends("")) == 2 })
	r.await("the first one's breaker to open", func() bool { return a.Breakers()[0].Opened == 1 })
	if status := a.Breakers(); len(status) != 2 || status[1].Opened != 0 {
		t.Errorf("got %+v", status)
	}
}

func TestTheMostParticularBackoffCounts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var asked tally
	named := func(name string) worker.BackoffFunc {
		return func(attempt int) time.Duration {
			asked.add(fmt.Sprintf("%s %d", name, attempt))
			return -time.Second // as good as 0
		}
	}
	config := worker.Config{
		Queues: []store.QueueWeight{{Queue: "mail"}, {Queue: "bulk"}}, Backoff: named("default"),
		QueueBackoff: map[string]worker.BackoffFunc{"bulk": named("bulk")},
		TypeBackoff:  map[string]worker.BackoffFunc{"call": named("call")},
	}
	fail := func(context.Context, worker.Job[[]byte]) error { return errDown }
	r.runWithTimers(r.store, config, func(w *worker.Worker) {
		worker.Register(w, "send", fail)
		worker.Register(w, "call", fail)
	})
	for i, c := range []struct{ queue, jobType, header string }{
		{"mail", "send", ""}, {"bulk", "send", ""}, {"bulk", "call", ""}, {"bulk", "call", "1ms"}, {"mail", "send", "1ms 2ms"},
	} {
		j := job(c.jobType, fmt.Sprint("job-", i))
		j.Queue, j.MaxAttempts = c.queue, 2
		if c.header != "" {
			j.Headers = map[string]string{admission.HeaderBackoff: c.header}
		}
		r.enqueue(j)
	}
	if c := r.idle(); c.Dead != 5 {
		t.Errorf("got %+v", c)
	}
	if bad := asked.repeated(6); bad != "" || asked.by["default 1"] != 1 || asked.by["bulk 1"] != 1 || asked.by["call 1"] != 1 { // Each is asked after the last attempt, too.
		t.Errorf("asked: %v", asked.by)
	}
}

func TestExponentialBackoffHasFullJitter(t *testing.T) {
	t.Parallel()
	wait := worker.ExponentialBackoff(100*time.Millisecond, time.Second)
	for attempt, most := range map[int]time.Duration{1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 4: 800 * time.Millisecond, 9: time.Second} {
		drawn := make([]time.Duration, 1000)
		for i := range drawn {
			drawn[i] = wait(attempt)
		}
		low, high := slices.Min(drawn), slices.Max(drawn)
		if low < 0 || low > most/10 || high > most || high < most*9/10 {
			t.Errorf("attempt %d: from %s to %s, want all of 0 to %s", attempt, low, high, most)
		}
	}
}

func TestBadBackoffsAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := worker.New(r.store, withQueue(worker.Config{
		QueueBackoff: map[string]worker.BackoffFunc{"a:b": quick}, TypeBackoff: map[string]worker.BackoffFunc{"send": nil},
	}))
	want := "configure worker: invalid queue of QueueBackoff \"a:b\": allowed is 1-128 bytes of [A-Za-z0-9._@/-]\n" +
		"invalid TypeBackoff[\"send\"] nil: allowed is a function"
	if !errors.Is(err, admission.ErrInvalid) || err.Error() != want {
		t.Errorf("got %v", err)
	}
	for _, header := range []string{"", "soon", "0s", "-1s", "10m 1s", "1s 25h", "1s 2s 3s", "1s  2s"} {
		j := job("send", "a")
		j.Headers = map[string]string{admission.HeaderBackoff: header}
		_, err := r.producer.Enqueue(t.Context(), j)
		if !errors.Is(err, admission.ErrInvalid) || !strings.HasPrefix(err.Error(), fmt.Sprintf("invalid header headgate-backoff %q: allowed is ", header)) {
			t.Errorf("%q: %v", header, err)
		}
	}
}

// TestAHeaderGivesNoShorterWaitThanThePolicy: by the built-in one 100 ms, by one of the queue's own what that says. The worker's own
// backoffs are its operator's.
func TestAHeaderGivesNoShorterWaitThanThePolicy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		document, header string
		least, most      time.Duration
	}{
		"built in":              {`{"version":1}`, "1ms", 100 * time.Millisecond, 100 * time.Millisecond},
		"built in, exponential": {`{"version":1}`, "1ms 2ms", 100 * time.Millisecond, 100 * time.Millisecond},
		"of the queue":          {`{"version":1,"queues":{"mail":{"least_backoff":"30s"}}}`, "1ms", 30 * time.Second, 30 * time.Second},
		"longer than that":      {`{"version":1,"queues":{"mail":{"least_backoff":"30s"}}}`, "1m", time.Minute, time.Minute},
		"the worker's own":      {`{"version":1,"queues":{"mail":{"least_backoff":"30s"}}}`, "", 10 * time.Millisecond, 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			if err := r.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte(c.document)}); err != nil {
				t.Fatal(err)
			}
			r.run(r.store, worker.Config{Backoff: quick}, on("send", func(context.Context, worker.Job[[]byte]) error { return errDown }))
			j := job("send", "a")
			j.MaxAttempts = 2
			if c.header != "" {
				j.Headers = map[string]string{admission.HeaderBackoff: c.header}
			}
			p, err := producer.New(r.store, producer.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Enqueue(t.Context(), j); err != nil {
				t.Fatal(err)
			}
			var sight store.Sighting
			r.await("it to wait", func() bool {
				var err error
				sight, err = r.store.Look(t.Context(), admission.Key{Tenant: "acme", ID: "a"})
				return err == nil && sight.Place == admission.PlaceLater
			})
			if wait := sight.At.Sub(sight.History[0].At); wait < c.least || wait > c.most {
				t.Errorf("it waits %s, want %s to %s", wait, c.least, c.most)
			}
			counters, err := r.store.Counters(t.Context())
			if err != nil || counters.Retried != 1 {
				t.Errorf("%d retries are counted, %v", counters.Retried, err)
			}
		})
	}
}
