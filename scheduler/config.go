package scheduler

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
)

// Config is what a Scheduler needs beside a store. The zero value works.
type Config struct {
	// Logger says when Redis is away and when its clock has stepped. Its zero value is silent.
	Logger zerolog.Logger
	// OnDead, if not nil, is told about each dead letter, at least once, within two seconds or so, and by one Scheduler of
	// the deployment at a time: the holder of the timer lease. So all are to have it, or those that do not are to be
	// rare: while one of them holds the lease nobody is told. A letter for which it returns an error, or panics, is told again
	// after 1 s, then ever more seldom down to once a minute; the others go on. One that was purged, redriven or
	// dropped for its age before its turn is not told. Letters that were there before anybody followed them are told too. One
	// goroutine calls it; ctx ends with Run's.
	OnDead func(ctx context.Context, letter DeadLetter) error
	// OnBreaker, if not nil, is told about each transition of a downstream's circuit breaker, at least once and in their
	// order, by the one Scheduler that holds the timer lease, as with OnDead. A transition for which it returns an error, or panics, is
	// told again after 1 s, then ever more seldom down to once a minute, or when a *RetryError says; after OnBreakerRetry it
	// is given up, which is logged and counted. Others go on meanwhile: Period tells an old word from a new one. Transitions
	// from before anybody followed are not told, nor those that have left the stream, which keeps about the last 1000,
	// before their turn. One goroutine calls it; ctx ends with Run's.
	OnBreaker func(ctx context.Context, t Transition) error
	// OnAnomaly, if not nil, is told about each rate that is not usual, where the policy has anomalies, at least once and in their order, by the
	// one Scheduler that holds the timer lease. One for which it returns an error, or panics, is told again as with OnBreaker, and those behind
	// it wait; after OnBreakerRetry it is given up, which is logged. Those from before anybody followed are not told, nor those that have left
	// the last 1,000 before their turn. One goroutine calls it; ctx ends with Run's.
	OnAnomaly func(ctx context.Context, a Anomaly) error
	// OnTrigger, if not nil, is told about each trigger of the policy that begins to act, or acts no more, as OnAnomaly about anomalies; but those
	// that have left the audit before their turn are not.
	OnTrigger func(ctx context.Context, e TriggerEvent) error
	// OnBreakerRetry is for how long a transition, an anomaly, or a trigger is told again, 1 s to 24 h; zero means 1 h.
	OnBreakerRetry time.Duration
	// TimerLease is how long one Scheduler keeps the others from working, 100 ms to 1 min; zero means 1 s. It is also
	// how late timers may be when the holder dies.
	TimerLease time.Duration
}

const (
	defaultTimerLease = time.Second
	minTimerLease     = 100 * time.Millisecond
	maxTimerLease     = time.Minute

	defaultOnBreakerRetry = time.Hour
	minOnBreakerRetry     = time.Second
	maxOnBreakerRetry     = 24 * time.Hour
)

func (c Config) withDefaults() Config {
	c.TimerLease = cmp.Or(c.TimerLease, defaultTimerLease)
	c.OnBreakerRetry = cmp.Or(c.OnBreakerRetry, defaultOnBreakerRetry)
	return c
}

// validate reports every bad field at once.
func (c Config) validate() error {
	var bad []error
	if c.TimerLease < minTimerLease || c.TimerLease > maxTimerLease {
		bad = append(bad, &admission.FieldError{Field: "TimerLease", Value: c.TimerLease.String(), Allowed: "100ms to 1m"})
	}
	if c.OnBreakerRetry < minOnBreakerRetry || c.OnBreakerRetry > maxOnBreakerRetry {
		bad = append(bad, &admission.FieldError{Field: "OnBreakerRetry", Value: c.OnBreakerRetry.String(), Allowed: "1s to 24h"})
	}
	return errors.Join(bad...)
}
