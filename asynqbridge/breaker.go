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

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// BreakerConfig is what a Breaker needs beside asynq's Redis and a store. The zero value works.
type BreakerConfig struct {
	// Logger says when a breaker changes and what goes wrong; its zero value is silent.
	Logger zerolog.Logger
	// Downstreams names what the handlers of a queue call, by the queue. One that is not here has a downstream of its own
	// name; if that is none that headgate.ValidateName takes, it is not guarded. Several queues, and jobs of Headgate's
	// workers, may have the same downstream.
	Downstreams map[string]string
	// Breaker configures the circuit breaker of each downstream that Breakers does not name.
	Breaker breaker.Config
	// Breakers configures the circuit breakers of single downstreams.
	Breakers map[string]breaker.Config
	// IsFailure says which errors of handlers are failures of what they call; nil means all but asynq.RevokeTask, and
	// context.Canceled.
	IsFailure func(error) bool
	// MaxPause is the longest TTL of a pause, 100 ms to 1 h; zero means 30 s. A breaker that is open for longer pauses
	// again. So long does a queue stay paused whose servers have all died.
	MaxPause time.Duration
}

// Bounds and defaults of a BreakerConfig.
const (
	defaultMaxPause = 30 * time.Second
	minMaxPause     = 100 * time.Millisecond
	maxMaxPause     = time.Hour
)

// withDefaults copies what a caller may change later.
func (c BreakerConfig) withDefaults() BreakerConfig {
	c.MaxPause = cmp.Or(c.MaxPause, defaultMaxPause)
	c.Downstreams, c.Breakers = maps.Clone(c.Downstreams), maps.Clone(c.Breakers)
	if c.IsFailure == nil {
		c.IsFailure = func(err error) bool {
			return !errors.Is(err, asynq.RevokeTask) && !errors.Is(err, context.Canceled)
		}
	}
	return c
}

// validate reports every bad field that worker.NewGuest does not look at.
func (c BreakerConfig) validate() error {
	var bad []error
	for _, queue := range slices.Sorted(maps.Keys(c.Downstreams)) {
		bad = append(bad, admission.ValidateService(fmt.Sprintf("Downstreams[%q]", queue), c.Downstreams[queue], false))
	}
	if c.MaxPause < minMaxPause || c.MaxPause > maxMaxPause {
		bad = append(bad, &admission.FieldError{Field: "MaxPause", Value: c.MaxPause.String(), Allowed: "100ms to 1h"})
	}
	return errors.Join(bad...)
}

// Breaker guards what the handlers of an asynq server call, by the fleet's circuit breaker of the downstream: what they come
// to counts in the same window, under the same quorum, as the calls of all other servers and of Headgate's workers, and
// probes are leased from one limit. A queue is what asynq can pause, so what fails together should have one of its own.
// While a breaker is open its queues are paused for every server, by a key with a TTL, which asynq's servers look at before
// each task. A pause that an operator has set (asynq's Inspector, asynqmon) is neither changed nor ended. Several goroutines
// may use it.
type Breaker struct {
	config BreakerConfig
	redis  redis.UniversalClient
	pauser pauser
	guest  *worker.Guest
	// changed says that there is something in mu.changed.
	changed chan struct{}

	mu struct {
		sync.Mutex
		// queues are those that are known of a downstream, changed the downstreams whose queues may have to be paused or
		// resumed.
		queues  map[string]map[string]bool
		changed map[string]bool
	}
}

// NewBreaker returns a Breaker on asynq's Redis and Headgate's store. It sends nothing before Run. Close ends its connections
// to asynq's Redis; the store is the caller's.
func NewBreaker(connection asynq.RedisConnOpt, store store.Deployment, config BreakerConfig) (*Breaker, error) {
	config = config.withDefaults()
	b := &Breaker{config: config, changed: make(chan struct{}, 1)}
	b.mu.queues, b.mu.changed = make(map[string]map[string]bool), make(map[string]bool)
	guest, err := worker.NewGuest(store, worker.GuestConfig{
		Logger: config.Logger, Breaker: config.Breaker, Breakers: config.Breakers, Changed: b.note,
	})
	if err := errors.Join(err, config.validate()); err != nil {
		return nil, fmt.Errorf("configure breaker: %w", err)
	}
	client, _, err := connect(connection)
	if err != nil {
		return nil, fmt.Errorf("configure breaker: %w", err)
	}
	b.guest, b.redis, b.pauser = guest, client, pauser{client}
	for queue, downstream := range config.Downstreams {
		b.know(queue, downstream)
	}
	return b, nil
}

// Close ends the connections to asynq's Redis. Pauses end by themselves. It must not be called before Run has returned.
func (b *Breaker) Close() error { return b.redis.Close() }

// Run reports outcomes to the fleet's breakers, and pauses and resumes the queues that this process knows, until ctx ends.
// It belongs beside each server that has the Middleware: without it each breaker is one process's own, and pauses nothing.
func (b *Breaker) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { b.settle(ctx) })
	return b.guest.Run(ctx)
}

// Middleware is an asynq.MiddlewareFunc. A task that the breaker holds back gets an *OpenError; IsFailure and RetryDelay in
// the server's Config keep that from counting as one of its attempts, and so a failed probe from counting as the task's. One
// that has no attempt left, which asynq would archive for any error, waits instead, in its slot.
func (b *Breaker) Middleware(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		queue, ok := asynq.GetQueueName(ctx)
		if !ok {
			return next.ProcessTask(ctx, task)
		}
		downstream := b.downstreamOf(queue)
		call, err := b.begin(ctx, queue, downstream)
		if err != nil {
			return err
		}
		return b.run(ctx, queue, downstream, call, func(ctx context.Context) error { return next.ProcessTask(ctx, task) })
	})
}

// run makes the call and tells the breaker what it came to.
func (b *Breaker) run(ctx context.Context, queue, downstream string, call *worker.GuestCall, handler func(context.Context) error) error {
	ended := false
	end := func(verdict func(context.Context)) {
		ended = true
		verdict(ctx)
		if call.Probe() {
			b.note(downstream) // for the next probe
		}
	}
	defer func() {
		if !ended { // a panic
			end(call.Failed)
		}
	}()
	limited := ctx
	if most := call.Timeout(); most > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, most)
		defer cancel()
	}
	err := handler(limited)
	switch {
	case err == nil:
		end(call.Succeeded)
	case !b.config.IsFailure(err):
		end(call.Ignored)
	default:
		end(func(ctx context.Context) { call.FailedBy(ctx, err) })
		if call.Probe() && attemptsLeft(ctx) {
			return &OpenError{Queue: queue, RetryAfter: b.rest(downstream, 0), Probe: err}
		}
	}
	return err
}

func (b *Breaker) downstreamOf(queue string) string {
	downstream := cmp.Or(b.config.Downstreams[queue], queue)
	if admission.ValidateService("downstream", downstream, false) != nil {
		return ""
	}
	b.know(queue, downstream)
	return downstream
}

func (b *Breaker) know(queue, downstream string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.queues[downstream] == nil {
		b.mu.queues[downstream] = make(map[string]bool)
	}
	b.mu.queues[downstream][queue] = true
}

// attemptsLeft reports whether asynq would retry the task of ctx.
func attemptsLeft(ctx context.Context) bool {
	retried, ok := asynq.GetRetryCount(ctx)
	most, known := asynq.GetMaxRetry(ctx)
	return ok && known && retried < most
}
