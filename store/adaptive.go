package store

import (
	"errors"
	"time"
)

// Adaptation is a limit that moves by itself, as the policy says (Cap.Least and Cap.Most), and what there is to see of its downstream.
type Adaptation struct {
	// Name is that of the loop in the policy, Gate whose limit it is.
	Name string
	Gate GateName
	// Own is the policy's limit, which is never exceeded, and Least and Most are the bounds between which Limit, what is in force, moves.
	Own, Least, Most, Limit int
	// Cause is why the limit was left or changed when the loop last looked, At when that was; zero where it never did.
	Cause string
	At    time.Time
	// Before and Why are of the last change, Changed when that was; zero where there was none.
	Before  int
	Why     string
	Changed time.Time
	// Raised and Lowered count the changes.
	Raised, Lowered int64
	// Frozen is who keeps the loop from moving the limit; nil for nobody.
	Frozen *Intervention
	// Held is how many of the downstream's jobs workers hold, Paused whether an operator has paused the downstream.
	Held   int
	Paused bool
	// Calls, Failures and Ran are those of the downstream's BreakerLife, and Heard is when workers last reported some, by a clock that never
	// goes back. A zero Heard is none.
	Calls, Failures int64
	Ran             time.Duration
	Heard           time.Time
	// Uneven says that a partition has another limit than the first, as when the process died that wrote it.
	Uneven bool
}

// Adapt is what a loop makes of a limit.
type Adapt struct {
	// Owner is who holds the timer lease of the first partition. Where it is another nothing is done (ErrNotHolder).
	Owner string
	// Version is that of the policy that the loop goes by. Where it is another nothing is done (ErrStale).
	Version int64
	Gate    GateName
	// Limit is what is to be in force, brought between Adaptation.Least and Most; Cause why.
	Limit int
	Cause string
	// Number fences: a partition beside the first, which numbers them, takes none that is older than the last. Zero is for the first.
	Number int64
}

// AuditAdapt is a limit that moved by itself, AuditFreeze and AuditThaw an operator who stops that, and lets it go on.
const (
	AuditAdapt  = "adapt"
	AuditFreeze = "freeze"
	AuditThaw   = "thaw"
)

// AdaptAuthor is the author of an AuditAdapt.
const AdaptAuthor = "headgate"

// AdaptAuditEvery is how often at most the audit tells of a limit that it moves.
const AdaptAuditEvery = time.Minute

var (
	// ErrNotHolder means that another scheduler holds the timer lease.
	ErrNotHolder = errors.New("another scheduler holds the timer lease")
	// ErrNotAdaptive means that no limit of that name moves by itself, by the policy in force.
	ErrNotAdaptive = errors.New("no adaptive limit")
)

// Clamp brings a limit between the bounds.
func (a *Adaptation) Clamp(limit int) int { return max(a.Least, min(limit, a.Most)) }
