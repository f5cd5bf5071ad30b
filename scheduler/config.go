package scheduler

import (
	"cmp"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate"
)

// Config is what a Scheduler needs beside a store. The zero value works.
type Config struct {
	// Logger says when Redis is away and when its clock has stepped. Its zero value is silent.
	Logger zerolog.Logger
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
