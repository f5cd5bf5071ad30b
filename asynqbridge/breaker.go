package asynqbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/breaker"
)

// BreakerConfig is what a Breaker needs beside asynq's Redis. The zero value works.
type BreakerConfig struct {
	// Logger says when a breaker changes and what goes wrong; its zero value is silent.
	Logger zerolog.Logger
	// Breaker configures the circuit breaker of each queue that Breakers does not name.
	Breaker breaker.Config
	// Breakers configures the circuit breakers of single queues.
	Breakers map[string]breaker.Config
	// IsFailure says which errors of handlers are failures of what they call; nil means all but asynq.RevokeTask, and
	// context.Canceled.
	IsFailure func(error) bool
	// MaxPause is the longest TTL of a pause, 100 ms to 1 h; zero means 30 s. A breaker that is open for longer pauses
	// again. So long does a queue stay paused whose breakers have all died.
	MaxPause time.Duration
}

// Bounds and defaults of a BreakerConfig.
const (
	defaultMaxPause = 30 * time.Second
	minMaxPause     = 100 * time.Millisecond
	maxMaxPause     = time.Hour
	// probePause is how long a queue pauses for a probe that is out; its end resumes the queue.
	probePause = time.Second
	// pauseTimeout bounds a call that pauses or resumes.
	pauseTimeout = time.Second
)

// Breaker guards what the handlers of an asynq server call, by one circuit breaker a queue: a queue is what asynq can
// pause, so what fails together should have one of its own. While the breaker is open the queue is paused for every
// server, by a key with a TTL, which asynq's servers look at before each task; when it is over, probes find out. A pause
// that an operator has set (asynq's Inspector, asynqmon) is neither changed nor ended. Several goroutines may use it.
type Breaker struct {
	config BreakerConfig
	redis  redis.UniversalClient
	pauser pauser
	// born is the origin of all Instants.
	born time.Time

	mu struct {
		sync.Mutex
		breakers map[string]*breaker.Breaker // by queue
	}
}

// OpenError is the answer on a task that had left its queue when the breaker opened. It did not reach its handler.
type OpenError struct {
	Queue string
	// RetryAfter is when to ask again.
	RetryAfter time.Duration
}

// Error says whose breaker it is and when to ask again.
func (e *OpenError) Error() string {
	return fmt.Sprintf("circuit breaker of asynq queue %s is not closed, retry after %s", e.Queue, e.RetryAfter)
}

// Is makes it match headgate.ErrBreakerOpen.
func (e *OpenError) Is(target error) bool { return target == headgate.ErrBreakerOpen }

// NewBreaker returns a Breaker on asynq's Redis. It sends nothing. Close ends its connections.
func NewBreaker(connection asynq.RedisConnOpt, config BreakerConfig) (*Breaker, error) {
	config.MaxPause = cmp.Or(config.MaxPause, defaultMaxPause)
	config.Breakers = maps.Clone(config.Breakers)
	if config.IsFailure == nil {
		config.IsFailure = func(err error) bool {
			return !errors.Is(err, asynq.RevokeTask) && !errors.Is(err, context.Canceled)
		}
	}
	bad := []error{config.Breaker.Validate()}
	for _, queue := range slices.Sorted(maps.Keys(config.Breakers)) {
		if err := config.Breakers[queue].Validate(); err != nil {
			bad = append(bad, fmt.Errorf("breaker of queue %s: %w", queue, err))
		}
	}
	if config.MaxPause < minMaxPause || config.MaxPause > maxMaxPause {
		bad = append(bad, &headgate.FieldError{Field: "MaxPause", Value: config.MaxPause.String(), Allowed: "100ms to 1h"})
	}
	if err := errors.Join(bad...); err != nil {
		return nil, fmt.Errorf("configure breaker: %w", err)
	}
	client, _, err := connect(connection)
	if err != nil {
		return nil, fmt.Errorf("configure breaker: %w", err)
	}
	b := &Breaker{config: config, redis: client, pauser: newPauser(client), born: time.Now()}
	b.mu.breakers = make(map[string]*breaker.Breaker)
	return b, nil
}

// Close ends the connections to asynq's Redis. Pauses end by themselves.
func (b *Breaker) Close() error { return b.redis.Close() }

