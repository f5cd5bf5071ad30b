package headgate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// Weights are queues and how much of a worker each is to have beside the others, 1 to 1000.
type Weights map[string]int

// WorkerConfig is what a Worker needs. Only Queues has no default.
type WorkerConfig struct {
	// Queues are served in proportion to their weights. Workers with the same Queues share their jobs.
	Queues Weights
	// Concurrency is how many handlers run at a time, 1 to 10,000; zero means ten a processor.
	Concurrency int
	// Lease is for how long Redis leaves the jobs to a worker that is not heard of, 200 ms to 10 min; zero means 15 s.
	Lease time.Duration
	// DrainTimeout is how long handlers may go on after Run's ctx has ended, up to 1 h; zero means 30 s.
	DrainTimeout time.Duration
	// Timeout ends the ctx of a handler whose job has none of its own; zero means 5 min.
	Timeout time.Duration
	// Backoff is how long a failed job waits for its next attempt; nil is exponential from 1 s to 10 min with full jitter.
	Backoff func(attempt int) time.Duration
	// Breaker configures the circuit breaker of each downstream that Breakers does not name; the policy may overrule both.
	Breaker  breaker.Config
	Breakers map[string]breaker.Config
	// Guard is what the process may use of its machine before it takes no further jobs; its zero value is none.
	Guard GuardConfig
}

// GuardConfig is what a process may use of its machine: memory, processors, goroutines, jobs a minute. At a limit its Worker takes no
// further jobs, and other workers get them; its running ones go on. Below it, it takes jobs again.
type GuardConfig = worker.GuardConfig

// GuardDelays are how long is waited by how near the process is to a limit.
type GuardDelays = worker.GuardDelays

// Worker runs handlers. Handle comes first, then Run, once.
type Worker struct {
	inner   *worker.Worker // nil where err is not
	err     error
	handles bool
	kinds   []string // of handlers, where err is not nil
}

// fault adds what is wrong with a handler to what is wrong with the config.
func (w *Worker) fault(kind string) {
	err := admission.ValidateName("type", kind, false)
	if err == nil && slices.Contains(w.kinds, kind) {
		err = &FieldError{Field: "type", Value: strconv.Quote(kind), Allowed: "one handler a type"}
	}
	if err != nil {
		w.err = errors.Join(w.err, fmt.Errorf("register handler: %w", err))
	}
	w.kinds = append(w.kinds, kind)
}

// Worker returns a worker of some queues. It sends nothing yet; a bad config is told by Run.
func (c *Client) Worker(config WorkerConfig) *Worker {
	full := worker.Config{
		Logger: c.log, Concurrency: config.Concurrency, Lease: config.Lease, DrainTimeout: config.DrainTimeout, DefaultTimeout: config.Timeout,
		Backoff: config.Backoff, Breaker: config.Breaker, Breakers: config.Breakers, Guard: config.Guard, Observer: c.observed.worker(), Learn: c.producer.Learn,
	}
	for _, queue := range slices.Sorted(maps.Keys(config.Queues)) {
		full.Queues = append(full.Queues, store.QueueWeight{Queue: queue, Weight: config.Queues[queue]})
	}
	inner, err := worker.New(c.store, full)
	return &Worker{inner: inner, err: err}
}

// Run runs jobs until ctx ends, then drains: it takes no further ones and gives running handlers DrainTimeout. It waits for a Redis
// that is away. The error is nil after a drain, and else joins all that is wrong with the config and the handlers.
func (w *Worker) Run(ctx context.Context) error {
	if w.err != nil {
		return w.err
	}
	if !w.handles {
		return &FieldError{Field: "handlers", Value: "none", Allowed: "one or more, by Handle or HandleRaw: without one every job would be handed back"}
	}
	return w.inner.Run(ctx)
}

// Run is a job as its handler has it.
type Run[A any] struct {
	// Args are the job's, decoded.
	Args A
	// ID, Tenant, Queue, Priority, Downstream, Deadline and Headers are as it was enqueued.
	ID, Tenant, Queue string
	Priority          Priority
	Downstream        string
	Deadline          time.Time
	Headers           map[string]string
	// Attempt counts runs from 1. Suspect says that a worker was lost that held the job, which may therefore have run before.
	Attempt int
	Suspect bool
	// Admitted is when it entered, by the clock of Redis.
	Admitted time.Time

	ctx    context.Context //nolint:containedctx // A run is one call of one handler. Nil outside of a worker.
	result []byte
	keep   time.Duration
	cost   Tokens
	told   bool
}

// SetResult leaves a value, up to 64 KiB of JSON, as the result of the job. When the handler returns nil it is kept for keep, 1 s to
// 30 days, for ResultOf, or until another job of its id is let in. The last call counts. A Run that no worker made, in a test of a handler, keeps it for Result.
func (r *Run[A]) SetResult(value any, keep time.Duration) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	if r.ctx != nil {
		return worker.SetResult(r.ctx, data, keep)
	}
	if err = worker.ValidateResult(data, keep); err == nil {
		r.result, r.keep = data, keep
	}
	return err
}

