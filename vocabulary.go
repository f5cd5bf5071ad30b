package headgate

import "github.com/headgate/headgate/admission"

// The nouns that jobs, limits and answers are made of. They are those of package admission, which the rooms behind the door share.
type (
	// FieldError is admission.FieldError.
	FieldError = admission.FieldError
	// OverloadedError is admission.OverloadedError.
	OverloadedError = admission.OverloadedError
	// RefusedError is admission.RefusedError: a refusal as the rooms tell it. Of this package's functions it is a *Refusal, which is easier to
	// read; both match ErrRefused and the error of their reason, such as ErrLimited.
	RefusedError = admission.RefusedError
	// Unique is admission.Unique.
	Unique = admission.Unique
	// Release is admission.Release.
	Release = admission.Release
	// Key is admission.Key.
	Key = admission.Key
	// Priority is admission.Priority.
	Priority = admission.Priority
	// Class is admission.Class.
	Class = admission.Class
	// Tokens is admission.Tokens.
	Tokens = admission.Tokens
	// TokensPerSecond is admission.TokensPerSecond.
	TokensPerSecond = admission.TokensPerSecond
	// Weight is admission.Weight.
	Weight = admission.Weight
	// Limit is admission.Limit: a token bucket, Tokens each Per and Burst at once.
	Limit = admission.Limit
	// Level is admission.Level.
	Level = admission.Level
	// Scope is admission.Scope.
	Scope = admission.Scope
	// RedriveOptions is admission.RedriveOptions.
	RedriveOptions = admission.RedriveOptions
	// RedriveResult is admission.RedriveResult.
	RedriveResult = admission.RedriveResult
	// Decision is admission.Decision: Admitted, Duplicate or Refused.
	Decision = admission.Decision
	// Reason is admission.Reason.
	Reason = admission.Reason
	// Place is admission.Place.
	Place = admission.Place
	// Pressure is admission.Pressure.
	Pressure = admission.Pressure
	// PressureLevel is admission.PressureLevel.
	PressureLevel = admission.PressureLevel
	// Verdict is admission.Verdict.
	Verdict = admission.Verdict
)

// Names and bounds; package admission says what each is.
const (
	HeaderBackoff      = admission.HeaderBackoff
	MaxBackoff         = admission.MaxBackoff
	MaxClasses         = admission.MaxClasses
	MaxClassWeight     = admission.MaxClassWeight
	MaxNameLength      = admission.MaxNameLength
	DefaultMaxPayload  = admission.DefaultMaxPayload
	MaxCost            = admission.MaxCost
	MaxActualCost      = admission.MaxActualCost
	MaxAttemptsLimit   = admission.MaxAttemptsLimit
	DefaultMaxAttempts = admission.DefaultMaxAttempts
	MaxHeaders         = admission.MaxHeaders
	MaxHeaderBytes     = admission.MaxHeaderBytes
	MaxDelay           = admission.MaxDelay
	MaxUniqueFor       = admission.MaxUniqueFor
	DefaultUniqueFor   = admission.DefaultUniqueFor
	MaxTimeout         = admission.MaxTimeout
	ReleaseAtEnd       = admission.ReleaseAtEnd
	ReleaseAtStart     = admission.ReleaseAtStart
	ReleaseAtExpiry    = admission.ReleaseAtExpiry
	Critical           = admission.Critical
	High               = admission.High
	Medium             = admission.Medium
	Low                = admission.Low
	MaxWeight          = admission.MaxWeight
	Global             = admission.Global
	MaxLimitTokens     = admission.MaxLimitTokens
	MinLimitPer        = admission.MinLimitPer
	MaxLimitPer        = admission.MaxLimitPer
	MaxRefill          = admission.MaxRefill
	LevelGlobal        = admission.LevelGlobal
	LevelTenant        = admission.LevelTenant
	LevelQueue         = admission.LevelQueue
	LevelPriority      = admission.LevelPriority
	Levels             = admission.Levels
	Refused            = admission.Refused
	Admitted           = admission.Admitted
	Duplicate          = admission.Duplicate
	ReasonNone         = admission.ReasonNone
	ReasonLimited      = admission.ReasonLimited
	ReasonTooCostly    = admission.ReasonTooCostly
	ReasonDedup        = admission.ReasonDedup
	ReasonBuckets      = admission.ReasonBuckets
	ReasonQueues       = admission.ReasonQueues
	ReasonLanes        = admission.ReasonLanes
	ReasonDeadline     = admission.ReasonDeadline
	ReasonMemory       = admission.ReasonMemory
	ReasonPaused       = admission.ReasonPaused
	ReasonUnique       = admission.ReasonUnique
	ReasonOverflow     = admission.ReasonOverflow
	ReasonBreaker      = admission.ReasonBreaker
	ReasonTooLarge     = admission.ReasonTooLarge
	ReasonShed         = admission.ReasonShed
	ReasonDoomed       = admission.ReasonDoomed
	ReasonUnavailable  = admission.ReasonUnavailable
	ReasonGone         = admission.ReasonGone
	PressureNone       = admission.PressureNone
	PressureLow        = admission.PressureLow
	PressureMedium     = admission.PressureMedium
	PressureHigh       = admission.PressureHigh
	PressureCritical   = admission.PressureCritical
	PlaceReady         = admission.PlaceReady
	PlaceWaiting       = admission.PlaceWaiting
	PlaceLater         = admission.PlaceLater
	PlaceSpilled       = admission.PlaceSpilled
)

// Errors that callers tell apart; package admission says when each comes.
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

// PerMinute returns a limit of so many tokens a minute, of which what comes in a second may be taken at once: PerMinute(500) holds 9, and
// PerMinute(500).WithBurst(100) holds 100.
func PerMinute(tokens Tokens) Limit { return admission.PerMinute(tokens) }

// PerHour returns a limit of so many tokens an hour, of which what comes in a second may be taken at once, 1 at least: PerHour(1000) holds 1, and
// PerHour(1000).WithBurst(50) holds 50.
func PerHour(tokens Tokens) Limit { return admission.PerHour(tokens) }
