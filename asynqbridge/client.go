package asynqbridge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/callback"
	"github.com/headgate/headgate/internal/tally"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// ErrNotRefunded matches an error of asynq after which a task's tokens are gone: it is not known whether the task is in
// asynq, or whether the tokens could be given back.
var ErrNotRefunded = errors.New("tokens not refunded")

// ClientConfig is what a Client needs beside asynq's Redis and a store. The zero value works.
type ClientConfig struct {
	// Logger is told of tokens that could not be refunded. Its zero value is silent.
	Logger zerolog.Logger
	// Timeout bounds what a call waits for Headgate, 1 ms to 1 min; zero means 2 s. asynq's own part is bounded by the
	// ctx, as without a Client.
	Timeout time.Duration
}

// Bounds and defaults of a ClientConfig.
const (
	defaultTimeout = 2 * time.Second
	maxTimeout     = time.Minute
)

// Client is an asynq.Client whose tasks pass Headgate's token buckets first. What it enqueues is asynq's own: the same
// options, the same TaskInfo, the same errors. Several goroutines may use it.
type Client struct {
	asynq    *asynq.Client
	redis    redis.UniversalClient
	once     bool
	resolver resolver
	store    store.Deployment
	limits   limits
	counts   tally.Tally
	config   ClientConfig
}

// NewClient returns a Client on asynq's Redis and Headgate's store. It sends nothing. Close ends its connections to
// asynq's Redis; the store is the caller's.
func NewClient(connection asynq.RedisConnOpt, store store.Deployment, config ClientConfig) (*Client, error) {
	config.Timeout = cmp.Or(config.Timeout, defaultTimeout)
	if config.Timeout < time.Millisecond || config.Timeout > maxTimeout {
		return nil, fmt.Errorf("configure client: %w", &admission.FieldError{Field: "Timeout", Value: config.Timeout.String(), Allowed: "1ms to 1m"})
	}
	client, once, err := connect(connection)
	if err != nil {
		return nil, fmt.Errorf("configure client: %w", err)
	}
	client.AddHook(witness{})
	return &Client{
		asynq: asynq.NewClientFromRedisClient(client), redis: client, once: once, resolver: newResolver(),
		store: store, limits: limits{store: store}, config: config,
	}, nil
}

// Close stores the counts of what the buckets have decided on, which otherwise takes a second, and ends the connections to asynq's
// Redis.
func (c *Client) Close() error {
	c.flush(context.Background(), true) //nolint:forbidigo // asynq.Client's has no ctx either.
	return c.redis.Close()
}

// flush stores the counts, so that metrics show them and dry runs replay them, as tally.Flush does.
func (c *Client) flush(ctx context.Context, all bool) (more bool) {
	err := callback.Try(func() (err error) {
		more, err = c.counts.Flush(ctx, c.store, c.limits.snapshot.Load(), all)
		return err
	})
	if err != nil {
		c.config.Logger.Warn().Err(err).Msg("decisions are not counted")
	}
	return more
}

// count counts what the buckets have decided on. Tokens that are refunded stay counted.
func (c *Client) count(ctx context.Context, path tally.Path, asked claim, verdict *admission.Verdict) {
	one := tally.Sum{Tokens: asked.cost}
	switch {
	case verdict.Decision == admission.Admitted:
		one.Allowed = 1
	case verdict.Reason == admission.ReasonLimited || verdict.Reason == admission.ReasonTooCostly:
		one.Refused = 1
	default:
		return
	}
	c.counts.NoteAlone(func(add func(tally.Path, tally.Sum)) {
		add(path, one)
	}, func(all bool) bool { return c.flush(ctx, all) })
}

// Ping asks asynq's Redis whether it is there.
func (c *Client) Ping() error { return c.asynq.Ping() }

// Enqueue is EnqueueContext without a ctx.
func (c *Client) Enqueue(task *asynq.Task, options ...asynq.Option) (*asynq.TaskInfo, error) {
	return c.EnqueueContext(context.Background(), task, options...) //nolint:forbidigo // as asynq.Client does
}