// Middleware is an asynq.MiddlewareFunc. A task whose breaker is not closed gets an *OpenError; IsFailure and RetryDelay in
// the server's Config keep that from counting as one of its attempts. One that has no attempt left, which asynq would
// archive for any error, waits instead, in its slot.
func (b *Breaker) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		queue, ok := asynq.GetQueueName(ctx)
		if !ok {
			return next.ProcessTask(ctx, task)
		}
		own, err := b.of(queue)
		if err != nil {
			return err
		}
		call, err := b.acquire(ctx, queue, own)
		if err != nil {
			return err
		}
		slow := time.AfterFunc(own.Config().SlowCallDuration, func() { b.note(ctx, queue, own, call, (*breaker.Call).MarkSlowAt) })
		verdict := (*breaker.Call).FailureAt // of a panic too
		defer func() {
			slow.Stop()
			b.note(ctx, queue, own, call, verdict)
		}()
		err = next.ProcessTask(ctx, task)
		switch {
		case err == nil:
			verdict = (*breaker.Call).SuccessAt
		case !b.config.IsFailure(err):
			verdict = (*breaker.Call).IgnoreAt
		}
		return err
	})
}

// of returns the breaker of a queue.
func (b *Breaker) of(queue string) (*breaker.Breaker, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if own := b.mu.breakers[queue]; own != nil {
		return own, nil
	}
	config, ok := b.config.Breakers[queue]
	if !ok {
		config = b.config.Breaker
	}
	own, err := breaker.NewAt(b.instant(), config)
	if err == nil {
		b.mu.breakers[queue] = own
	}
	return own, err
}

func (b *Breaker) instant() breaker.Instant { return breaker.Instant(time.Since(b.born)) }

// acquire returns the call of a task that may run, else the task's answer.
func (b *Breaker) acquire(ctx context.Context, queue string, own *breaker.Breaker) (*breaker.Call, error) {
	for {
		call, change, ok := own.TryAcquireAt(b.instant())
		b.changed(ctx, queue, own, change)
		if ok {
			return &call, nil
		}
		rest := b.pause(ctx, queue, own)
		if retried, ok := asynq.GetRetryCount(ctx); ok {
			if most, ok := asynq.GetMaxRetry(ctx); ok && retried < most {
				return nil, &OpenError{Queue: queue, RetryAfter: rest}
			}
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

// note tells the breaker of an event of a call.
func (b *Breaker) note(ctx context.Context, queue string, own *breaker.Breaker, call *breaker.Call, event func(*breaker.Call, breaker.Instant) breaker.Transition) {
	change := event(call, b.instant())
	b.changed(ctx, queue, own, change)
	if call.Probe() && change.To != breaker.Open {
		b.resume(ctx, queue) // for the next probe, or for all
	}
}

// changed pauses the queue of a breaker that has opened.
func (b *Breaker) changed(ctx context.Context, queue string, own *breaker.Breaker, change breaker.Transition) {
	if !change.Happened() {
		return
	}
	b.config.Logger.Info().Str("queue", queue).Stringer("state", change.To).Stringer("cause", change.Cause).Msg("breaker of an asynq queue")
	if change.To == breaker.Open {
		b.pause(ctx, queue, own)
	}
}

// pause pauses a queue for as long as its breaker is known not to close, and returns that time.
func (b *Breaker) pause(ctx context.Context, queue string, own *breaker.Breaker) time.Duration {
	rest, known := own.NextChangeAt(b.instant())
	if !known || own.State() != breaker.Open {
		rest = probePause
	}
	rest = max(time.Millisecond, min(rest, b.config.MaxPause))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pauseTimeout)
	defer cancel()
	if err := b.pauser.pause(ctx, queue, rest); err != nil {
		b.config.Logger.Warn().Err(err).Msg("asynq queue not paused")
	}
	return rest
}

func (b *Breaker) resume(ctx context.Context, queue string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pauseTimeout)
	defer cancel()
	if err := b.pauser.resume(ctx, queue); err != nil {
		b.config.Logger.Warn().Err(err).Msg("asynq queue not resumed")
	}
}

// IsFailure is for asynq.Config: a task that a breaker held back has not failed.
func IsFailure(err error) bool { return !errors.Is(err, headgate.ErrBreakerOpen) }

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
