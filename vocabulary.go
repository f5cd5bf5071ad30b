package headgate

import "github.com/headgate/headgate/admission"

// The nouns that jobs, limits and answers are made of. They are those of package admission, which the rooms behind the door share: go doc
// admission.Limit shows the fields and methods.
type (
	// FieldError is a bad value: Field, Value and what is Allowed. It matches ErrInvalid.
	FieldError = admission.FieldError
	// OverloadedError is an answer that comes too late to be of use, and RetryAfter; it matches ErrOverloaded.
	OverloadedError = admission.OverloadedError
	// RefusedError is a refusal as the rooms tell it. Of this package's functions it is a *Refusal, which is easier to read; both match ErrRefused
	// and the error of their reason, such as ErrLimited.
	RefusedError = admission.RefusedError
	// Unique keeps jobs like one out while it is there: a Key, For how long, and by Release until when.
	Unique = admission.Unique
	// Release is when a unique key is given up: ReleaseAtEnd, ReleaseAtStart or ReleaseAtExpiry.
	Release = admission.Release
	// Key names a job: its Tenant and its ID.
	Key = admission.Key
	// Priority is the name of one of the queue's classes: High, Medium, Low, unless the policy has others.
	Priority = admission.Priority
	// Class is a priority of a queue: Name, and the Weight that its jobs are served by.
	Class = admission.Class
	// Tokens is an amount of what limits count, and of what a job costs.
	Tokens = admission.Tokens
	// TokensPerSecond is a rate of them.
	TokensPerSecond = admission.TokensPerSecond
	// Weight is a tenant's share of service in a class.
	Weight = admission.Weight
	// Limit is a token bucket: Tokens come in evenly over Per, and Burst is what it holds, and what may pass at once; Disabled is none.
	// PerSecond, PerMinute and PerHour make one. FixedWindow makes a quota: all of its Tokens come back as its next Window begins. SlidingWindow and
	// SlidingLog make one that admits no more than its Tokens in any time as long as its Window.
	Limit = admission.Limit
	// Level is how deep a Scope is: LevelGlobal, LevelTenant, LevelQueue or LevelPriority.
	Level = admission.Level
	// Scope is where a limit applies: "global", "acme", "acme:mail" or "acme:mail:high".
	Scope = admission.Scope
	// RedriveOptions is how package producer redrives dead letters.
	RedriveOptions = admission.RedriveOptions
	// RedriveResult is what became of one.
	RedriveResult = admission.RedriveResult
	// Decision is Admitted, Duplicate or Refused.
	Decision = admission.Decision
	// Reason is why a job or a check was refused: ReasonLimited and its like.
	Reason = admission.Reason
	// Place is where a job is: PlaceWaiting and its like.
	Place = admission.Place
	// Pressure is how pressed a queue is: a Score and its Level.
	Pressure = admission.Pressure
	// PressureLevel is PressureNone, PressureLow, PressureMedium, PressureHigh or PressureCritical.
	PressureLevel = admission.PressureLevel
	// Verdict is an answer as the rooms give it. This package's functions give a Receipt or a *Refusal.
	Verdict = admission.Verdict
)

// Bounds and defaults of jobs.
const (
	MaxNameLength      = admission.MaxNameLength
	MaxCost            = admission.MaxCost
	MaxActualCost      = admission.MaxActualCost
	LearnedCost        = admission.LearnedCost
	DefaultMaxPayload  = admission.DefaultMaxPayload
	MaxAttemptsLimit   = admission.MaxAttemptsLimit
	DefaultMaxAttempts = admission.DefaultMaxAttempts
	MaxHeaders         = admission.MaxHeaders
	MaxHeaderBytes     = admission.MaxHeaderBytes
	MaxDelay           = admission.MaxDelay
	MaxTimeout         = admission.MaxTimeout
	MaxUniqueFor       = admission.MaxUniqueFor
	DefaultUniqueFor   = admission.DefaultUniqueFor
	MaxClasses         = admission.MaxClasses
	MaxClassWeight     = admission.MaxClassWeight
	MaxWeight          = admission.MaxWeight
)

