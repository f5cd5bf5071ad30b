package worker

import (
	"context"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/guard"
	"github.com/headgate/headgate/store"
)

// Observer is told what happens to jobs in this worker. A nil function is not called. They are called from many
// goroutines at a time, outside of all locks; a job waits for them, so they should be quick. A panic of one is logged and changes nothing.
type Observer struct {
	// Taken is called as a job comes into this worker's hand, with what its handler's ctx will be and its headers, which
	// must not be changed. The handler gets the ctx that it returns, which must come from the one given; ended, if not
	// nil, is called once, when Finished would be.
	Taken func(ctx context.Context, event Event, headers map[string]string) (_ context.Context, ended func(Event))
	// Started is called as a handler starts.
	Started func(Event)
	// Finished is called when Redis has taken note of how a job ended here, also of one whose handler never started.
	Finished func(Event)
	// Lonely is called when calls of a downstream fail in this worker and not in the rest of the fleet, so that it leaves
	// the downstream's jobs to others, and again, with false, when that has ended.
	Lonely func(downstream string, lonely bool)
	// Guarded is called when something that Config.Guard limits was looked at first, and when it has come to another state.
	Guarded func(GuardChange)
}

// GuardChange is something of the process's, or of its cgroup's, that came nearer to its limit or went away from it: the states are normal,
// warning and violation. Several may be in violation at a time; while any is, no new work is taken.
type GuardChange = guard.Change

// The states of a GuardChange.
const (
	GuardNormal    = guard.Normal
	GuardWarning   = guard.Warning
	GuardViolation = guard.Violation
)

// Event is one job in a worker's hand.
type Event struct {
	Key        admission.Key
	Queue      string
	Class      admission.Priority
	Type       string
	Downstream string
	// Token is the entry's id in the ready stream of the pool: it grows in the order of dispatch.
	Token string
	// Attempt counts runs from 1.
	Attempt int
	// Wait is the time from admission to the start of the handler, or to its being turned away, by the clock of Redis.
	Wait time.Duration

	// What follows is set when the job has finished.

	// RunTime is how long the handler ran; zero if it did not start.
	RunTime time.Duration
	Outcome Outcome
	// Reason says more about a release, a death or an expiry.
	Reason string
	// Err is what the handler returned, or its panic.
	Err error
}

// Outcome is how a job left a worker's hand.
type Outcome string

// The outcomes.
const (
	// Completed jobs are done.
	Completed Outcome = "completed"
	// Retried jobs failed and will come back.
	Retried Outcome = "retried"
	// Dead jobs became dead letters.
	Dead Outcome = "dead"
	// Expired jobs were past their deadline.
	Expired Outcome = "expired"
	// Released jobs went back unharmed.
	Released Outcome = "released"
	// Cancelled jobs were ended by somebody else while they were here: Reason and Err say why, as far as this worker was
	// told in time.
	Cancelled Outcome = "cancelled"
	// Lost jobs were no longer this worker's.
	Lost Outcome = "lost"
)

// The reasons that this worker gives.
const (
	ReasonShutdown   = "shutdown"
	ReasonUnknown    = store.UnknownType
	ReasonBreaker    = "breaker_open"
	ReasonProbe      = "probe_failed"
	ReasonSnoozed    = "snoozed"
	ReasonDiscarded  = "discarded"
	ReasonBadPayload = "bad_payload"
	ReasonUnreadable = "unreadable"
	ReasonRecordGone = "record_gone"
	ReasonDeadline   = "deadline"
	// ReasonSuspect is that of a job that may have killed a worker, and went back because another such job is running
	// here, or because Redis could not be told of its start.
	ReasonSuspect = "suspect"
	// ReasonGuard is that of a job that came while Config.Guard keeps new ones away.
	ReasonGuard = "guard"
	// ReasonCancelled is that of a job that was cancelled without a reason.
	ReasonCancelled = "cancelled"
)

func outcomeOf(ended store.Ended) Outcome {
	switch ended {
	case store.EndedDone:
		return Completed
	case store.EndedRetried:
		return Retried
	case store.EndedDead:
		return Dead
	case store.EndedExpired:
		return Expired
	case store.EndedReleased:
		return Released
	case store.EndedCancelled:
		return Cancelled
	case store.EndedLost:
	}
	return Lost
}

// intended is the end that was asked for: what became of the job if the answer was lost and the job is gone.
func (e *ending) intended() store.Ended {
	switch e.finish.Outcome {
	case store.Complete:
		return store.EndedDone
	case store.Retry:
		if e.last {
			return store.EndedDead
		}
		return store.EndedRetried
	case store.Kill:
		return store.EndedDead
	case store.Expire:
		return store.EndedExpired
	case store.Release:
		if e.finish.Reason == ReasonCancelled {
			return store.EndedCancelled
		}
	}
	return store.EndedReleased
}
