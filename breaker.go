package headgate

import (
	"context"
	"errors"
	"time"
)

// Breaker is the fleet's circuit breaker of a downstream, for calls outside of jobs.
type Breaker struct {
	client     *Client
	downstream string
}

// Breaker returns that of a downstream, the one under which jobs with this Downstream run.
func (c *Client) Breaker(downstream string) Breaker {
	return Breaker{client: c, downstream: downstream}
}

// Acquire asks whether a call may begin. If it may, done must be called with what it came to: nil, an error of the downstream, or one
// of Throttled or Ignore. If not, the error is a *Refusal for ReasonBreaker. A client begins to follow the fleet's breakers with its first call of
// one: until it has heard that one is open, in some milliseconds, calls may begin.
//
//	done, err := hg.Breaker("smtp").Acquire(ctx)
//	if err != nil {
//		return err
//	}
//	defer func() { done(err) }()
func (b Breaker) Acquire(ctx context.Context) (done func(error), err error) {
	call, wait, ok := b.client.guests.run(ctx).Begin(ctx, b.downstream)
	if !ok {
		return nil, told(&RefusedError{Verdict: Verdict{Reason: ReasonBreaker, Detail: b.downstream, RetryAfter: max(wait, 0)}})
	}
	return func(err error) {
		switch {
		case err == nil:
			call.Succeeded(ctx)
		case IsThrottled(err):
			call.Throttled(ctx)
		case IsIgnored(err) || errors.Is(err, context.Canceled) && ctx.Err() != nil:
			call.Ignored(ctx)
		default:
			call.FailedBy(ctx, err)
		}
	}, nil
}

// State is the last word on the breaker: closed, open or half-open, and for how long an open one stays so. A client that does not follow
// the fleet's breakers yet asks Redis first; with Redis away, what it has not heard of is closed.
func (b Breaker) State(ctx context.Context) (state string, rest time.Duration) {
	s := b.client.guests.run(ctx).FirstWord(ctx, b.downstream)
	return s.State.String(), s.Rest
}
