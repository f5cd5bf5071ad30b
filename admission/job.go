package admission

import (
	"math"
	"time"
)

// Limits of a job's fields. They hold at the edge, before anything is written.
const (
	// MaxNameLength is the longest name of a tenant, queue, type, downstream, class or job, in bytes.
	MaxNameLength = 128
	// DefaultMaxPayload is the largest payload a producer takes unless its Config says otherwise, in bytes.
	DefaultMaxPayload = 1 << 20
	// MaxCost is the largest cost of one job, in whole tokens.
	MaxCost Tokens = 1_000_000
	// LearnedCost in the place of a job's cost has a producer guess it, from what its Learn was told of the tenant's jobs of the type in the queue.
	LearnedCost = Tokens(math.MinInt64)
	// MaxActualCost is the largest cost that may be told of work once it is known, in whole tokens: what was reserved is an estimate.
	MaxActualCost = 10 * MaxCost
	// MaxAttemptsLimit is the largest value of Job.MaxAttempts.
	MaxAttemptsLimit = 255
	// DefaultMaxAttempts is the number of runs a job gets when Job.MaxAttempts is zero.
	DefaultMaxAttempts = 5
	// MaxHeaders is the largest number of headers of one job.
	MaxHeaders = 32
	// MaxHeaderBytes is the largest sum of the lengths of all header names and values of one job.
	MaxHeaderBytes = 4096
	// MaxDelay is the longest that a job may be told to wait before it starts.
	MaxDelay = 366 * 24 * time.Hour
	// MaxUniqueFor is the longest that a unique key is held, DefaultUniqueFor how long unless the job says.
	MaxUniqueFor     = 30 * 24 * time.Hour
	DefaultUniqueFor = 24 * time.Hour
	// MaxTimeout is the longest time a single run of a handler may be given.
	MaxTimeout = 24 * time.Hour
)

// Job is one unit of work as a producer describes it. NewJob fills what has a default; the other fields are
// the caller's. A Job is a plain value: copies are independent but for Payload and Headers, which the SDK reads and never
// changes. After an error that matches ErrOutcomeUnknown it may still read them for the time of a call, on behalf of
// others whose jobs travel together: do not use their memory again then.
type Job struct {
	// ID names the job within its tenant, 1-128 bytes of [A-Za-z0-9._:@/-]. Empty means that the producer
	// gives it a UUIDv7. One (tenant, ID) enqueued many times is one job while that lives and, after it has ended, for
	// the dedup window of the policy (30 s unless set, 24 h at most) or up to twice that; sent later it is a new job and runs again.
	ID string
	// Tenant is the customer on whose behalf the job runs. It may hold no ':' and may not be "global".
	Tenant string
	// Queue is the kind of traffic the job belongs to. It may hold no ':'.
	Queue string
	// Type routes the job to a handler.
	Type string
	// Priority is the class of urgency; empty means Medium. It must be one of the queue's classes.
	Priority Priority
	// Deadline is the latest time at which the job may start, by the clock of Redis; zero means none.
	Deadline time.Time
	// Cost is what the job takes from every bucket and from its tenant's share, 1 to MaxCost whole tokens, or LearnedCost.
	Cost Tokens
	// Downstream is what the handler calls, the key of its circuit breaker; it may be empty. SERVICE+ACCOUNT is a service that is called for one
	// of many accounts there: the breaker is the service's, caps and rates are those of the service and of the account.
	Downstream string
	// MaxAttempts is how many times a failing job runs in all, 1-255; zero means DefaultMaxAttempts. The policy allows up to 25 unless
	// it says otherwise for the queue (most_attempts); more is a *FieldError.
	MaxAttempts int
	// Timeout ends the handler's context after this long, up to MaxTimeout; zero means the worker's default.
	Timeout time.Duration
	// RunAt is the earliest time at which the job may start, by the clock of Redis, and Delay how long after its
	// admission that is, up to MaxDelay; at most one of the two. Buckets are charged at admission.
	RunAt time.Time
	Delay time.Duration
	// Unique keeps others like it out while the job is there.
	Unique Unique
	// Payload is what the handler is given.
	Payload []byte
	// Headers travel with the payload, for trace contexts and the like. HeaderBackoff means something to workers.
	Headers map[string]string
}

// HeaderBackoff is the header that gives a job a backoff of its own, before those of the worker's Config: "BASE MOST",
// the durations of an exponential backoff with full jitter, as in "1s 10m", or one duration for the same wait after
// each failed run, as in "30s". Each is 1 ms to MaxBackoff; what comes of it is no less than the least_backoff of the queue in the
// policy, 100 ms unless set.
const HeaderBackoff = "headgate-backoff"

// HeaderUncharged marks in a store a job that runs again without limits. No job has it when it is enqueued, nor when its handler sees it.
const HeaderUncharged = "headgate-uncharged"

// MaxBackoff is the longest wait that HeaderBackoff may ask for.
const MaxBackoff = 24 * time.Hour

// Unique is a key that one job of its tenant holds at a time: another with the same key is refused. The zero Unique
// is none.
type Unique struct {
	// Key is 1-128 bytes of [A-Za-z0-9._:@/-].
	Key string
	// For is the longest that the key is held, 1 ms to MaxUniqueFor; zero means DefaultUniqueFor.
	For time.Duration
	// Release says when the key is free again before that; empty means ReleaseAtEnd.
	Release Release
}

// Release is when a unique key is free again.
type Release string

// The releases. Whichever it is, a key is not held for longer than its time.
const (
	// ReleaseAtEnd frees the key when the job completes, leaves or becomes a dead letter.
	ReleaseAtEnd Release = "end"
	// ReleaseAtStart frees it when the job goes to the workers for the first time.
	ReleaseAtStart Release = "start"
	// ReleaseAtExpiry frees it when its time is over.
	ReleaseAtExpiry Release = "expiry"
)

// NewJob returns a job of the Medium class that costs one token. Its ID is left to the producer.
func NewJob(tenant, queue, jobType string, payload []byte) Job {
	return Job{Tenant: tenant, Queue: queue, Type: jobType, Priority: Medium, Cost: 1, Payload: payload}
}

// Key names a job in the whole deployment: ids are the tenant's own.
type Key struct {
	Tenant string
	ID     string
}

// String returns "tenant:id". A tenant holds no ':', so the first one separates.
func (k Key) String() string { return k.Tenant + ":" + k.ID }

// Priority is the name of a class of urgency. Which classes a queue has, in which order and with which
// weights, is the policy's; the names below are the presets.
type Priority string

// The preset classes.
const (
	Critical Priority = "critical"
	High     Priority = "high"
	Medium   Priority = "medium"
	Low      Priority = "low"
)

// MaxClasses is the largest number of classes of one queue.
const MaxClasses = 128

// Class is one class of a queue: of Σ weights consecutive dispatches, Weight are this class's while all
// classes have runnable jobs.
type Class struct {
	Name   Priority `json:"name"`
	Weight int      `json:"weight"` // 1-100
}

// MaxClassWeight is the largest Weight of a Class.
const MaxClassWeight = 100

// DefaultClasses returns the classes of a queue that nobody configured: high 3, medium 2, low 1.
func DefaultClasses() []Class {
	return []Class{{High, 3}, {Medium, 2}, {Low, 1}}
}
