package store

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
)

// ErrUnknownQueue means that the store has seen no job, no worker and no settings of a queue.
var ErrUnknownQueue = errors.New("unknown queue")

// QueueState is where the jobs of a queue are and who works on it.
type QueueState struct {
	Name string
	// Classes are its classes with what waits in each, the first in the order of the policy.
	Classes []ClassState
	// Ready counts jobs in workers' streams that no worker has read, Running those in workers' hands, Dead the dead
	// letters.
	Ready, Running, Dead int64
	// Later counts jobs that wait for a time. LaterAtLeast says that there are more than were looked at.
	Later        int64
	LaterAtLeast bool
	// Spilled counts jobs that wait for their tenant's depth to go down.
	Spilled int64
	// Gate is the queue's gate: its pause or its cap. Nil is none.
	Gate *GateState
	// Suspended is set while enqueueing is.
	Suspended *Suspension
	// Pools are the ids of those that serve it, Workers and Slots what they have in all.
	Pools          []string
	Workers, Slots int
	// Pace is the time from one dispatch to the next while jobs wait, 0 when nothing was measured. Busy says that it
	// goes on: jobs wait for room. Last is the time of the last dispatch then.
	Pace time.Duration
	Busy bool
	Last time.Time
	// Turn is the index of the class whose turn it is, of which TurnLeft dispatches are left.
	Turn, TurnLeft int
	// Others is how many jobs of classes for which no slots are kept workers have, where there are such slots (Reserve).
	Others int
	// Pressure is how much it is pressed, nil where that is not measured.
	Pressure *PressureState
}

// ClassState is a class of a queue.
type ClassState struct {
	admission.Class

	Waiting int64
}

// Waiting counts the jobs in all lanes of the queue.
func (q *QueueState) Waiting() int64 {
	n := int64(0)
	for _, c := range q.Classes {
		n += c.Waiting
	}
	return n
}

// Paused reports whether an operator holds the queue back.
func (q *QueueState) Paused() bool { return q.Gate != nil && q.Gate.Paused() }

// TenantWaiting is a tenant with its waiting jobs in a queue.
type TenantWaiting struct {
	Tenant  string
	Waiting int64
}

// MostWaiting returns the first n in order.
func MostWaiting(top []TenantWaiting, n int) []TenantWaiting {
	slices.SortFunc(top, func(a, b TenantWaiting) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.Tenant, b.Tenant))
	})
	return top[:min(n, len(top))]
}

// Peeked is a tenant's place in the order of its class, with the job that is next of it.
type Peeked struct {
	Tenant string
	// Tag is its start tag: the lowest goes first, ties by the order of entering.
	Tag float64
	// Next is the first job of its first lane that stands behind no gate. Its Key is empty where it has left meanwhile.
	Next Listed
	// Behind is a closed gate that will hold it back when its turn comes: tenants park behind gates only then. Empty is
	// none.
	Behind GateName
}

// PeekedClass is the order of tenants in a class.
type PeekedClass struct {
	ClassState

	// Next are its runnable tenants in order, at most as many as were asked for; Runnable counts them all.
	Next     []Peeked
	Runnable int64
	// Held counts its tenants that have jobs and are parked behind gates.
	Held int64
}

// MaxPeek is the largest number of tenants a class that Peek returns.
const MaxPeek = 100

// AuditClear is what ClearTenant is in the audit.
const AuditClear = "clear_tenant"

// Backlog is what a tenant has waiting in a queue.
type Backlog struct {
	Queue string
	// Waiting counts jobs in lanes, Spilled those kept aside, Dead the dead letters; those of a release that did not count letters by
	// tenant are in none.
	Waiting, Spilled, Dead int64
	// Partial says that more may wait, in more lanes than were looked at.
	Partial bool
}

// Depth is how many jobs of a tenant count in what bounds its depth, in a queue or over all its queues.
type Depth struct {
	// Jobs are those that live, dead letters and Spilled ones apart, and Bytes their bytes; both are 0 where nothing bounds them.
	Jobs, Bytes int64
	// Spilled counts those that a queue keeps aside.
	Spilled int64
}

