package store

import (
	"errors"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/pressure"
)

// BreakerState is the breaker of one downstream for the whole fleet.
type BreakerState struct {
	Downstream string
	State      breaker.State
	// Period grows with each transition.
	Period uint64
	Cause  breaker.Cause
	Since  time.Time
	// Until is when the state ends by time alone; zero for never. Since and Until are times of Redis, whose clock need not be
	// this machine's.
	Until time.Time
	// For is how long the state lasted still when it was read, if nothing happens; negative if time alone does not end it.
	For time.Duration
	// Forced says that an operator chose the state; Reason is the one given with the last force or reset.
	Forced bool
	Reason string
	// Window is what the fleet's window holds; unless the breaker is closed, what it held when it was last closed.
	Window breaker.Counts
	// FailureStreak is the failures since any worker's last success, of the last closed period.
	FailureStreak uint64
	// Callers are the workers that called the downstream in that window; Voters those of them whose own calls meet a
	// rule, however few they are.
	Callers, Voters []string
	// Tenants is how many groups of tenants called in it, up to breaker.TenantGroups: two tenants are seldom in one. Of
	// FailingTenants as large a part failed as the rules ask of all.
	Tenants, FailingTenants int
	// ProbesPassed and SlowProbes are of the half-open period.
	ProbesPassed, SlowProbes uint64
	// Ramp is the step of the slow start, from 1; 0 for none. Limit is how many jobs may be in workers' hands at a time
	// now, Unlimited for any number.
	Ramp, Limit int
	// ProbeTimeout is when a probe that has not ended counts as failed.
	ProbeTimeout time.Duration
	// Trips counts how often it opened of itself; TripsInRow is what the next cooldown grows with.
	Trips, TripsInRow uint64
	// Waiting is how many jobs of the downstream wait in lanes.
	Waiting int64
	// Rules are those in force, Life what it counted since it was made, Errors its last ones, the newest first.
	Rules  BreakerRules
	Life   BreakerLife
	Errors []CallError
}

// Pressure is how near the breaker is to opening: by the rule that is nearest, at CRITICAL while it is not closed. It has no memory: its level may
// fall from one look to the next.
func (b *BreakerState) Pressure() (admission.Pressure, breaker.Nearness) {
	near, score := b.Rules.Near(b.Window, b.FailureStreak), 1.0
	if b.State == breaker.Closed {
		score = math.Round(near.Most()*1000) / 1000
	}
	return admission.Pressure{Level: admission.PressureLevel(pressure.LevelOf(score)), Score: score}, near
}

// BreakerPressure is the score of a breaker's Pressure as it was read, NaN where nobody knows of a breaker.
func BreakerPressure(b BreakerState, err error) (float64, error) {
	if errors.Is(err, ErrNoBreaker) {
		return math.NaN(), nil
	}
	if err != nil {
		return math.NaN(), err
	}
	p, _ := b.Pressure()
	return p.Score, nil
}

// Outcomes is what one worker counted of a downstream since its last report.
type Outcomes struct {
	Downstream string
	// Config is the worker's, defaults filled in. The first worker's is in force, for all, until no worker has reported
	// it for breaker.ConfigHold: so a new one needs nobody to roll it out, and two do not empty each other's window.
	Config breaker.Config
	// Report is what was counted; its Worker and Alone are not used.
	breaker.Report
	// Ran is how long the calls that ended took, together.
	Ran time.Duration
	// Refused is how many calls beside those the downstream refused as too many: of one whose dispatch moves by itself, else zero.
	Refused uint64
	// Push is how much the downstream pushed back at most, and PushFor for how long it asks for that: of one whose dispatch moves by itself, else
	// zero.
	Push    admission.PressureLevel
	PushFor time.Duration
	// Errors are what the failures were, the last of each kind, up to MaxCallErrors.
	Errors []CallError
}

// CallError is one kind of error of a downstream's calls. Two that differ in numbers alone are one kind.
type CallError struct {
	// Text is the last one's, up to MaxErrorText bytes of it.
	Text string
	// Count is how often it came, At when it last did.
	Count int64
	At    time.Time
}

// Bounds of what is kept of errors.
const (
	MaxCallErrors = 5
	MaxErrorText  = 200
)

