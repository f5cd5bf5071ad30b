package shown

import (
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Queue is a queue, and what holds it back.
type Queue struct {
	Queue   string  `json:"queue"`
	Classes []Class `json:"classes"`
	Waiting int64   `json:"waiting"`
	Ready   int64   `json:"ready"`
	Running int64   `json:"running"`
	Later   int64   `json:"later"`
	// LaterAtLeast says that there are more than were looked at.
	LaterAtLeast bool        `json:"later_at_least"`
	Spilled      int64       `json:"spilled"`
	Dead         int64       `json:"dead"`
	Gate         *Gate       `json:"gate,omitempty"`
	Suspension   *Suspension `json:"suspension,omitempty"`
	Pools        []string    `json:"pools"`
	Workers      int         `json:"workers"`
	Slots        int         `json:"slots"`
	// PaceMs is from one dispatch to the next while jobs wait; absent where it was not measured.
	PaceMs float64 `json:"pace_ms,omitempty"`
	// WaitMs is until what waits and is ready has been dispatched at this pace: a guess.
	WaitMs *float64 `json:"estimated_wait_ms,omitempty"`
	// Last is when the last job was dispatched; known while others wait.
	Last *time.Time `json:"last_dispatched_at,omitempty"`
	// Overflow bounds each tenant's depth, by the policy; absent where nothing does, and in lists.
	Overflow *policy.Overflow `json:"overflow,omitempty"`
	// Distinct is how many different tenants and jobs it had; absent where nobody counts, and in lists.
	Distinct *Distinct `json:"distinct,omitempty"`
}

// Distinct is how many different ones there were, within 1 % or so, in the hour of UTC under way and in the last.
type Distinct struct {
	ThisHour DistinctNames `json:"this_hour"`
	LastHour DistinctNames `json:"last_hour"`
}

// DistinctNames are those of an hour.
type DistinctNames struct {
	Tenants int64 `json:"tenants"`
	Jobs    int64 `json:"jobs"`
}

// Class is one of a queue's.
type Class struct {
	Class   admission.Priority `json:"class"`
	Weight  int                `json:"weight"`
	Waiting int64              `json:"waiting"`
}

// Queues are all of them.
type Queues struct {
	Queues []Queue `json:"queues"`
}

// QueueOf shows a queue.
func QueueOf(q *store.QueueState) Queue {
	v := Queue{
		Queue: q.Name, Classes: []Class{}, Waiting: q.Waiting(), Ready: q.Ready, Running: q.Running, Later: q.Later,
		LaterAtLeast: q.LaterAtLeast, Spilled: q.Spilled, Dead: q.Dead, Pools: append([]string{}, q.Pools...),
		Workers: q.Workers, Slots: q.Slots, PaceMs: Millis(q.Pace),
	}
	if q.Busy {
		v.Last = Stamp(q.Last)
	}
	if q.Pace > 0 && q.Busy {
		v.WaitMs = new(Millis(q.Pace * time.Duration(v.Waiting+v.Ready)))
	}
	for _, c := range q.Classes {
		v.Classes = append(v.Classes, Class{c.Name, c.Weight, c.Waiting})
	}
	if q.Gate != nil {
		v.Gate = new(GateOf(*q.Gate))
	}
	if q.Suspended != nil {
		v.Suspension = new(SuspensionOf(*q.Suspended))
	}
	return v
}

// DistinctOf shows how many different tenants and jobs a queue had; nil for none.
func DistinctOf(d store.Distinct) *Distinct {
	if d == (store.Distinct{}) {
		return nil
	}
	return &Distinct{DistinctNames(d.ThisHour), DistinctNames(d.LastHour)}
}

// QueuesOf shows several.
func QueuesOf(queues []store.QueueState) Queues {
	v := Queues{Queues: []Queue{}}
	for i := range queues {
		v.Queues = append(v.Queues, QueueOf(&queues[i]))
	}
	return v
}
