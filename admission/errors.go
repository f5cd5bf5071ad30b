package admission

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The kinds of error a caller branches on. Refusals match ErrRefused and the one of their reason.
var (
	// ErrPartitions means that a deployment has another number of partitions than was asked for, or than it had when it was opened.
	// Nothing was touched: open it again.
	ErrPartitions = errors.New("the deployment has another number of partitions")
	// ErrMigrating means that a deployment is being migrated, and comes with ErrUnavailable. Nothing was touched.
	ErrMigrating = errors.New("the deployment is being migrated")
	// ErrMoved means that a deployment has moved to another Redis. Nothing was touched.
	ErrMoved = errors.New("the deployment has moved to another Redis")
	// ErrNewerData means that a newer release has put the data into a form that this one does not know. Nothing was touched.
	ErrNewerData = errors.New("the data is of a newer release of headgate")

	// ErrRefused matches every refusal.
	ErrRefused = errors.New("job refused")
	// ErrLimited matches a refusal by a bucket that will refill.
	ErrLimited = errors.New("rate limited")
	// ErrTooCostly matches a refusal of a cost above a burst.
	ErrTooCostly = errors.New("cost above burst")
	// ErrDedupFull matches a refusal because the window of ended ids is full.
	ErrDedupFull = errors.New("dedup window full")
	// ErrBucketsFull matches a refusal because the tenant has too many buckets.
	ErrBucketsFull = errors.New("too many buckets")
	// ErrLanesFull matches a refusal because the tenant's jobs call too many downstreams.
	ErrLanesFull = errors.New("too many lanes")
	// ErrQueuesFull matches a refusal because the deployment has too many queues.
	ErrQueuesFull = errors.New("too many queues")
	// ErrDeadlinePassed matches a refusal of a job that came after its deadline.
	ErrDeadlinePassed = errors.New("deadline passed")
	// ErrOutOfMemory matches a refusal because Redis is full.
	ErrOutOfMemory = errors.New("redis out of memory")
	// ErrPaused matches a refusal because enqueueing is suspended.
	ErrPaused = errors.New("paused")
	// ErrNotUnique matches a refusal because another job holds the unique key.
	ErrNotUnique = errors.New("not unique")
	// ErrOverflow matches a refusal because the tenant's depth in the queue is at its bound.
	ErrOverflow = errors.New("overflow")
	// ErrBreakerOpen matches a refusal because as many jobs wait for an ill downstream as may.
	ErrBreakerOpen = errors.New("breaker not closed")
	// ErrShed matches a refusal because the queue is pressed.
	ErrShed = errors.New("shed")
	// ErrDoomed matches a refusal because the job would start after its deadline.
	ErrDoomed = errors.New("doomed")
	// ErrTooLarge matches a refusal of a job that alone is above that bound.
	ErrTooLarge = errors.New("too large for its queue")
	// ErrNotDead means that a job to redrive or to purge is no dead letter.
	ErrNotDead = errors.New("no dead letter")
	// ErrUnknownJob means that no job of that key lives, nor has ended within the window.
	ErrUnknownJob = errors.New("unknown job")
	// ErrEnded means that the job has ended.
	ErrEnded = errors.New("job has ended")
	// ErrOutcomeUnknown means that the job was sent and no answer came: it may have been admitted. Enqueue
	// the same ID again within the dedup window to find out; later than that it could run twice. Where another process does
	// so, and is refused at once, that is certain when it is refused once more 50 ms later: the first call may have been in a buffer.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrUnavailable means that Redis could not be reached in time and nothing was sent.
	ErrUnavailable = errors.New("redis unavailable")
	// ErrOverloaded means that nothing was sent because more waits in this process than can be sent in time. It comes as an
	// *OverloadedError, which matches ErrUnavailable too.
	ErrOverloaded = errors.New("overloaded")
	// ErrInvalid matches every FieldError.
	ErrInvalid = errors.New("invalid")
	// ErrLeaseLost means that the job is no longer this worker's: its lease ended.
	ErrLeaseLost = errors.New("lease lost")
)

// FieldError is one bad input: which field, its value, and what is allowed.
type FieldError struct {
	Field   string
	Value   string
	Allowed string
}

// Error returns "invalid FIELD VALUE: allowed is ALLOWED".
func (e *FieldError) Error() string {
	return fmt.Sprintf("invalid %s %s: allowed is %s", e.Field, e.Value, e.Allowed)
}

// Is makes every FieldError match ErrInvalid.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

// FieldErrors makes *FieldErrors of the errors of a package that stands alone, such as breaker, where they name the field, its value and what
// is allowed there by a method Invalid. Others stay as they are.
func FieldErrors(err error) error {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = slices.Clone(joined.Unwrap())
	}
	for i, one := range all {
		if invalid, ok := one.(interface {
			Invalid() (field, value, allowed string)
		}); ok {
			field, value, allowed := invalid.Invalid()
			all[i] = &FieldError{field, value, allowed}
		}
	}
	return errors.Join(all...)
}

// OverloadedError turns a caller away before anything was sent. It matches ErrOverloaded and ErrUnavailable.
type OverloadedError struct {
	// Waiting is how many jobs wait.
	Waiting int
	// RetryAfter is about how long they take.
	RetryAfter time.Duration
}

