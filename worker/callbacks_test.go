package worker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// start runs a worker whose observer is the caller's, until the test ends.
func (r *rig) start(config worker.Config, register func(*worker.Worker)) {
	r.tb.Helper()
	config.Queues = []store.QueueWeight{{Queue: "mail"}, {Queue: "post"}}
	w, err := worker.New(r.store, config)
	if err != nil {
		r.tb.Fatal(err)
	}
	register(w)
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.tb.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	r.tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.tb.Errorf("run worker: %v", err)
		}
	})
}

// failing makes a function of a user that panics.
func failing(what string) { panic("the user's " + what) }

func TestFunctionsOfUsersThatPanicCostNoJob(t *testing.T) {
	t.Parallel()
	for name, taken := range map[string]func(context.Context, worker.Event, map[string]string) (context.Context, func(worker.Event)){
		"at once": func(context.Context, worker.Event, map[string]string) (context.Context, func(worker.Event)) {
			failing("Taken")
			return nil, nil
		},
		"at the end, without a ctx": func(context.Context, worker.Event, map[string]string) (context.Context, func(worker.Event)) {
			return nil, func(worker.Event) { failing("Taken") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			var said logs
			wait := func(int) time.Duration {
				failing("Backoff")
				return 0
			}
			r.start(worker.Config{
				Logger:  zerolog.New(&said),
				Backoff: wait, TypeBackoff: map[string]worker.BackoffFunc{"send": wait}, QueueBackoff: map[string]worker.BackoffFunc{"mail": wait},
				Observer: worker.Observer{
					Taken: taken, Started: func(worker.Event) { failing("Started") }, Finished: func(worker.Event) { failing("Finished") },
				},
			}, func(w *worker.Worker) {
				for _, jobType := range []string{"send", "fetch"} {
					worker.Register(w, jobType, func(_ context.Context, job worker.Job[[]byte]) error {
						if job.Attempt == 1 {
							return errDown
						}
						return nil
					})
				}
			})
			third := job("fetch", "c")
			third.Queue = "post"
			r.enqueue(job("send", "a"), job("fetch", "b"), third)
			if c := r.idle(); c.Left["completed"] != 3 || c.Dead != 0 {
				t.Errorf("got %+v", c)
			}
			for _, function := range []string{
				`"Observer.Started"`, `"Observer.Finished"`, `Observer.Taken"`, `"Backoff"`, `"TypeBackoff[\"send\"]"`, `"QueueBackoff[\"mail\"]"`,
			} {
				if strings.Count(said.String(), function) != 1 {
					t.Errorf("%s is not logged once", function)
				}
			}
			if !strings.Contains(said.String(), "worker_test.failing") {
				t.Error("the log has no stack")
			}
			if t.Failed() {
				t.Logf("the log says\n%s", said.String())
			}
		})
	}
}

// TestAJitterThatPanicsOpensTheBreakerAllTheSame: it is asked for with each outcome that may open one, and by the timer of a slow call.
func TestAJitterThatPanicsOpensTheBreakerAllTheSame(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var said logs
	config := breaker.Config{
		FailureThreshold: 2, SlowCallDuration: time.Millisecond, OpenBase: time.Minute,
		Rand: func() float64 {
			failing("Rand")
			return 0
		},
	}
	r.start(worker.Config{
		Logger: zerolog.New(&said), Breaker: config, Breakers: map[string]breaker.Config{"ship": config}, Backoff: quick,
		Observer: worker.Observer{Lonely: func(string, bool) { failing("Lonely") }},
	}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
		timer := time.NewTimer(20 * time.Millisecond) // A slow call.
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		return errDown
	}))
	for _, downstream := range []string{"ship", "bank"} {
		for _, id := range []string{"a", "b", "c"} {
			j := job("send", downstream+id)
			j.Downstream = downstream
			r.enqueue(j)
		}
	}
	for _, downstream := range []string{"ship", "bank"} {
		r.await(downstream+" to open", func() bool {
			view, err := r.store.Breaker(t.Context(), downstream)
			return err == nil && view.State == breaker.Open
		})
	}
	for _, function := range []string{`"Breaker.Rand"`, `"Breakers[\"ship\"].Rand"`} {
		if strings.Count(said.String(), function) != 1 {
			t.Errorf("%s is not logged once:\n%s", function, said.String())
		}
	}
}

func TestAGuestHearsOnAfterAPanicOfItsHook(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, redistest.Shared(t))
	var said logs
	guest, err := worker.NewGuest(r.store, worker.GuestConfig{Logger: zerolog.New(&said), Changed: failing})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- guest.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	for _, downstream := range []string{"ship", "bank"} {
		if _, err := r.store.ForceBreaker(t.Context(), downstream, breaker.Open, time.Hour, store.Intervention{Reason: "to try"}); err != nil {
			t.Fatal(err)
		}
		r.await("word on "+downstream, func() bool { return guest.Fleet(downstream).State == breaker.Open })
	}
	r.await("the log", func() bool { return strings.Contains(said.String(), "the user's ship") })
}

// TestAnErrorThatPanicsFailsItsJobOnly as it is asked for its text.
func TestAnErrorThatPanicsFailsItsJobOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	j := job("send", "a")
	j.MaxAttempts = 1
	r.start(worker.Config{}, on("send", func(context.Context, worker.Job[[]byte]) error { return errors.Join(errDown, (*mute)(nil)) }))
	r.enqueue(j)
	if c := r.idle(); c.Died["max_attempts"] != 1 || !strings.Contains(r.why(), "panic: ") {
		t.Errorf("got %+v: %s", c, r.why())
	}
}

// mute panics where it is nil.
type mute struct{ text string }

func (m *mute) Error() string { return m.text }