// HeaderBackoff is a header of a job that says how long it waits between attempts, up to MaxBackoff.
const (
	HeaderBackoff = admission.HeaderBackoff
	MaxBackoff    = admission.MaxBackoff
)

// Bounds of a Limit. An empty bucket fills within MaxRefill.
const (
	MaxLimitTokens = admission.MaxLimitTokens
	MinLimitPer    = admission.MinLimitPer
	MaxLimitPer    = admission.MaxLimitPer
	MaxRefill      = admission.MaxRefill
)

// When a unique key is given up.
const (
	ReleaseAtEnd    = admission.ReleaseAtEnd    // when its job has ended
	ReleaseAtStart  = admission.ReleaseAtStart  // when its job starts
	ReleaseAtExpiry = admission.ReleaseAtExpiry // when its time is over, whatever becomes of the job
)

// The priorities of a queue for which the policy names none are High, Medium and Low, served 3:2:1; Critical is of policy.PresetCritical.
const (
	Critical = admission.Critical
	High     = admission.High
	Medium   = admission.Medium
	Low      = admission.Low
)

// The scope of all jobs, and the levels of scopes, the outermost first; Levels is their number.
const (
	Global        = admission.Global
	LevelGlobal   = admission.LevelGlobal
	LevelTenant   = admission.LevelTenant
	LevelQueue    = admission.LevelQueue
	LevelPriority = admission.LevelPriority
	Levels        = admission.Levels
)

// The decisions.
const (
	Refused   = admission.Refused   // it did not enter, and nothing was charged
	Admitted  = admission.Admitted  // it entered, once
	Duplicate = admission.Duplicate // a job of its tenant and id had entered before
)

// The reasons of a Refusal. RetryAfter says when another try may pass, where one may; package admission says more of each.
const (
	ReasonNone        = admission.ReasonNone        // of what was not refused
	ReasonLimited     = admission.ReasonLimited     // a limit holds too few tokens
	ReasonTooCostly   = admission.ReasonTooCostly   // the cost is above a burst: no wait helps
	ReasonDedup       = admission.ReasonDedup       // as many ids of ended jobs are kept as may be
	ReasonBuckets     = admission.ReasonBuckets     // the tenant has as many buckets as it may
	ReasonQueues      = admission.ReasonQueues      // there are as many queues without a policy and a worker as may be
	ReasonLanes       = admission.ReasonLanes       // the tenant's jobs wait for as many downstreams as may be
	ReasonDeadline    = admission.ReasonDeadline    // the deadline had passed on arrival: no wait helps
	ReasonMemory      = admission.ReasonMemory      // Redis is full, or nearly so
	ReasonPaused      = admission.ReasonPaused      // an operator suspended enqueueing
	ReasonUnique      = admission.ReasonUnique      // another job holds the unique key
	ReasonOverflow    = admission.ReasonOverflow    // the tenant has as many jobs waiting as it may
	ReasonBreaker     = admission.ReasonBreaker     // the breaker is not closed, and as many jobs wait for it as may
	ReasonTooLarge    = admission.ReasonTooLarge    // the job alone is above the bound of bytes: no wait helps
	ReasonShed        = admission.ReasonShed        // the queue is pressed
	ReasonDoomed      = admission.ReasonDoomed      // it would start after its deadline
	ReasonUnavailable = admission.ReasonUnavailable // Redis gave no answer, and the limiter refuses without one
	ReasonGone        = admission.ReasonGone        // what was to be redriven is no dead letter
)

// How pressed a queue is.
const (
	PressureNone     = admission.PressureNone
	PressureLow      = admission.PressureLow
	PressureMedium   = admission.PressureMedium
	PressureHigh     = admission.PressureHigh
	PressureCritical = admission.PressureCritical
)