// Result returns the JSON of what SetResult was given last, and for how long that is to be kept, of a Run that no worker made.
func (r *Run[A]) Result() (data []byte, keep time.Duration) { return r.result, r.keep }

// SetCost tells what the job has cost in truth, 0 to MaxActualCost tokens: its Job.Cost was an estimate, which was reserved when it entered. With
// the run that ends the job, what it did not need goes back to the limits, and what it lacked is taken from them, up to one burst below zero. A
// run after which the job comes back counts for nothing. The last call counts. A Run that no worker made, in a test of a handler, keeps it for
// Cost.
func (r *Run[A]) SetCost(actual Tokens) error {
	if r.ctx != nil {
		return worker.SetCost(r.ctx, actual)
	}
	err := admission.ValidateActualCost(actual)
	if err == nil {
		r.cost, r.told = actual, true
	}
	return err
}

// Cost returns what SetCost was told last, of a Run that no worker made; ok is false where it was told nothing.
func (r *Run[A]) Cost() (actual Tokens, ok bool) { return r.cost, r.told }

// Pushback tells that the job's downstream has asked for less: by a level, PressureLow to PressureCritical, for d, 0 to an hour. Where the policy lets
// the downstream's dispatch move (adaptive), all workers together dispatch that much less from within a second on, for d and two seconds at
// least, and then it comes back by steps; elsewhere it does nothing. Of a Run that no worker made, in a test of a handler, it does nothing either.
func (r *Run[A]) Pushback(level PressureLevel, d time.Duration) error {
	if r.ctx != nil {
		return worker.Pushback(r.ctx, level, d)
	}
	return worker.ValidatePushback(level, d)
}

// Handle makes handler the one of all jobs whose arguments are of the type A. What it returns decides: nil completes the job, any error
// has it retried after the backoff, Discard, Snooze, RetryAfter, Throttled and Ignore say something else. The error and a panic are logged. A kind
// with two handlers is an error of Run.
func Handle[A Args](w *Worker, handler func(ctx context.Context, job *Run[A]) error) {
	var zero A
	if w.inner == nil {
		w.fault(zero.Kind())
		return
	}
	w.handles = true
	worker.Register(w.inner, zero.Kind(), func(ctx context.Context, job worker.Job[A]) error {
		return handler(ctx, runOf(ctx, &job, job.Args))
	})
}

// HandleRaw makes handler the one of all jobs of a type, and gives it their payloads as they are.
func HandleRaw(w *Worker, jobType string, handler func(ctx context.Context, job *Run[Raw]) error) {
	if w.inner == nil {
		w.fault(jobType)
		return
	}
	w.handles = true
	worker.Register(w.inner, jobType, func(ctx context.Context, job worker.Job[[]byte]) error {
		return handler(ctx, runOf(ctx, &job, Raw{Type: job.Type, Payload: job.Payload}))
	})
}

func runOf[A, B any](ctx context.Context, job *worker.Job[B], args A) *Run[A] {
	return &Run[A]{
		Args: args, ID: job.ID, Tenant: job.Tenant, Queue: job.Queue, Priority: job.Priority, Downstream: job.Downstream, Deadline: job.Deadline,
		Headers: job.Headers, Attempt: job.Attempt, Suspect: job.Suspect, Admitted: job.Admitted, ctx: ctx,
	}
}

// Discard says that the job will never succeed: it becomes a dead letter, whatever attempts are left.
func Discard(err error) error { return worker.Discard(err) }

// Snooze says that the job is to come back after d. No attempt is burnt.
func Snooze(d time.Duration) error { return worker.Snooze(d) }

// RetryAfter is a failure after which the job comes back in d, whatever the backoff says. An attempt is burnt.
func RetryAfter(d time.Duration, err error) error { return worker.RetryAfter(d, err) }

// Ignore is a failure that is not the downstream's: its circuit breaker does not count it.
func Ignore(err error) error { return worker.Ignore(err) }

// Throttled says that the downstream refused the call as one too many, by a 429 or a quota: its circuit breaker does not count it, and a
// dispatch that moves by itself (adaptive) goes by it. The job goes the way of err: Throttled(Snooze(d)) burns no attempt. Where the policy has a
// max_retry_after for the downstream, d holds all of its jobs back, at most so long.
func Throttled(err error) error { return worker.Throttled(err) }

// IsThrottled reports whether a handler said Throttled.
func IsThrottled(err error) bool { return worker.IsThrottled(err) }

// IsDiscard reports whether a handler said Discard: for tests of it.
func IsDiscard(err error) bool { return worker.IsDiscard(err) }

// IsSnooze reports whether a handler said Snooze, and for how long.
func IsSnooze(err error) (d time.Duration, ok bool) { return worker.IsSnooze(err) }

// IsRetryAfter reports whether a handler said RetryAfter, and after how long.
func IsRetryAfter(err error) (d time.Duration, ok bool) { return worker.IsRetryAfter(err) }

// IsIgnored reports whether err is one of Ignore.
func IsIgnored(err error) bool { return worker.IsIgnored(err) }
