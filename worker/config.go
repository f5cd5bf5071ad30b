package worker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/guard"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
)

// Config is what a Worker needs beside a store and handlers. Only Queues has no default.
type Config struct {
	// Logger says what goes wrong; its zero value is silent. How handlers fail is told without being asked for: a warning while the
	// job comes back, an error where it is a dead letter, with its tenant, id, queue, type and attempt, the error and the stack of
	// a panic, never the payload. An error with a method Brief() string is logged by that, since its text may quote a payload. Of failures
	// of one cause that is one line at once and one in 10 s, with the number of the others.
	Logger zerolog.Logger
	// SchedulerLogger and BreakerLogger, if not nil, are instead of Logger for the scheduler beside the worker and for the
	// circuit breakers.
	SchedulerLogger, BreakerLogger *zerolog.Logger
	// Queues are served in proportion to their weights, 1 to 1000 (zero means 1), 1 to 64 queues. Workers with the
	// same Queues and Strict form a pool and share a ready stream.
	Queues []store.QueueWeight
	// Strict serves a queue only while those before it have nothing that may run.
	Strict bool
	// Concurrency is the number of slots: jobs in hand at a time, 1 to 10000; zero means ten a processor.
	Concurrency int
	// Lease is for how long Redis leaves the jobs to a worker that is not heard of, 200 ms to 10 min; zero means 15 s.
	// Handlers' contexts end a tenth of it early.
	Lease time.Duration
	// DrainTimeout is how long running handlers may go on after Run's ctx has ended, up to 1 h; zero means 30 s. Where Redis is
	// away by then they may only until the lease ends.
	DrainTimeout time.Duration
	// DefaultTimeout ends the ctx of a handler whose job has no Timeout, 1 ms to headgate.MaxTimeout; zero means 5 min.
	// CallTimeout is instead for jobs that name a downstream, zero for DefaultTimeout. CallTimeouts is instead of both for single
	// downstreams. A handler's error says which of them cut it. A call that hangs holds its slot that long, but counts against the
	// downstream's circuit breaker as soon as it is slow (breaker.Config.SlowCallDuration).
	DefaultTimeout time.Duration
	CallTimeout    time.Duration
	CallTimeouts   map[string]time.Duration
	// Backoff is for jobs of which nothing more particular is known; nil means ExponentialBackoff(time.Second,
	// 10*time.Minute), which has full jitter. QueueBackoff replaces it for single queues, TypeBackoff both for single
	// types, and a job's own header headgate.HeaderBackoff all three.
	Backoff      BackoffFunc
	QueueBackoff map[string]BackoffFunc
	TypeBackoff  map[string]BackoffFunc
	// Breaker configures the circuit breaker of each downstream that Breakers does not name.
	Breaker breaker.Config
	// Breakers configures the circuit breakers of single downstreams.
	Breakers map[string]breaker.Config
	// ReportEvery is how long outcomes of calls wait to be reported to the fleet's breakers, 1 ms to 1 s; zero means
	// 100 ms; half of the shortest window of a breaker where that is less. So many outcomes of a downstream as ReportAfter, 1 to 10000, wait no longer; zero means 100.
	ReportEvery time.Duration
	ReportAfter int
	// Scheduler configures the scheduler that Run runs beside the worker, unless NoScheduler is set. It logs with
	// SchedulerLogger or Logger, whatever is set there.
	Scheduler scheduler.Config
	// NoScheduler leaves timers to schedulers elsewhere. When none is heard of, the worker runs what is due with
	// its heartbeats.
	NoScheduler bool
	// Guard is what the process may use of its machine before the worker takes no further jobs; its zero value is none.
	Guard GuardConfig
	// Observer is told about each job.
	Observer Observer
	// Learn, if not nil, is told what each job that ended here has cost, where its handler has told by SetCost: a producer.Producer's Learn, for one.
	// It is called from many goroutines at a time. A panic of it is logged and changes nothing.
	Learn func(tenant, queue, jobType string, actual admission.Tokens)

	// sampler measures for the guard; nil is the process. Tests have others.
	sampler guard.Sampler
}

// GuardConfig is what a process may use of its machine. At a limit the worker takes no further jobs and gives its free slots up,
// so that other workers get them; its running jobs go on, their lease is extended, and some below the limit it takes jobs again. From WarnAt of a
// limit on it is logged. A minute's requests are the jobs that it starts.
type GuardConfig = guard.Config

// GuardDelays are how long is waited by how near the process is to a limit.
type GuardDelays = guard.Delays

// Bounds and defaults of a Config.
const (
	maxQueues         = 64
	maxQueueWeight    = 1000
	maxConcurrency    = 10_000
	slotsPerProcessor = 10
	minLease          = 200 * time.Millisecond
	maxLease          = 10 * time.Minute
	maxDrainTimeout   = time.Hour
	maxReportAfter    = 10_000
)

