package replay

import (
	"cmp"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/trace"
	"github.com/headgate/headgate/policy"
)

// Config says what to replay and how. Trace and Policy have no defaults.
type Config struct {
	Trace *trace.Trace
	// Excluded is the number of rows that were taken out of Trace.
	Excluded int
	// Speed is the factor: 1 to 1e9, zero means 1.
	Speed float64
	// Concurrency is the number of the worker's slots, 1 to 10000, zero means DefaultConcurrency.
	Concurrency int
	// Seed draws the classes of tenants, the payloads and the jitter of breakers.
	Seed uint64
	// MaxAttempts is how often a failing job runs in all, 1 to 255, zero means 1.
	MaxAttempts int
	// Preload enqueues everything before the worker starts.
	Preload bool
	// Policy is in force during the replay.
	Policy policy.Policy
	// Redis is the address of a Redis; empty means a private one. Keep leaves the keys there.
	Redis string
	Keep  bool
	// Logger is that of the producer and the worker.
	Logger zerolog.Logger
	// Progress takes progress and notes, standard error for one.
	Progress io.Writer
}

// DefaultConcurrency is enough for the trace of docs/perf/comparison.md at its own pace.
const DefaultConcurrency = 8

// Queue is the queue of every job.
const Queue = "replay"

const (
	maxSpeed       = 1e9
	maxConcurrency = 10_000
)

func (c Config) withDefaults() Config {
	c.Speed = cmp.Or(c.Speed, 1)
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 1)
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	return c
}

// Validate reports every bad field at once, by the names of the flags.
func (c Config) Validate() error {
	c = c.withDefaults()
	var bad []error
	field := func(ok bool, name, value, allowed string) {
		if !ok {
			bad = append(bad, &admission.FieldError{Field: name, Value: value, Allowed: allowed})
		}
	}
	field(c.Speed >= 1 && c.Speed <= maxSpeed, "--speed", strconv.FormatFloat(c.Speed, 'g', -1, 64), "1 to 1e9")
	field(c.Concurrency >= 1 && c.Concurrency <= maxConcurrency, "--concurrency", strconv.Itoa(c.Concurrency), "1 to 10000 slots")
	field(c.MaxAttempts >= 1 && c.MaxAttempts <= admission.MaxAttemptsLimit, "--max-attempts", strconv.Itoa(c.MaxAttempts), "1 to 255 runs")
	return errors.Join(bad...)
}

// scaled returns a time of the trace in the replay.
func (c Config) scaled(d time.Duration) time.Duration { return time.Duration(float64(d) / c.Speed) }

// longestRun is the longest time for which a handler works.
func (c Config) longestRun() time.Duration {
	longest := time.Duration(0)
	for i := range c.Trace.Rows {
		longest = max(longest, c.Trace.Rows[i].RunTime)
	}
	return c.scaled(longest)
}
