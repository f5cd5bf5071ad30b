package worker_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

type letter struct {
	To   string `json:"to"`
	Body string `json:"body"`
}

func TestAJobReachesItsHandlerAsItWasSent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got := make(chan worker.Job[letter], 1)
	a := r.run(r.store, worker.Config{}, func(w *worker.Worker) {
		worker.Register(w, "send", func(_ context.Context, job worker.Job[letter]) error {
			got <- job
			return nil
		})
	})
	sent := admission.Job{
		ID: "letter-1", Tenant: "acme", Queue: "mail", Type: "send", Priority: admission.High, Cost: 3, Downstream: "smtp",
		MaxAttempts: 7, Timeout: time.Minute, Deadline: redistest.Now().Add(time.Hour).Truncate(time.Microsecond),
		Headers: map[string]string{"trace": "abc"}, Payload: fmt.Appendf(nil, `{"to":"ada","body":%q}`, strings.Repeat("x", 100<<10)),
	}
	r.enqueue(sent)
	job := <-got
	if job.Args.To != "ada" || len(job.Args.Body) != 100<<10 || job.Attempt != 1 || job.Lost != 0 {
		t.Errorf("got %s, %d bytes, attempt %d, lost %d", job.Args.To, len(job.Args.Body), job.Attempt, job.Lost)
	}
	if job.ID != sent.ID || job.Tenant != sent.Tenant || job.Cost != 3 || job.Downstream != "smtp" || job.MaxAttempts != 7 ||
		job.Timeout != time.Minute || !job.Deadline.Equal(sent.Deadline) || job.Headers["trace"] != "abc" || job.Priority != admission.High {
		job.Payload = nil
		t.Errorf("got %+v", job.Job)
	}
	if age := redistest.Now().Sub(job.Admitted); age < 0 || age > patience {
		t.Errorf("admitted %s ago", age)
	}
	if c := r.idle(); c.Left["completed"] != 1 {
		t.Errorf("got %+v", c)
	}
	r.await("the event", func() bool { return len(a.ends("letter-1")) == 1 })
	e := a.ends("letter-1")[0]
	if e.Outcome != worker.Completed || e.Class != admission.High || e.Queue != "mail" || e.Attempt != 1 || e.Wait < 0 || e.Token == "" {
		t.Errorf("got %+v", e)
	}
	if n := len(a.starts()); n != 1 {
		t.Errorf("%d starts", n)
	}
}

func TestRawPayloadsAreNotDecoded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	got := make(chan string, 3)
	r.run(r.store, worker.Config{}, func(w *worker.Worker) {
		worker.Register(w, "bytes", func(_ context.Context, job worker.Job[[]byte]) error { got <- string(job.Args); return nil })
		worker.Register(w, "text", func(_ context.Context, job worker.Job[string]) error { got <- job.Args; return nil })
		worker.Register(w, "json", func(_ context.Context, job worker.Job[json.RawMessage]) error { got <- string(job.Args); return nil })
	})
	for _, jobType := range []string{"bytes", "text", "json"} {
		j := job(jobType, jobType)
		j.Payload = []byte("not { json")
		r.enqueue(j)
		if payload := <-got; payload != "not { json" {
			t.Errorf("%s: got %q", jobType, payload)
		}
	}
}

func TestMiddlewareWrapsFromTheOutside(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var mu sync.Mutex
	var order []string
	note := func(what string) worker.Middleware {
		return func(next worker.Handler) worker.Handler {
			return func(ctx context.Context, job worker.Job[[]byte]) error {
				mu.Lock()
				order = append(order, what)
				mu.Unlock()
				return next(ctx, job)
			}
		}
	}
	r.run(r.store, worker.Config{}, func(w *worker.Worker) {
		w.Use(note("first"))
		worker.Register(w, "send", func(context.Context, worker.Job[letter]) error { return nil })
		w.Use(note("second"), note("third"))
	})
	r.enqueue(job("send", "a"))
	r.idle()
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(order, " "); got != "first second third" {
		t.Errorf("got %s", got)
	}
}