// Where a job is, beside PlaceRunning and PlaceDead.
const (
	PlaceReady   = admission.PlaceReady   // on its way to a worker
	PlaceWaiting = admission.PlaceWaiting // in the waiting room
	PlaceLater   = admission.PlaceLater   // it waits for its time
	PlaceSpilled = admission.PlaceSpilled // kept aside, for its tenant had no room
)

// Errors that callers tell apart by errors.Is. A refusal matches ErrRefused and the error of its reason; package admission says when each comes.
var (
	ErrRefused        = admission.ErrRefused
	ErrLimited        = admission.ErrLimited
	ErrTooCostly      = admission.ErrTooCostly
	ErrDedupFull      = admission.ErrDedupFull
	ErrBucketsFull    = admission.ErrBucketsFull
	ErrLanesFull      = admission.ErrLanesFull
	ErrQueuesFull     = admission.ErrQueuesFull
	ErrDeadlinePassed = admission.ErrDeadlinePassed
	ErrOutOfMemory    = admission.ErrOutOfMemory
	ErrPaused         = admission.ErrPaused
	ErrNotUnique      = admission.ErrNotUnique
	ErrOverflow       = admission.ErrOverflow
	ErrBreakerOpen    = admission.ErrBreakerOpen
	ErrTooLarge       = admission.ErrTooLarge
	ErrShed           = admission.ErrShed
	ErrDoomed         = admission.ErrDoomed
	ErrNotDead        = admission.ErrNotDead
	ErrUnknownJob     = admission.ErrUnknownJob
	ErrEnded          = admission.ErrEnded
	ErrOutcomeUnknown = admission.ErrOutcomeUnknown
	ErrUnavailable    = admission.ErrUnavailable
	ErrOverloaded     = admission.ErrOverloaded
	ErrInvalid        = admission.ErrInvalid
	ErrLeaseLost      = admission.ErrLeaseLost
)

// DefaultClasses returns the classes of a queue for which the policy names none.
func DefaultClasses() []Class { return admission.DefaultClasses() }

// PerSecond returns a limit of so many tokens a second, of which as many may be taken at once: PerSecond(200) holds 200. Another burst is said
// by WithBurst, as in PerSecond(200).WithBurst(400). A second argument is the burst, too, as PerSecond of 0.1 took it; it will go.
func PerSecond(tokens Tokens, burst ...Tokens) Limit { return admission.PerSecond(tokens, burst...) }

// FixedWindow returns a limit of so many tokens in each window: "24h" and "month" by the calendar of a zone, other lengths from "1s" to "744h" in
// UTC, from an anchor on such as "06:00"; "" is midnight, and UTC. FixedWindow(1000, "24h", "", "Europe/Berlin") is new at midnight in Berlin. The
// error is a *FieldError.
func FixedWindow(tokens Tokens, window, anchor, zone string) (Limit, error) {
	return admission.FixedWindow(tokens, window, anchor, zone)
}

// SlidingWindow returns a limit of so many tokens in every time that is as long as the window, "1s" to "744h". It counts by tenths of the window, so
// what was taken comes back up to a tenth of it late. The error is a *FieldError.
func SlidingWindow(tokens Tokens, window string) (Limit, error) {
	return admission.SlidingWindow(tokens, window)
}

// SlidingLog is SlidingWindow to the microsecond, for 1000 tokens at most: it keeps 11 bytes of each call that it let through.
func SlidingLog(tokens Tokens, window string) (Limit, error) {
	return admission.SlidingLog(tokens, window)
}

// PerMinute returns a limit of so many tokens a minute, of which what comes in a second may be taken at once: PerMinute(500) holds 9, and
// PerMinute(500).WithBurst(100) holds 100.
func PerMinute(tokens Tokens) Limit { return admission.PerMinute(tokens) }

// PerHour returns a limit of so many tokens an hour, of which what comes in a second may be taken at once, 1 at least: PerHour(1000) holds 1, and
// PerHour(1000).WithBurst(50) holds 50.
func PerHour(tokens Tokens) Limit { return admission.PerHour(tokens) }