// PressureState is how much a queue is pressed, as it was measured last.
type PressureState struct {
	admission.Pressure

	// Until is how long it holds; from then on the level is admission.PressureNone. The zero Until is of a queue that was not measured yet.
	Until time.Time
	// Parts tells people what the score comes from.
	Parts string
}

// At is what is in force of it at a time.
func (p *PressureState) At(now time.Time) PressureState {
	if p.Until.Before(now) {
		return PressureState{Pressure: admission.Pressure{Level: admission.PressureNone}, Until: p.Until}
	}
	return *p
}

// QueueLoad is what is seen of a queue by which it is measured how much it is pressed.
type QueueLoad struct {
	Queue string
	// Waiting counts the jobs in its lanes.
	Waiting int64
	// Wait is how long all of them take at the pace of the last dispatches, which a job that came now would wait where all are before it,
	// and at least the time since the last dispatch while they wait for room; negative where jobs wait and no dispatch was seen.
	Wait time.Duration
	// Slots is what the pools that serve it have in all, Held how many of these are taken or promised, by jobs of whatever queue.
	Slots, Held int
	// Level is what holds now.
	Level admission.PressureLevel
}

// LoadWait is QueueLoad.Wait. last is the time of the last dispatch while jobs wait for room, else zero.
func LoadWait(waiting int64, pace time.Duration, last, now time.Time) time.Duration {
	if waiting == 0 {
		return 0
	}
	wait := time.Duration(-1)
	if pace > 0 {
		wait = time.Duration(min(float64(waiting)*float64(pace), float64(MaxLoadWait)))
	}
	if !last.IsZero() {
		wait = max(wait, min(now.Sub(last), MaxLoadWait))
	}
	return wait
}

// MaxLoadWait bounds QueueLoad.Wait.
const MaxLoadWait = 30 * 24 * time.Hour

// Press is what a measurement makes of a queue.
type Press struct {
	// Owner is who holds the timer lease of the first partition. Where it is another nothing is done (ErrNotHolder).
	Owner string
	// Version is that of the policy by which it is measured. Where it is another nothing is done (ErrStale).
	Version int64
	Queue   string
	// Pressure is noted with the score in thousandths, for Life; Parts is at most MaxParts bytes.
	Pressure admission.Pressure
	Life     time.Duration
	Parts    string
	// Number is as that of Adapt.
	Number int64
}

// MaxParts is the largest size of Press.Parts.
const MaxParts = 256

// ErrNotMeasured means that the policy in force does not have the queue measured.
var ErrNotMeasured = errors.New("queue is not measured")

// How long what is told of load is kept.
const (
	// WorkerLoadLife is for how long what a worker told of itself counts.
	WorkerLoadLife = 300 * time.Second
	// LoadStep is how far apart the points of a history are, LoadHistoryLife for how long they are kept, and LoadPoints how many that are
	// of a service.
	LoadStep        = 10 * time.Second
	LoadHistoryLife = time.Hour
	LoadPoints      = int(LoadHistoryLife / LoadStep)
	// MaxLoadServices is of how many services there are points.
	MaxLoadServices = 200
)

// WorkerLoad is what a worker told of itself. A store does not read the text: package internal/load does.
type WorkerLoad struct {
	Worker string
	At     time.Time
	Text   string
}

// LoadNote is a point of the history of services.
type LoadNote struct {
	// Owner is who holds the timer lease of the first partition. Where it is another nothing is done (ErrNotHolder). Where the policy does
	// not ask for it, nothing is done either (ErrNotMeasured).
	Owner string
	// Services has a text of each, up to MaxLoadServices, and one of the whole.
	Services map[string]string
}

// LoadPoint is how busy a service was. At is a multiple of LoadStep.
type LoadPoint struct {
	At   time.Time
	Text string
}

// LoadSlot is the time of the point to which a time belongs.
func LoadSlot(now time.Time) time.Time { return now.Truncate(LoadStep) }