func TestAFailingJobIsRetriedAndThenADeadLetter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.runWithTimers(r.store, worker.Config{Backoff: quick}, on("send", func(_ context.Context, job worker.Job[[]byte]) error {
		return fmt.Errorf("no answer to attempt %d", job.Attempt)
	}))
	j := job("send", "a")
	j.MaxAttempts = 3
	r.enqueue(j)
	c := r.idle()
	if c.Dead != 1 || c.Died["max_attempts"] != 1 {
		t.Errorf("got %+v", c)
	}
	r.await("the events", func() bool { return len(a.ends("a")) == 3 })
	if got := a.said("a"); got != "retried,retried,dead" {
		t.Errorf("got %s", got)
	}
	if got := r.why(); got != "max_attempts|no answer to attempt 3" {
		t.Errorf("got %s", got)
	}
}

// hollowError is what handlers return by mistake as a typed nil: it has a cause, or panics.
type hollowError struct{ cause error }

func (e *hollowError) Error() string { return fmt.Sprint("hollow: ", e.cause) }

func (e *hollowError) Unwrap() error {
	if e.cause == nil {
		panic("no cause")
	}
	return e.cause
}

func TestEachAnswerDoesWhatItSays(t *testing.T) {
	t.Parallel()
	errBroken := errors.New("broken")
	var snoozes atomic.Int64
	for _, c := range []struct {
		name    string
		handler func(context.Context, worker.Job[letter]) error
		said    string
		why     string // what the dead letter's text holds
	}{
		{"a panic fails the job with its stack", func(context.Context, worker.Job[letter]) error { panic("boom") }, "retried,dead", "handle_test.go"},
		{"an error of the runtime does too", func(_ context.Context, job worker.Job[letter]) error {
			_ = job.Payload[len(job.Payload)]
			return nil
		}, "retried,dead", "index out of range"},
		{"an exit of the goroutine fails the job", func(context.Context, worker.Job[letter]) error { runtime.Goexit(); return nil }, "retried,dead", "runtime.Goexit"},
		{"an error that panics when it is asked what it is fails the job", func(context.Context, worker.Job[letter]) error {
			var none *hollowError
			return none
		}, "retried,dead", "panic: runtime error: invalid memory address"},
		{"so does one that panics when it is unwrapped", func(context.Context, worker.Job[letter]) error { return &hollowError{} }, "retried,dead", "panic: no cause"},
		{"Discard kills at once", func(context.Context, worker.Job[letter]) error {
			return fmt.Errorf("sorry: %w", worker.Discard(errBroken))
		}, "dead(discarded)", "discarded|sorry: discarded: broken"},
		{"Ignore fails the job", func(context.Context, worker.Job[letter]) error { return worker.Ignore(errBroken) }, "retried,dead", "broken"},
		{"Snooze burns no attempt", func(_ context.Context, job worker.Job[letter]) error {
			if snoozes.Add(1) <= 3 {
				return worker.Snooze(100 * time.Millisecond)
			}
			if job.Attempt != 1 {
				return worker.Discard(errBroken)
			}
			return nil
		}, "released(snoozed),released(snoozed),released(snoozed),completed", ""},
		{"the job's time-out ends its ctx", func(ctx context.Context, _ worker.Job[letter]) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, "retried,dead", "time-out of the job"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.runWithTimers(r.store, worker.Config{Backoff: quick}, func(w *worker.Worker) { worker.Register(w, "send", c.handler) })
			j := job("send", "a")
			j.MaxAttempts, j.Timeout = 2, 500*time.Millisecond
			r.enqueue(j)
			want := strings.Count(c.said, ",") + 1
			r.await("the events", func() bool { return len(a.ends("a")) >= want })
			r.idle()
			if got := a.said("a"); got != c.said {
				t.Errorf("got %s", got)
			}
			if c.why != "" && !strings.Contains(r.why(), c.why) {
				t.Errorf("the dead letter says %s", r.why())
			}
		})
	}
}

func TestAPayloadThatIsNotTakenIsADeadLetter(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.run(r.store, worker.Config{}, func(w *worker.Worker) {
		worker.Register(w, "send", func(context.Context, worker.Job[letter]) error { return nil })
	})
	j := job("send", "a")
	j.Payload = []byte(`{"to":7}`)
	r.enqueue(j)
	if c := r.idle(); c.Died["bad_payload"] != 1 {
		t.Errorf("got %+v", c)
	}
	if got := r.why(); !strings.HasPrefix(got, "bad_payload|decode payload: json: cannot unmarshal number") {
		t.Errorf("got %s", got)
	}
	r.await("the event", func() bool { return a.said("a") == "dead(bad_payload)" })
}

