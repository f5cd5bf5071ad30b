package store

import (
	"context"
	"errors"
	"time"
)

// Promotion is what one call of Promote did.
type Promotion struct {
	// Held means that another scheduler holds the timer lease, for Next.
	Held bool
	// More means that the call is to be made again at once.
	More bool
	// Next is the time until the next timer; negative when there is none.
	Next time.Duration
	// Moved is the number of jobs, lanes and tenants moved.
	Moved int
	// Stepped means that the clock of Redis had stepped: every registration was armed anew.
	Stepped bool
	// Leapt asks whether a leap ahead of the time of Redis was a step of its clock; nothing was done. It answers LeapAsk only.
	Leapt bool
	// Adaptive is the version of a policy by which limits move by themselves, or queues are measured; 0 where none does.
	Adaptive int64
	// At is the time of Redis.
	At time.Time
}

// Leap is what a Promote makes of it if the time of Redis went on by more than 5 s since the last call of any script. A step back is
// always a step.
type Leap string

// The leaps. Only who has seen the time of Redis before, and has a monotonic clock, can tell.
const (
	// LeapSilence is the time that nobody called.
	LeapSilence Leap = ""
	// LeapStep is a step of the clock of Redis.
	LeapStep Leap = "stepped"
	// LeapAsk has Promote ask: see Promotion.Leapt.
	LeapAsk Leap = "ask"
)

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
	// Life is for how long limits of admission are so unless they are moved anew, zero for until they are.
	Life time.Duration
	// Back is Adaptation.Back from then on.
	Back int
}

// TriggerLife is for how long what a trigger does lasts unless it is done anew: as long after the death of the last scheduler all is as the policy says.
const TriggerLife = 30 * time.Second

// TriggerAuthor is who holds back what a trigger pauses or suspends. What anybody else has paused or suspended stays as it is under that name, and the
// audit is told once of what goes on.
const TriggerAuthor = "headgate triggers"

// AuditTrigger is a trigger that begins to act, AuditTriggerEnd one that acts no more.
const (
	AuditTrigger    = "trigger"
	AuditTriggerEnd = "trigger_end"
)

// TriggerNote says that a trigger of the policy acts, still does, or does no more.
type TriggerNote struct {
	// Owner is who holds the timer lease of the first partition, and Version that of the policy. Where it is another nothing is done (ErrNotHolder,
	// ErrStale).
	Owner   string
	Version int64
	Name    string
	// Life is for how long it is taken to act unless it is noted anew; zero means that it acts no more.
	Life time.Duration
	// Do is what it does, Of to what, and Why for which reason it began, or ended. None of them has a |, but Why.
	Do, Of, Why string
}

// TriggerState is a trigger that acts, or whose scheduler has died.
type TriggerState struct {
	Name, Do, Of, Why string
	// Since is since when it acts; from Until on nobody has said that it still does.
	Since, Until time.Time
}

// By is who a note is told the audit by.
func (n *TriggerNote) By() Intervention { return Intervention{Author: AdaptAuthor, Reason: n.Why} }

// Action is what the audit calls it.
func (n *TriggerNote) Action() string {
	if n.Life > 0 {
		return AuditTrigger
	}
	return AuditTriggerEnd
}

// SchedulerState is a scheduler that lives.
type SchedulerState struct {
	Name string
	// AliveUntil is until when it counts as live unless it is heard of again; zero for one that has only promoted.
	AliveUntil time.Time
	// LeaseEnd is until when it holds the timer lease; zero unless it does.
	LeaseEnd time.Time
}

// Mover moves bodies of spilled jobs of one partition between its Redis and a second one: out of those that wait far behind, back
// before their turn. Any number may live; one at a time has the right to, and whatever an earlier one has still on its way is void. It is
// for one goroutine.
type Mover interface {
	// Move does a portion of what is to be moved. The error is that of the partition; that of the second Redis is Moves.Trouble.
	Move(ctx context.Context) (Moves, error)
}

// Moves is what one call of Move came to.
type Moves struct {
	// Out and Back count bodies that went to the second Redis, and that came back; Dropped copies there that did not count any more; Missing
	// jobs whose bodies the second Redis has lost: each left as record_gone.
	Out, Back, Dropped, Missing int
	// More says that there is more to be moved at once.
	More bool
	// Held is for how long somebody else has the right to move.
	Held time.Duration
	// Trouble is why the second Redis did not take part: it is away, full, or not this deployment's.
	Trouble error
}

// SpillTroubles are what may stand against moving: the second Redis is away, has refused what it was told, is another deployment's, or has lost all.
var SpillTroubles = []string{"away", "refused", "foreign", "lost"}

// SpillState is what a partition says of spilled jobs whose bodies are in a second Redis.
type SpillState struct {
	// Away counts jobs whose bodies are there, Copies those there that are to be dropped, or on their way.
	Away, Copies int64
	// Moved is when somebody last moved them without trouble, zero for never; Trouble is the one of SpillTroubles that stands against it since, "" for none.
	Moved   time.Time
	Trouble string
	// Held is how many bodies the second Redis has, -1 where this process does not know it, or it does not answer.
	Held int64
}

// ErrAway is the Err of what needs a job's body which is in the second Redis, where nobody here knows that.
var ErrAway = errors.New("its body is in the second Redis")
