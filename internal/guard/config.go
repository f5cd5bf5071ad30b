package guard

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
)

// Config is what a process may use before it takes no further work. A limit that is zero is none; without any there is no guard.
type Config struct {
	// MaxMemory is resident memory in bytes, of the process and of the processes that it started, up to 1 PiB. What these share
	// counts for each.
	MaxMemory int64
	// MaxCgroupMemory is a part of the memory that the cgroup of the process may have, up to 1: of all that is in it, but for
	// what the kernel can drop of files. A cgroup without a limit is an error.
	MaxCgroupMemory float64
	// MaxCPU is processors' time a second, of the process and of those that it started, up to 4096: 2 is two cores.
	MaxCPU float64
	// MaxCgroupCPU is a part of the processors' time that the cgroup may have, up to 1. A cgroup without a quota is an error.
	MaxCgroupCPU float64
	// MaxGoroutines is up to 10,000,000.
	MaxGoroutines int
	// MaxSchedLatency is how long all but one in a hundred goroutines may have waited for a processor since the last look, up to 1 min.
	MaxSchedLatency time.Duration
	// MaxRequestsPerMinute is how many jobs or calls may begin in any 60 s, to the second, up to 1,000,000,000.
	MaxRequestsPerMinute int
	// Interval is the time between two looks, 100 ms to 1 min; zero means 5 s.
	Interval time.Duration
	// WarnAt is the part of a limit from which on it is told, 0.1 to 1; zero means 0.8.
	WarnAt float64
	// Delays are how long new work, and the next look, wait by how near something is to its limit.
	Delays Delays
}

// Defaults and bounds of a Config.
const (
	DefaultInterval = 5 * time.Second
	DefaultWarnAt   = 0.8

	MaxMemory       = 1 << 50
	MaxCPU          = 4096
	MaxGoroutines   = 10_000_000
	MaxSchedLatency = time.Minute
	MaxRequests     = 1_000_000_000
	MinInterval     = 100 * time.Millisecond
	MaxInterval     = time.Minute
	MinWarnAt       = 0.1
)

// On reports whether anything is limited.
func (c Config) On() bool {
	c.Interval, c.WarnAt, c.Delays = 0, 0, Delays{}
	return c != Config{}
}

func (c Config) withDefaults() Config {
	c.Interval, c.WarnAt = cmp.Or(c.Interval, DefaultInterval), cmp.Or(c.WarnAt, DefaultWarnAt)
	c.Delays = c.Delays.WithDefaults()
	return c
}

// Validate reports every bad field at once.
func (c Config) Validate() error {
	c = c.withDefaults()
	var bad []error
	field := func(ok bool, name, value, allowed string) {
		if !ok {
			bad = append(bad, &admission.FieldError{Field: name, Value: value, Allowed: allowed})
		}
	}
	number := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	part := func(f float64) bool { return f >= 0 && f <= 1 }
	field(c.MaxMemory >= 0 && c.MaxMemory <= MaxMemory, "MaxMemory", strconv.FormatInt(c.MaxMemory, 10), "0 to 1125899906842624 bytes (1 PiB)")
	field(part(c.MaxCgroupMemory), "MaxCgroupMemory", number(c.MaxCgroupMemory), "0 to 1")
	field(c.MaxCPU >= 0 && c.MaxCPU <= MaxCPU, "MaxCPU", number(c.MaxCPU), "0 to 4096 cores")
	field(part(c.MaxCgroupCPU), "MaxCgroupCPU", number(c.MaxCgroupCPU), "0 to 1")
	field(c.MaxGoroutines >= 0 && c.MaxGoroutines <= MaxGoroutines, "MaxGoroutines", strconv.Itoa(c.MaxGoroutines), "0 to 10000000")
	field(c.MaxSchedLatency >= 0 && c.MaxSchedLatency <= MaxSchedLatency, "MaxSchedLatency", c.MaxSchedLatency.String(), "0s to 1m")
	field(c.MaxRequestsPerMinute >= 0 && c.MaxRequestsPerMinute <= MaxRequests, "MaxRequestsPerMinute", strconv.Itoa(c.MaxRequestsPerMinute), "0 to 1000000000")
	field(c.Interval >= MinInterval && c.Interval <= MaxInterval, "Interval", c.Interval.String(), "100ms to 1m")
	field(c.WarnAt >= MinWarnAt && c.WarnAt <= 1, "WarnAt", number(c.WarnAt), "0.1 to 1")
	return errors.Join(append(bad, c.Delays.Validate()...)...)
}