func TestAJobOfAnUnknownTypeGoesBackUnharmed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stranger := r.runWithTimers(r.store, worker.Config{}, on("other", nothing))
	j := job("send", "a")
	j.MaxAttempts = 1
	r.enqueue(j)
	r.await("a release", func() bool { return strings.HasPrefix(stranger.said("a"), "released(unknown_type)") })
	attempts := make(chan int, 1)
	r.runWithTimers(r.store, worker.Config{}, on("send", func(_ context.Context, job worker.Job[[]byte]) error {
		attempts <- job.Attempt
		return nil
	}))
	if attempt := <-attempts; attempt != 1 {
		t.Errorf("it came as attempt %d", attempt)
	}
	if c := r.idle(); c.Left["completed"] != 1 {
		t.Errorf("got %+v", c)
	}
	if len(stranger.starts()) != 0 || !strings.Contains(stranger.logs.String(), "no handler for this type") {
		t.Errorf("got %+v, and the log\n%s", stranger.starts(), stranger.logs)
	}
}

func TestAHandlerOfAnyTypeTakesWhatIsLeft(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var mu sync.Mutex
	var took []string
	note := func(who string, job worker.Job[[]byte]) error {
		mu.Lock()
		defer mu.Unlock()
		took = append(took, who+" "+job.Type+" "+string(job.Args))
		return nil
	}
	r.run(r.store, worker.Config{Concurrency: 1}, func(w *worker.Worker) {
		worker.RegisterAny(w, func(_ context.Context, job worker.Job[[]byte]) error { return note("any", job) })
		worker.Register(w, "send", func(_ context.Context, job worker.Job[[]byte]) error { return note("own", job) })
		w.Use(func(next worker.Handler) worker.Handler {
			return func(ctx context.Context, job worker.Job[[]byte]) error {
				job.Args = []byte("wrapped")
				return next(ctx, job)
			}
		})
	})
	for _, jobType := range []string{"send", "print"} {
		r.enqueue(job(jobType, jobType))
		r.idle()
	}
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(took, ", "); got != "own send {}, any print wrapped" {
		t.Errorf("got %s", got)
	}
}

func TestThereIsOneHandlerOfAnyType(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	w, err := worker.New(r.store, worker.Config{Queues: []store.QueueWeight{{Queue: "mail"}}})
	if err != nil {
		t.Fatal(err)
	}
	worker.RegisterAny(w, nothing)
	worker.RegisterAny(w, nothing)
	if err := w.Run(t.Context()); !errors.Is(err, admission.ErrInvalid) || !strings.Contains(err.Error(), "handler of any type") {
		t.Errorf("got %v", err)
	}
}

func TestAJobPastItsDeadlineIsNotStarted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	// A worker by hand that never reads lends its slots to the pool, so jobs are in the ready stream before the one
	// that runs has a slot for them.
	pool := store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}
	if _, err := r.store.Partitions()[0].Register(t.Context(), "by hand", pool, 10, time.Minute); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	a := r.run(r.store, worker.Config{Concurrency: 1}, on("send", func(_ context.Context, job worker.Job[[]byte]) error {
		if job.ID == "long" {
			<-release
		}
		return nil
	}))
	r.enqueue(job("send", "long"))
	r.await("the long job to start", func() bool { return len(a.starts()) == 1 })
	late := job("send", "late")
	late.Deadline = redistest.Now().Add(time.Second)
	r.enqueue(late)
	if c := r.census(); c.Ready != 2 {
		t.Fatalf("the job is not in the ready stream: %+v", c)
	}
	passed := time.NewTimer(late.Deadline.Sub(redistest.Now()) + 100*time.Millisecond)
	defer passed.Stop()
	<-passed.C
	close(release)
	c := r.idle()
	if c.Died["expired"] != 1 || c.Left["completed"] != 1 {
		t.Errorf("got %+v", c)
	}
	r.await("the event", func() bool { return a.said("late") == "expired(deadline)" })
	if n := len(a.starts()); n != 1 {
		t.Errorf("%d jobs were started", n)
	}
}
