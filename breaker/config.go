package breaker

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// Ratio is a part of a whole, above 0 and at most 1.
type Ratio float64

// Config says when a breaker opens, for how long, and what closes it. In every field zero means the default, so the
// zero Config works. The doc of the package has the rules.
type Config struct {
	// Window is how long an outcome counts: 10ms to 1h, default 10s.
	Window time.Duration
	// Buckets is the number of slices in which the window slides: 1 to 100, default 10.
	Buckets int
	// MinCalls is the fewest calls in the window by which a rate is judged: 1 to 1e6, default 10.
	MinCalls int
	// FailureRate is the part of calls whose failure trips: above 0, at most 1, default 0.5.
	FailureRate Ratio
	// FailureThreshold is the number of failures in a row that trips, whatever the window holds: 1 to 1e6,
	// default 10. A number never reached turns the rule off.
	FailureThreshold int
	// SlowCallDuration is what a call must last to be slow: 1ms to 24h, default 30s, which the calls of a model are rightly below.
	// Where calls are rightly longer it must be set, and where they are short a shorter one sees sooner that a downstream
	// hangs; 24h turns the rule off.
	SlowCallDuration time.Duration
	// SlowCallRate is the part of slow calls that trips: above 0, at most 1. The default is 0.8: a downstream
	// that hangs reaches it though some of its calls still fail fast, and one with a slow half does not.
	SlowCallRate Ratio
	// SuccessThreshold is how many probes must pass to close: 1 to 1000, default 5.
	SuccessThreshold int
	// MaxProbes is the largest number of probes in flight at a time: 1 to 100, default 1.
	MaxProbes int
	// ProbeTimeout is when a probe that has not ended counts as failed: 1ms to 1h, default 30s.
	ProbeTimeout time.Duration
	// OpenBase is the first cooldown before jitter: 1ms to 24h, default 1m. Each further trip in a row doubles it.
	OpenBase time.Duration
	// OpenMax is the largest cooldown before jitter: OpenBase to 24h, default 10m or OpenBase if that is longer.
	OpenMax time.Duration
	// ResetAfter is how long a breaker must stay closed for its next cooldown to be OpenBase again: 1ms to
	// 24h, default 10m.
	ResetAfter time.Duration
	// Rand returns the jitter, even in [0, 1): default rand.Float64 of math/rand/v2. It may be called from
	// several goroutines, and never under the breaker's lock.
	Rand func() float64
}

// The bounds that several fields share.
const (
	maxCount  = 1_000_000
	shortest  = time.Millisecond
	longest   = 24 * time.Hour
	maxWindow = time.Hour
	minWindow = 10 * time.Millisecond
)

func (c Config) withDefaults() Config {
	c.Window = cmp.Or(c.Window, 10*time.Second)
	c.Buckets = cmp.Or(c.Buckets, 10)
	c.MinCalls = cmp.Or(c.MinCalls, 10)
	c.FailureRate = cmp.Or(c.FailureRate, 0.5)
	c.FailureThreshold = cmp.Or(c.FailureThreshold, 10)
	c.SlowCallDuration = cmp.Or(c.SlowCallDuration, 30*time.Second)
	c.SlowCallRate = cmp.Or(c.SlowCallRate, 0.8)
	c.SuccessThreshold = cmp.Or(c.SuccessThreshold, 5)
	c.MaxProbes = cmp.Or(c.MaxProbes, 1)
	c.ProbeTimeout = cmp.Or(c.ProbeTimeout, 30*time.Second)
	c.OpenBase = cmp.Or(c.OpenBase, time.Minute)
	c.OpenMax = cmp.Or(c.OpenMax, max(10*time.Minute, c.OpenBase))
	c.ResetAfter = cmp.Or(c.ResetAfter, 10*time.Minute)
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return c
}

// ConfigError names a field outside its range, its value, and what is allowed there. admission.FieldErrors makes *admission.FieldErrors of
// them: this package stands alone.
type ConfigError struct{ Field, Value, Allowed string }

// Error returns "invalid FIELD VALUE: allowed is ALLOWED".
func (e *ConfigError) Error() string {
	return fmt.Sprintf("invalid %s %s: allowed is %s", e.Field, e.Value, e.Allowed)
}

// Invalid returns the field, its value, and what is allowed there.
func (e *ConfigError) Invalid() (field, value, allowed string) { return e.Field, e.Value, e.Allowed }

// Complete returns the config with its defaults filled in, or the error of Validate.
func (c Config) Complete() (Config, error) { return c.withDefaults(), c.Validate() }

// Validate returns one *ConfigError for each field outside its range, joined; nil if all are in it. NewAt calls it.
func (c Config) Validate() error {
	c = c.withDefaults()
	return errors.Join(
		checkDuration("Window", c.Window, minWindow, maxWindow),
		checkCount("Buckets", c.Buckets, 100),
		checkCount("MinCalls", c.MinCalls, maxCount),
		checkRatio("FailureRate", c.FailureRate),
		checkCount("FailureThreshold", c.FailureThreshold, maxCount),
		checkDuration("SlowCallDuration", c.SlowCallDuration, shortest, longest),
		checkRatio("SlowCallRate", c.SlowCallRate),
		checkCount("SuccessThreshold", c.SuccessThreshold, 1000),
		checkCount("MaxProbes", c.MaxProbes, 100),
		checkDuration("ProbeTimeout", c.ProbeTimeout, shortest, time.Hour),
		checkDuration("OpenBase", c.OpenBase, shortest, longest),
		checkDuration("OpenMax", c.OpenMax, min(max(c.OpenBase, shortest), longest), longest),
		checkDuration("ResetAfter", c.ResetAfter, shortest, longest),
	)
}

func checkDuration(field string, value, low, high time.Duration) error {
	if value >= low && value <= high {
		return nil
	}
	return &ConfigError{Field: field, Value: value.String(), Allowed: fmt.Sprintf("%s to %s", low, high)}
}

func checkCount(field string, value, high int) error {
	if value >= 1 && value <= high {
		return nil
	}
	return &ConfigError{Field: field, Value: strconv.Itoa(value), Allowed: fmt.Sprintf("1 to %d", high)}
}

func checkRatio(field string, value Ratio) error {
	if value > 0 && value <= 1 {
		return nil
	}
	return &ConfigError{Field: field, Value: strconv.FormatFloat(float64(value), 'g', -1, 64), Allowed: "above 0, at most 1"}
}