// Error says how many jobs wait and when to retry.
func (e *OverloadedError) Error() string {
	return fmt.Sprintf("overloaded, nothing was sent: %d jobs wait for redis, retry after %s", e.Waiting, e.RetryAfter.Round(time.Millisecond))
}

// Is matches ErrOverloaded and ErrUnavailable.
func (e *OverloadedError) Is(target error) bool {
	return target == ErrOverloaded || target == ErrUnavailable
}

// RefusedError carries the verdict of a refusal across the SDK's edge.
type RefusedError struct {
	Verdict Verdict
}

// Error says which scope refused, what it held, and when to retry.
func (e *RefusedError) Error() string {
	v := e.Verdict
	switch v.Reason {
	case ReasonLimited:
		which := ""
		if v.Detail != "" {
			which = " (" + v.Detail + ")"
		}
		return fmt.Sprintf("job refused: scope %s%s holds %d tokens, retry after %s", v.Scope, which, v.TokensLeft, v.RetryAfter.Round(time.Microsecond))
	case ReasonTooCostly:
		return fmt.Sprintf("job refused for good: cost is above the burst of %d tokens of scope %s", v.Burst, v.Scope)
	case ReasonDedup:
		return "job refused: the window of ended job ids is full, retry after " + v.RetryAfter.String()
	case ReasonBuckets:
		return fmt.Sprintf("job refused: tenant has its largest number of buckets, scope %s would be one more", v.Scope)
	case ReasonQueues:
		if v.Detail != "" {
			return "job refused: its tenant has made " + v.Detail + " that the policy does not name and no worker serves, and this one would be new"
		}
		return "job refused: there are as many queues as the store keeps, and this one would be new"
	case ReasonLanes:
		return fmt.Sprintf("job refused: its tenant has %s, one for each downstream that its jobs wait for in a class of a queue, which is the bound", v.Detail)
	case ReasonDeadline:
		return "job refused for good: its deadline has passed"
	case ReasonMemory:
		if v.Detail != "" {
			return fmt.Sprintf("job refused: redis fills up, and its tenant has %s, more than its share of what is left", v.Detail)
		}
		return "job refused: redis is out of memory"
	case ReasonPaused:
		return fmt.Sprintf("job refused: enqueueing is suspended (%s), retry after %s", cmp.Or(v.Detail, "no reason given"), v.RetryAfter.Round(time.Millisecond))
	case ReasonUnique:
		return fmt.Sprintf("job refused: job %s holds its unique key, for up to %s", v.Detail, v.RetryAfter.Round(time.Millisecond))
	case ReasonOverflow:
		if v.Scope != "" {
			return fmt.Sprintf("job refused: its tenant has %s over all its queues, which is the bound", v.Detail)
		}
		return fmt.Sprintf("job refused: its tenant has %s in the queue, which is the bound", v.Detail)
	case ReasonTooLarge:
		return fmt.Sprintf("job refused for good: its %s are above the bound of its tenant in the queue", v.Detail)
	case ReasonBreaker:
		return fmt.Sprintf("job refused: the circuit breaker of %s is not closed, retry after %s", v.Detail, v.RetryAfter.Round(time.Millisecond))
	case ReasonShed:
		tier := ""
		if v.Detail != "" {
			tier = " of tier " + v.Detail
		}
		return fmt.Sprintf("job refused: its queue is under %s pressure (score %.3f) and sheds its class%s, retry after %s", v.Pressure.Level, v.Pressure.Score, tier, v.RetryAfter.Round(time.Millisecond))
	case ReasonDoomed:
		return fmt.Sprintf("job refused: it would wait about %s, past its deadline, retry after %s", v.EstimatedWait.Round(time.Millisecond), v.RetryAfter.Round(time.Millisecond))
	case ReasonUnavailable:
		return "refused: redis gives no answer, retry after " + v.RetryAfter.Round(time.Millisecond).String()
	case ReasonGone:
		return "job refused: it is no dead letter any more"
	case ReasonNone:
	}
	return "job refused"
}

// Is makes a refusal match ErrRefused and the error of its reason.
func (e *RefusedError) Is(target error) bool {
	if target == ErrRefused {
		return true
	}
	switch e.Verdict.Reason {
	case ReasonLimited:
		return target == ErrLimited
	case ReasonTooCostly:
		return target == ErrTooCostly
	case ReasonDedup:
		return target == ErrDedupFull
	case ReasonBuckets:
		return target == ErrBucketsFull
	case ReasonQueues:
		return target == ErrQueuesFull
	case ReasonLanes:
		return target == ErrLanesFull
	case ReasonDeadline:
		return target == ErrDeadlinePassed
	case ReasonMemory:
		return target == ErrOutOfMemory
	case ReasonPaused:
		return target == ErrPaused
	case ReasonUnique:
		return target == ErrNotUnique
	case ReasonOverflow:
		return target == ErrOverflow
	case ReasonTooLarge:
		return target == ErrTooLarge
	case ReasonBreaker:
		return target == ErrBreakerOpen
	case ReasonShed:
		return target == ErrShed
	case ReasonDoomed:
		return target == ErrDoomed
	case ReasonUnavailable:
		return target == ErrUnavailable
	case ReasonGone:
		return target == ErrNotDead
	case ReasonNone:
	}
	return false
}