// EnqueueContext is that of asynq.Client for a task whose tenant an option, the ctx or a header names. A task that the
// buckets refuse does not reach asynq: the error is a *headgate.RefusedError with the scope and the wait, and matches
// headgate.ErrLimited or the error of its reason. With Headgate's Redis away it matches headgate.ErrUnavailable, and
// nothing was enqueued either. When asynq refuses, its own error comes back and the tokens are refunded; where that cannot
// be, the error matches ErrNotRefunded too.
func (c *Client) EnqueueContext(ctx context.Context, task *asynq.Task, options ...asynq.Option) (*asynq.TaskInfo, error) {
	info, err := c.resolver.resolve(ctx, task, options)
	if err != nil {
		return nil, err
	}
	claim, err := claimOf(ctx, task, options)
	if err != nil {
		return nil, err
	}
	if err := admission.ValidateName("queue", info.Queue, true); err != nil {
		return nil, err
	}
	receipt, err := c.take(ctx, claim, info.Queue, task.Type())
	if err != nil {
		return nil, err
	}
	a := attempt{}
	named := append(slices.Clip(options), asynq.TaskID(info.ID))
	enqueued, err := c.asynq.EnqueueContext(context.WithValue(ctx, attemptKey{}, &a), task, named...)
	if err != nil {
		return nil, c.refund(ctx, receipt, a, err)
	}
	return enqueued, nil
}

// take asks the buckets.
func (c *Client) take(ctx context.Context, asked claim, queue, taskType string) (receipt store.Taken, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	var verdict admission.Verdict
	var path tally.Path
	err = c.limits.with(ctx, func(snapshot *policy.Compiled) error {
		class, ok := snapshot.ClassNamed(queue, asked.class)
		if !ok {
			return &admission.FieldError{Field: "priority", Value: string(asked.class), Allowed: "a class of queue " + queue}
		}
		path = tally.Path{Tenant: asked.tenant, Queue: queue, Class: class} // A number from 0 to 10 is a name now.
		if snapshot.CountsType(asked.tenant, queue, taskType) && admission.ValidateName("type", taskType, false) == nil {
			path.Type = taskType
		}
		limits, ofType, record := snapshot.WayOfType(asked.tenant, queue, class, taskType)
		if ofType != nil {
			if err := admission.ValidateName("type", taskType, false); err != nil {
				return err
			}
		}
		var err error
		verdict, receipt, err = c.store.Take(ctx, snapshot.Version(), store.Question{
			Tenant: asked.tenant, Queue: queue, Class: class, Cost: asked.cost, Limits: limits, Record: record, TypeLimit: store.TypeLimitOf(taskType, ofType),
		})
		return err
	})
	switch {
	case err != nil && store.InDoubt(err):
		return receipt, fmt.Errorf("ask headgate, %w: %w", ErrNotRefunded, errors.Join(admission.ErrUnavailable, err))
	case err != nil:
		return receipt, fmt.Errorf("ask headgate: %w", err)
	}
	c.count(ctx, path, asked, &verdict)
	return receipt, verdict.Err()
}

// refundTries is how often a refund in doubt is sent: it counts once.
const refundTries = 2

// refund gives back the tokens of a task that asynq refused with cause, if it is known not to have it. The caller's ctx may
// have ended; the refund has a time of its own.
func (c *Client) refund(ctx context.Context, receipt store.Taken, a attempt, cause error) error {
	refused := errors.Is(cause, asynq.ErrDuplicateTask) || errors.Is(cause, asynq.ErrTaskIDConflict)
	if !c.once || a.sent && !refused {
		return fmt.Errorf("%w: %w", cause, ErrNotRefunded)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.config.Timeout)
	defer cancel()
	id := uuid.NewString()
	word, err := c.store.Refund(ctx, id, receipt)
	for try := 1; err != nil && store.InDoubt(err) && try < refundTries; try++ {
		word, err = c.store.Refund(ctx, id, receipt)
	}
	if err == nil && (word == store.Refunded || word == store.RefundedBefore) {
		return cause
	}
	c.config.Logger.Warn().Err(err).Str("answer", string(word)).AnErr("cause", cause).Msg("tokens not refunded")
	return fmt.Errorf("%w: %w", cause, errors.Join(ErrNotRefunded, err))
}
