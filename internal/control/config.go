package control

import (
	"cmp"
	"errors"
	"math"
	"strconv"
	"time"
)

// Controller names a rule by which a limit moves.
type Controller string

// The controllers.
const (
	// Gradient goes where throughput grows with the limit.
	Gradient Controller = "gradient"
	// AIMD grows until calls take too long or fail.
	AIMD Controller = "aimd"
	// PID holds how long calls take at a target.
	PID Controller = "pid"
)

// Config is by what a limit moves. Min, Max and Interval have to be there.
type Config struct {
	Controller Controller
	// Min and Max are the bounds of the limit, 1 or more.
	Min, Max int
	// Interval is how often it is looked.
	Interval time.Duration
	// MaxRunTime is how long calls may take in the mean, zero for no bound.
	MaxRunTime time.Duration
	// MaxFailures is which part of the calls may fail, above 0 and at most 1; zero means DefaultMaxFailures.
	MaxFailures float64
	// TargetRunTime is how long calls are to take in the mean: of PID alone, which has to have it, and above zero, or a Target.
	TargetRunTime time.Duration
	// Target is where PID and AIMD hold a signal (Sample.Signal), in its unit, above zero; zero means that they go by no signal.
	Target float64
	// Falls says that the signal falls as the limit grows, as waits for it do: then the limit grows above the target.
	Falls bool
	// Gains are those of PID; all zero means DefaultGains.
	Gains Gains
}

// DefaultMaxFailures is half of what opens a circuit breaker by default.
const DefaultMaxFailures = 0.25

// WithDefaults returns the config with what it leaves out.
func (c Config) WithDefaults() Config {
	c.Controller, c.MaxFailures = cmp.Or(c.Controller, Gradient), cmp.Or(c.MaxFailures, DefaultMaxFailures)
	if c.Controller == PID {
		c.Gains = cmp.Or(c.Gains, DefaultGains)
	}
	return c
}

// configError names a field outside its range, as admission.FieldErrors wants it: this package stands alone.
type configError struct{ field, value, allowed string }

func (e *configError) Error() string {
	return "invalid " + e.field + " " + e.value + ": allowed is " + e.allowed
}

func (e *configError) Invalid() (field, value, allowed string) { return e.field, e.value, e.allowed }

// Validate reports every bad field at once, each by an error that has Invalid.
func (c Config) Validate() error {
	var bad []error
	add := func(field, value, allowed string) {
		bad = append(bad, &configError{field, value, allowed})
	}
	if c.Controller != "" && c.Controller != Gradient && c.Controller != AIMD && c.Controller != PID {
		add("controller", strconv.Quote(string(c.Controller)), `"gradient", "aimd" or "pid"`)
	}
	c.validatePID(add)
	validateBounds(c.Min, c.Max, c.Interval, add)
	if c.MaxRunTime < 0 {
		add("max_run_time", c.MaxRunTime.String(), "0 or more")
	}
	if !(c.MaxFailures >= 0 && c.MaxFailures <= 1) {
		add("max_failures", strconv.FormatFloat(c.MaxFailures, 'g', -1, 64), "above 0, at most 1")
	}
	return errors.Join(bad...)
}

// validateBounds checks what each controller has.
func validateBounds(least, most int, interval time.Duration, add func(field, value, allowed string)) {
	if least < 1 {
		add("min", strconv.Itoa(least), "1 or more")
	}
	if most < least {
		add("max", strconv.Itoa(most), "min or more")
	}
	if interval <= 0 {
		add("interval", interval.String(), "above 0")
	}
}

// validatePID reports what PID lacks, what is there for PID alone, and a target that nothing holds.
func (c Config) validatePID(add func(field, value, allowed string)) {
	c.Gains.validate(c.Controller == PID, add)
	switch {
	case !(c.Target >= 0) || math.IsInf(c.Target, 0):
		add("target", strconv.FormatFloat(c.Target, 'g', -1, 64), "above 0")
	case c.Target > 0 && c.Controller != PID && c.Controller != AIMD:
		add("target", strconv.FormatFloat(c.Target, 'g', -1, 64), "none, but of pid and aimd")
	case c.Target > 0 && c.TargetRunTime != 0:
		add("target_run_time", c.TargetRunTime.String(), "none beside a target of a signal")
	case c.Target > 0:
	case c.Controller != PID && c.TargetRunTime != 0:
		add("target_run_time", c.TargetRunTime.String(), "none, but of pid")
	case c.Controller == PID && c.TargetRunTime <= 0:
		add("target_run_time", c.TargetRunTime.String(), "above 0: pid holds the run time there")
	}
}
