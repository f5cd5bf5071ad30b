package store

import (
	"time"

	"github.com/headgate/headgate/admission"
)

// Bounds of what is counted by scope.
const (
	// TopScopes is how many scopes are counted, those with the most decisions, beside those that are counted always.
	TopScopes = 1000
	// CountedFor is how long a minute is kept.
	CountedFor = time.Hour
)

// ScopeCount is what a process has seen of a scope.
type ScopeCount struct {
	Scope admission.Scope
	// Always counts the scope whatever its rank.
	Always bool
	// Allowed and Refused are jobs, and checks without one; Tokens is what they asked for together.
	Allowed, Refused int64
	Tokens           admission.Tokens
}

// Minute is what was counted of a scope in one minute.
type Minute struct {
	// At is when it began.
	At               time.Time
	Allowed, Refused int64
	Tokens           admission.Tokens
	// Partial says that the scope came among those that are counted only during the minute.
	Partial bool
}

// Recorded is what was counted in one minute.
type Recorded struct {
	// At is when it began, Lasted how much of it was over when it was read.
	At     time.Time
	Lasted time.Duration
	Scopes map[admission.Scope]Minute
}