// BreakerWord is the present state of a fleet's breaker, as far as a worker needs it.
type BreakerWord struct {
	State  breaker.State
	Period uint64
	// For is how long the state lasts if nothing happens, or how long it takes until the vote of a worker counts that is
	// alone in calling; negative if time alone changes nothing.
	For time.Duration
	// Forced says that an operator has closed it: no call is to be refused.
	Forced bool
	// Aside are the numbers of tenants whose calls fail where those of others do not, so that neither the downstream nor
	// the worker is to blame.
	Aside []uint16
	// Differs says that other rules than the worker's are in force.
	Differs bool
	// Policy is the version of the policy in force.
	Policy int64
	// Full means that there is no breaker, because there are too many: the worker is on its own.
	Full bool
}

// Reporter is who counted.
type Reporter struct {
	// Name is one under which sequence numbers grow.
	Name string
	// Guest says that it is no registered worker, so that nobody knows how many others there are like it.
	Guest bool
}

// MaxReports is the largest number of Outcomes in a call.
const MaxReports = 64

// ErrorText clips a text to one line of MaxErrorText bytes that can be shown: what is not printable is a space.
func ErrorText(text string) string {
	clipped := text[:min(len(text), MaxErrorText)]
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, clipped))
}

// AddCallError puts an error before those that are known, the newest first, or adds it to those of its kind. What is beyond
// MaxCallErrors goes.
func AddCallError(all []CallError, e CallError) []CallError {
	e.Text = ErrorText(e.Text)
	return MergeCallErrors([]CallError{e}, all)
}

// MergeCallErrors puts errors before those that are known. Those of a kind are one, where and as the first of them stands. What is
// beyond MaxCallErrors goes.
func MergeCallErrors(more, known []CallError) (all []CallError) {
	kinds := make(map[string]int, MaxCallErrors)
	for _, e := range slices.Concat(more, known) {
		kind := kindOf(e.Text)
		if at, found := kinds[kind]; found {
			all[at].Count += e.Count
		} else if len(all) < MaxCallErrors {
			kinds[kind] = len(all)
			all = append(all, e)
		}
	}
	return all
}

// kindOf is a text without its numbers: ports, counts and identifiers differ from call to call.
func kindOf(text string) string {
	kind, number := make([]byte, 0, len(text)), false
	for _, c := range []byte(text) {
		digit := c >= '0' && c <= '9'
		switch {
		case !digit:
			kind = append(kind, c)
		case !number:
			kind = append(kind, '#')
		}
		number = digit
	}
	return string(kind)
}

// BreakerLife is what a breaker counted since it was made, in all states.
type BreakerLife struct {
	// Calls are those that ended with a verdict, Failures those of them that failed, Ran how long they took together.
	Calls, Failures int64
	Ran             time.Duration
	// LastFailure is when one was last reported; zero for never.
	LastFailure time.Time
	// Transitions is how often it went from one state to another, or began one anew.
	Transitions []BreakerTransitions
}

// BreakerTransitions counts one way.
type BreakerTransitions struct {
	From, To breaker.State
	Count    int64
}

// BreakerRules is what a breaker goes by.
type BreakerRules struct {
	// Config has no SlowCallDuration: that each worker says for its own calls.
	breaker.Config
	Origin breaker.Origin
	// Version is the last version of the policy that a worker followed which reported; 0 where none did.
	Version int64
	// Differs is the last report that came with other rules, which are not in force; nil if there was none within
	// DiffersFor.
	Differs *BreakerDiffers
}

// BreakerDiffers is who has other rules.
type BreakerDiffers struct {
	Worker string
	At     time.Time
	Config breaker.Config
}

// DiffersFor is how long a report with other rules is told of.
const DiffersFor = time.Minute

// BreakerEvent is one transition of a fleet's breaker.
type BreakerEvent struct {
	// ID grows.
	ID         string
	Downstream string
	From, To   breaker.State
	// Period is the one that began.
	Period uint64
	// Cause is why, in the words of breaker.Cause; Reason what an operator gave.
	Cause, Reason string
	// Workers is how many workers voted for opening, of Callers that called the downstream in the window.
	Workers, Callers int
	At               time.Time
	// Until is when To ends by time alone; zero for never. At and Until are times of Redis, whose clock need not be this machine's.
	Until time.Time
	// For is how long To lasts from At if nothing happens; negative if time alone does not end it.
	For time.Duration
}

// ErrNoBreaker means that nothing is known of a downstream's breaker: it is closed.
var ErrNoBreaker = errors.New("no breaker of this downstream")

// Bounds of what an operator says.
const (
	// MinForce is the shortest duration for which a state is forced.
	MinForce = time.Millisecond
	// MaxForce is the longest duration for which a state is forced.
	MaxForce = 365 * 24 * time.Hour
	// MaxReason is the largest size of a reason in bytes, also of a policy's.
	MaxReason = 1 << 10
)
