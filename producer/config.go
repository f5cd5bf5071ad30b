package producer

import (
	"cmp"
	"errors"
	"strconv"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Config is what a Producer needs beside a store. The zero value works.
type Config struct {
	// Logger says when Redis is away, when the policy changes, and, at the level info, which jobs are refused: one a second
	// for each reason, with the number of all since then. Its zero value is silent.
	Logger zerolog.Logger
	// Observer is told about each job.
	Observer Observer
	// Policy fixes the limits; later changes to it do not show. Its Version must be that of the policy that the
	// store holds (0 where none was stored), and so must its classes. Nil means the policy that the store holds,
	// read at the first call and again whenever the store says that it has changed.
	Policy *policy.Policy
	// MaxPayload is the largest payload of a job in bytes, 1 B to 64 MiB; zero means headgate.DefaultMaxPayload.
	MaxPayload int
	// Uncounted leaves the decisions of limits out of the minutes of their scopes, which metrics show and dry runs replay. They cost a
	// command a second at the most.
	Uncounted bool
	// Timeout bounds a call as a whole, waiting in line and resending included: Enqueue, each 64 jobs of
	// EnqueueBatch, each try of EnqueueWait. 1 ms to 1 min; zero means 2 s,
	// or the ReadTimeout of the store's client if that is longer.
	Timeout time.Duration
	// DedupWindow is how long the store remembers the id of an ended job: nothing in doubt is resent after it. Zero
	// means the policy's, which is right unless somebody else set the store's to less.
	DedupWindow time.Duration
	// InFlight is how many admit calls may be under way at a time, 1 to 16; zero means 8. Beside those that are under way another
	// goes out only where it has as many jobs as these together, where it is full (64 jobs or 256 KiB), or where the last went out longer ago than
	// calls took of late, divided by InFlight, at least 1 ms if they took as long, so that all of them take turns where Redis is far away. Jobs with
	// more than 64 KiB of payload have half as many calls of their own, so that no other waits for them. In a deployment of
	// several partitions this and the bounds below are of each.
	InFlight int
	// MaxWaiting bounds the jobs that wait for a call, and MaxWaitingBytes their payloads, in the line of those of up to 64 KiB
	// and in that of the others: 64 to 1,000,000 jobs, zero means 10,000; 1 MiB to 1 GiB, zero means 64 MiB. A tenant may have
	// as much waiting as is left free. Whoever finds no room, or could not be sent in time, hears headgate.ErrOverloaded at once.
	MaxWaiting      int
	MaxWaitingBytes int
}

// Bounds and defaults of a Config.
const (
	maxMaxPayload   = 64 << 20
	defaultTimeout  = 2 * time.Second
	maxTimeout      = time.Minute
	defaultInFlight = 8
	maxInFlight     = 16

	minWaiting          = store.MaxBatchJobs
	defaultWaiting      = 10_000
	maxWaiting          = 1_000_000
	minWaitingBytes     = 1 << 20
	defaultWaitingBytes = 64 << 20
	maxWaitingBytes     = 1 << 30
)

func (c Config) withDefaults(store store.Deployment) Config {
	c.MaxPayload = cmp.Or(c.MaxPayload, admission.DefaultMaxPayload)
	if c.Timeout == 0 {
		c.Timeout = min(max(defaultTimeout, store.ReadTimeout()), maxTimeout)
	}
	c.InFlight = cmp.Or(c.InFlight, defaultInFlight)
	c.MaxWaiting = cmp.Or(c.MaxWaiting, defaultWaiting)
	c.MaxWaitingBytes = cmp.Or(c.MaxWaitingBytes, defaultWaitingBytes)
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
	field(c.MaxPayload >= 1 && c.MaxPayload <= maxMaxPayload, "MaxPayload", strconv.Itoa(c.MaxPayload), "1 to 67108864 bytes")
	field(c.Timeout >= time.Millisecond && c.Timeout <= maxTimeout, "Timeout", c.Timeout.String(), "1ms to 1m")
	field(c.DedupWindow >= 0 && c.DedupWindow <= policy.MaxDedupWindow, "DedupWindow", c.DedupWindow.String(), "0 to 24h")
	field(c.InFlight >= 1 && c.InFlight <= maxInFlight, "InFlight", strconv.Itoa(c.InFlight), "1 to 16")
	field(c.MaxWaiting >= minWaiting && c.MaxWaiting <= maxWaiting, "MaxWaiting", strconv.Itoa(c.MaxWaiting), "64 to 1000000 jobs")
	field(c.MaxWaitingBytes >= minWaitingBytes && c.MaxWaitingBytes <= maxWaitingBytes, "MaxWaitingBytes", strconv.Itoa(c.MaxWaitingBytes), "1048576 to 1073741824 bytes")
	if c.Policy != nil {
		bad = append(bad, c.Policy.Validate())
	}
	return errors.Join(bad...)
}
