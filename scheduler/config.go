package scheduler

import (
	"cmp"
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate"
)

// Config is what a Scheduler needs beside a store. The zero value works.
type Config struct {
	// Logger says when Redis is away and when its clock has stepped. Its zero value is silent.
	Logger zerolog.Logger
	// OnDead, if not nil, is told about each dead letter, at least once, within two seconds or so, and by one Scheduler of
	// the deployment at a time: the holder of the timer lease. So all are to have it, or those that do not are to be
	// rare: while one of them holds the lease nobody is told. A letter for which it returns an error is told again
	// after 1 s, then ever more seldom down to once a minute; the others go on. One that was purged, redriven or
	// dropped for its age before its turn is not told. Letters that were there before anybody followed them are told too. One
	// goroutine calls it; ctx ends with Run's.
	OnDead func(ctx context.Context, letter DeadLetter) error
	// TimerLease is how long one Scheduler keeps the others from working, 100 ms to 1 min; zero means 1 s. It is also
	// how late timers may be when the holder dies.
	TimerLease time.Duration
}

const (
	defaultTimerLease = time.Second
	minTimerLease     = 100 * time.Millisecond
	maxTimerLease     = time.Minute
)

func (c Config) withDefaults() Config {
	c.TimerLease = cmp.Or(c.TimerLease, defaultTimerLease)
	return c
}

// validate reports every bad field at once.
func (c Config) validate() error {
	if c.TimerLease < minTimerLease || c.TimerLease > maxTimerLease {
		return &headgate.FieldError{Field: "TimerLease", Value: c.TimerLease.String(), Allowed: "100ms to 1m"}
	}
	return nil
}
