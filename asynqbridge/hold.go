package asynqbridge

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/worker"
)

const (
	// probePause is how long a queue pauses for probes that are out; the end of one resumes it.
	probePause = time.Second
	// pauseTimeout bounds a call that pauses or resumes.
	pauseTimeout = time.Second
	// shortWait is what a task waits for in its slot: a pause may end that much before its breaker's cooldown.
	shortWait = 50 * time.Millisecond
	// aloneLeast and aloneMost bound when a task comes back that fails here alone: perhaps to another server.
	aloneLeast = 200 * time.Millisecond
	aloneMost  = time.Second
)

// OpenError is the answer on a task that had left its queue when the breaker opened, and did not reach its handler; or
// that was a probe, and failed.
type OpenError struct {
	Queue string
	// RetryAfter is when to ask again.
	RetryAfter time.Duration
	// Probe is what the handler of a probe answered; nil where none ran.
	Probe error
}

// Error says whose breaker it is and when to ask again.
func (e *OpenError) Error() string {
	text := fmt.Sprintf("circuit breaker of asynq queue %s is not closed, retry after %s", e.Queue, e.RetryAfter)
	if e.Probe != nil {
		text += ": probe: " + e.Probe.Error()
	}
	return text
}

// Is makes it match headgate.ErrBreakerOpen.
func (e *OpenError) Is(target error) bool { return target == admission.ErrBreakerOpen }

// Unwrap returns what the handler of a probe answered.
func (e *OpenError) Unwrap() error { return e.Probe }

// begin returns the call of a task that may run, else the task's answer.
func (b *Breaker) begin(ctx context.Context, queue, downstream string) (*worker.GuestCall, error) {
	for {
		call, wait, ok := b.guest.Begin(ctx, downstream)
		if ok {
			return call, nil
		}
		rest := b.hold(ctx, queue, downstream, wait)
		if rest > shortWait && attemptsLeft(ctx) {
			return nil, &OpenError{Queue: queue, RetryAfter: rest}
		}
		timer := time.NewTimer(rest)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, ctx.Err()
		}
	}
}

// hold pauses the queue of a task that may not begin, if it is the fleet that says so, and returns when to ask again. wait
// is 0 where nobody knows.
func (b *Breaker) hold(ctx context.Context, queue, downstream string, wait time.Duration) time.Duration {
	rest := b.rest(downstream, wait)
	if view := b.guest.Fleet(downstream); view.State != breaker.Closed {
		b.pause(context.WithoutCancel(ctx), queue, downstream, rest)
		if b.guest.Fleet(downstream).Period != view.Period {
			b.note(downstream)
		}
	}
	return rest
}

// rest returns for how long tasks of a downstream are held back at a time.
func (b *Breaker) rest(downstream string, wait time.Duration) time.Duration {
	return restOf(b.guest.Fleet(downstream), wait, b.config.MaxPause)
}

// restOf is rest of a downstream in a state.
func restOf(view worker.FleetState, wait, most time.Duration) time.Duration {
	switch {
	case view.State == breaker.Closed:
		return aloneLeast + rand.N(aloneMost-aloneLeast)
	case view.State == breaker.HalfOpen:
		wait = probePause
	case wait == 0:
		wait = max(view.Rest, shortWait)
	}
	return max(time.Millisecond, min(wait, most))
}

// note has the queues of a downstream looked at.
func (b *Breaker) note(downstream string) {
	b.mu.Lock()
	b.mu.changed[downstream] = true
	b.mu.Unlock()
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// settle pauses and resumes queues as the fleet's breakers change, until ctx ends.
func (b *Breaker) settle(ctx context.Context) {
	for {
		select {
		case <-b.changed:
		case <-ctx.Done():
			return
		}
		for queue, downstream := range b.toSettle() {
			if view := b.guest.Fleet(downstream); view.State == breaker.Open {
				b.pause(ctx, queue, downstream, b.rest(downstream, view.Rest))
			} else {
				b.resume(ctx, queue, downstream)
			}
		}
	}
}

// toSettle returns the queues of the downstreams that have changed, with these.
func (b *Breaker) toSettle() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make(map[string]string)
	for downstream := range b.mu.changed {
		for queue := range b.mu.queues[downstream] {
			all[queue] = downstream
		}
	}
	clear(b.mu.changed)
	return all
}

func (b *Breaker) pause(ctx context.Context, queue, downstream string, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	if err := b.pauser.pause(ctx, queue, downstream, d); err != nil {
		b.config.Logger.Warn().Err(err).Msg("asynq queue not paused")
	}
}

func (b *Breaker) resume(ctx context.Context, queue, downstream string) {
	ctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	if err := b.pauser.resume(ctx, queue, downstream); err != nil {
		b.config.Logger.Warn().Err(err).Msg("asynq queue not resumed")
	}
}

// IsFailure is for asynq.Config: a task that a breaker held back has not failed.
func IsFailure(err error) bool { return !errors.Is(err, admission.ErrBreakerOpen) }

// RetryDelay is for asynq.Config: a task that a breaker held back comes back when it may run, any other after what next
// says; nil means asynq.DefaultRetryDelayFunc.
func RetryDelay(next asynq.RetryDelayFunc) asynq.RetryDelayFunc {
	if next == nil {
		next = asynq.DefaultRetryDelayFunc
	}
	return func(n int, err error, task *asynq.Task) time.Duration {
		if open, ok := errors.AsType[*OpenError](err); ok {
			return open.RetryAfter
		}
		return next(n, err, task)
	}
}
