package admission

import "time"

// Decision is the outcome of an admission.
type Decision int

// The decisions.
const (
	// Refused means that the job did not enter and nothing was charged.
	Refused Decision = iota
	// Admitted means that the job entered, once, and will run or leave for a recorded reason.
	Admitted
	// Duplicate means that the same (tenant, id) had entered before: it lives, or ended within the window.
	Duplicate
)

// String returns the decision's name.
func (d Decision) String() string {
	switch d {
	case Admitted:
		return "admitted"
	case Duplicate:
		return "duplicate"
	case Refused:
		return "refused"
	}
	return "unknown"
}

// Reason says why a job was refused.
type Reason string

// The reasons of a refusal.
const (
	// ReasonNone is the reason of what was not refused.
	ReasonNone Reason = ""
	// ReasonLimited means that a bucket held too few tokens: retry after RetryAfter.
	ReasonLimited Reason = "limited"
	// ReasonTooCostly means that the cost is above a bucket's burst: it will never pass.
	ReasonTooCostly Reason = "too_costly"
	// ReasonDedup means that the set of ended ids is full: admitting would forget one of them.
	ReasonDedup Reason = "dedup"
	// ReasonBuckets means that the tenant has its largest number of buckets.
	ReasonBuckets Reason = "buckets"
	// ReasonQueues means that the deployment, or the tenant, has its largest number of queues that the policy does not name and
	// no worker serves.
	ReasonQueues Reason = "queues"
	// ReasonLanes means that the tenant's jobs wait for, or are put off that call, as many downstreams as may be: each has a lane
	// of its own in a class of a queue; Verdict.Detail is how many there are.
	ReasonLanes Reason = "lanes"
	// ReasonDeadline means that the deadline had passed on arrival.
	ReasonDeadline Reason = "deadline"
	// ReasonMemory means that Redis is out of memory, or above nine tenths of its maxmemory, or that it fills up and the tenant has
	// more than its share of what is left: Verdict.Detail then says what it has, and Scope is the tenant's.
	ReasonMemory Reason = "memory"
	// ReasonPaused means that an operator has suspended enqueueing for the queue, the tenant, or the tenant in the
	// queue; Verdict.Detail is why.
	ReasonPaused Reason = "paused"
	// ReasonUnique means that another job of the tenant holds the unique key; Verdict.Detail is its id.
	ReasonUnique Reason = "unique"
	// ReasonOverflow means that the tenant's depth in the queue is at its bound, or over all its queues if Verdict.Scope is the
	// tenant's; Verdict.Detail is that depth.
	ReasonOverflow Reason = "overflow"
	// ReasonBreaker means that the circuit breaker of the job's downstream is not closed, and as many jobs wait for it as
	// may; Verdict.Detail names both.
	ReasonBreaker Reason = "breaker"
	// ReasonTooLarge means that the job alone is above the bound of bytes of its tenant's depth in the queue.
	ReasonTooLarge Reason = "too_large"
	// ReasonUnavailable means that Redis gave no answer, and the caller's limiter refuses without one.
	ReasonUnavailable Reason = "unavailable"
	// ReasonShed means that the job's queue is pressed, and the policy refuses jobs of its class and its tenant's tier at that level;
	// Verdict.Detail is the tier and Verdict.Pressure the level.
	ReasonShed Reason = "shed"
	// ReasonDoomed means that the job would start too late: its predicted wait, Verdict.EstimatedWait, is longer than its deadline or its
	// queue's max_wait lets it wait, by more than the policy of its queue allows for.
	ReasonDoomed Reason = "doomed"
	// ReasonGone means that the job to redrive is no dead letter.
	ReasonGone Reason = "gone"
)

// Place is where an admitted job went.
type Place string

// The places.
const (
	// PlaceReady is the stream that workers read.
	PlaceReady Place = "ready"
	// PlaceWaiting is the waiting room.
	PlaceWaiting Place = "waiting"
	// PlaceLater is among the jobs that wait for their time.
	PlaceLater Place = "later"
	// PlaceSpilled is the overflow store of its tenant and queue.
	PlaceSpilled Place = "spilled"
)

// Verdict is the answer on one job. A refusal is a value here; it becomes an error at the SDK's edge.
type Verdict struct {
	// Decision is what happened.
	Decision Decision
	// Reason is set when the job was refused.
	Reason Reason
	// Detail is what the reason says that it is.
	Detail string
	// Place is where an admitted job went.
	Place Place
	// Scope is the refusing scope, when a limit refused.
	Scope Scope
	// TokensLeft is what that scope's bucket held, in whole tokens, rounded down; of an admitted job what the bucket on its way that holds
	// least held after it.
	TokensLeft Tokens
	// Burst is that bucket's capacity; zero where no limit stands on the way of an admitted job.
	Burst Tokens
	// RetryAfter is how long to wait until every bucket on the way would hold enough, if nobody else took
	// from it; zero when retrying is of no use. Of ReasonDoomed it is how long the queue takes to come to where the job would enter, a
	// minute at most.
	RetryAfter time.Duration
	// Bypassed says that an admitted job went beside the limits of its queue and class, by the policy's bypass for its class: its global and
	// tenant's buckets have it, and what of its tenant's may go that way.
	Bypassed bool
	// Dropped is how many older jobs of the tenant and queue became dead letters to make room.
	Dropped int
	// ID is the job's id, given by the producer when the caller left it empty.
	ID string
	// Position is how many jobs of its lane are ahead of or level with the admitted job, itself included; zero
	// when it went straight to a worker's stream.
	Position int
	// EstimatedWait is a guess of the time until the job starts, from the queue's recent rate of dispatch;
	// negative when nothing was dispatched lately, or a pause, an open breaker, a rate or a cap holds the job back so that nobody knows. For a job with a time of its own it is the time until then.
	// Of a job that was refused with ReasonDoomed it is the wait that it would have had.
	EstimatedWait time.Duration
	// Unreplicated is set on a job that entered, or had entered, where the store is told to wait for replicas and too few
	// have confirmed it in time. A failover may lose it. The same Enqueue again, within the dedup window, waits again.
	Unreplicated bool
	// Pressure is how much the job's queue is pressed, zero where the policy does not have that measured.
	Pressure Pressure
	// Local says that the producer shed the job itself, by the level that Redis had told it of the queue up to two seconds before.
	Local bool
}

// Permanent reports whether the same job would be refused at any later time too.
func (v Verdict) Permanent() bool {
	return v.Decision == Refused && (v.Reason == ReasonTooCostly || v.Reason == ReasonDeadline || v.Reason == ReasonTooLarge ||
		v.Reason == ReasonGone)
}

// Err returns nil for an admitted or duplicate job and a *RefusedError otherwise.
func (v Verdict) Err() error {
	if v.Decision != Refused {
		return nil
	}
	return &RefusedError{Verdict: v}
}

// EnqueueResult is what became of one job of a batch: exactly what would have been returned for it alone.
type EnqueueResult struct {
	Verdict Verdict
	Err     error
}