func (c Config) withDefaults() Config {
	c.Queues = slices.Clone(c.Queues)
	for i := range c.Queues {
		c.Queues[i].Weight = cmp.Or(c.Queues[i].Weight, 1)
	}
	c.Concurrency = cmp.Or(c.Concurrency, slotsPerProcessor*runtime.GOMAXPROCS(0))
	c.Lease = cmp.Or(c.Lease, 15*time.Second)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, 30*time.Second)
	c.DefaultTimeout = cmp.Or(c.DefaultTimeout, 5*time.Minute)
	c.CallTimeout = cmp.Or(c.CallTimeout, c.DefaultTimeout)
	c.ReportEvery = cmp.Or(c.ReportEvery, 100*time.Millisecond)
	c.ReportAfter = cmp.Or(c.ReportAfter, 100)
	if c.Backoff == nil {
		c.Backoff = defaultBackoff
	}
	c.Breakers, c.CallTimeouts = maps.Clone(c.Breakers), maps.Clone(c.CallTimeouts)
	c.QueueBackoff, c.TypeBackoff = maps.Clone(c.QueueBackoff), maps.Clone(c.TypeBackoff)
	c.SchedulerLogger, c.BreakerLogger = cmp.Or(c.SchedulerLogger, &c.Logger), cmp.Or(c.BreakerLogger, &c.Logger)
	c.Scheduler.Logger = *c.SchedulerLogger
	return c
}

// validate reports every bad field at once.
func (c Config) validate() error {
	var bad []error
	field := func(ok bool, name, value, allowed string) {
		if !ok {
			bad = append(bad, &admission.FieldError{Field: name, Value: value, Allowed: allowed})
		}
	}
	field(len(c.Queues) >= 1 && len(c.Queues) <= maxQueues, "Queues", fmt.Sprintf("%d queues", len(c.Queues)), "1 to 64 queues")
	seen := make(map[string]bool, len(c.Queues))
	for i, q := range c.Queues {
		at := fmt.Sprintf("Queues[%d]", i)
		if err := admission.ValidateName(at, q.Queue, true); err != nil {
			bad = append(bad, err)
		}
		field(q.Weight >= 1 && q.Weight <= maxQueueWeight, at+".Weight", strconv.Itoa(q.Weight), "1 to 1000")
		field(!seen[q.Queue], at, strconv.Quote(q.Queue), "a queue that is named once")
		seen[q.Queue] = true
	}
	field(c.Concurrency >= 1 && c.Concurrency <= maxConcurrency, "Concurrency", strconv.Itoa(c.Concurrency), "1 to 10000 slots")
	field(c.Lease >= minLease && c.Lease <= maxLease, "Lease", c.Lease.String(), "200ms to 10m")
	field(c.DrainTimeout > 0 && c.DrainTimeout <= maxDrainTimeout, "DrainTimeout", c.DrainTimeout.String(), "above 0, up to 1h")
	field(c.DefaultTimeout >= time.Millisecond && c.DefaultTimeout <= admission.MaxTimeout, "DefaultTimeout", c.DefaultTimeout.String(), "1ms to 24h")
	field(c.CallTimeout == c.DefaultTimeout || c.CallTimeout >= time.Millisecond && c.CallTimeout <= admission.MaxTimeout, "CallTimeout", c.CallTimeout.String(), "1ms to 24h")
	field(c.ReportEvery >= time.Millisecond && c.ReportEvery <= time.Second, "ReportEvery", c.ReportEvery.String(), "1ms to 1s")
	field(c.ReportAfter >= 1 && c.ReportAfter <= maxReportAfter, "ReportAfter", strconv.Itoa(c.ReportAfter), "1 to 10000 outcomes")
	if err := admission.FieldErrors(c.Breaker.Validate()); err != nil {
		bad = append(bad, fmt.Errorf("breaker: %w", err))
	}
	if err := c.Guard.Validate(); err != nil {
		bad = append(bad, fmt.Errorf("guard: %w", err))
	}
	bad = append(bad, c.validateDownstreams()...)
	bad = append(bad, validateBackoffs("QueueBackoff", "queue", c.QueueBackoff)...)
	bad = append(bad, validateBackoffs("TypeBackoff", "type", c.TypeBackoff)...)
	return errors.Join(bad...)
}

// validateDownstreams looks at what is said of single downstreams.
func (c Config) validateDownstreams() (bad []error) {
	for _, downstream := range slices.Sorted(maps.Keys(c.Breakers)) {
		if err := admission.ValidateService("downstream", downstream, false); err != nil {
			bad = append(bad, err)
		}
		if err := admission.FieldErrors(c.Breakers[downstream].Validate()); err != nil {
			bad = append(bad, fmt.Errorf("breaker of downstream %s: %w", downstream, err))
		}
	}
	for _, downstream := range slices.Sorted(maps.Keys(c.CallTimeouts)) {
		if err := admission.ValidateService("downstream of CallTimeouts", downstream, false); err != nil {
			bad = append(bad, err)
		}
		if timeout := c.CallTimeouts[downstream]; timeout < time.Millisecond || timeout > admission.MaxTimeout {
			bad = append(bad, &admission.FieldError{Field: "CallTimeouts[" + strconv.Quote(downstream) + "]", Value: timeout.String(), Allowed: "1ms to 24h"})
		}
	}
	return bad
}

func validateBackoffs(field, kind string, backoffs map[string]BackoffFunc) (bad []error) {
	for _, name := range slices.Sorted(maps.Keys(backoffs)) {
		if err := admission.ValidateName(kind+" of "+field, name, kind == "queue"); err != nil {
			bad = append(bad, err)
		}
		if backoffs[name] == nil {
			bad = append(bad, &admission.FieldError{Field: field + "[" + strconv.Quote(name) + "]", Value: "nil", Allowed: "a function"})
		}
	}
	return bad
}
