package producer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// unknownError is headgate.ErrOutcomeUnknown with what led to it. It hides an headgate.ErrUnavailable of its last
// attempt: that would say that nothing was sent, and something was.
type unknownError struct {
	cause error
}

// Error says that the outcome is unknown and why.
func (e *unknownError) Error() string {
	return admission.ErrOutcomeUnknown.Error() + ": " + e.cause.Error()
}

// Is matches headgate.ErrOutcomeUnknown and whatever the cause matches, headgate.ErrUnavailable excepted.
func (e *unknownError) Is(target error) bool {
	return target == admission.ErrOutcomeUnknown || target != admission.ErrUnavailable && errors.Is(e.cause, target)
}

// As finds what the cause holds.
func (e *unknownError) As(target any) bool { return errors.As(e.cause, target) }

func unknown(cause error) error { return &unknownError{cause: cause} }

// joinCause adds what an earlier attempt failed with, if one did.
func joinCause(err, failure error) error {
	if failure == nil {
		return err
	}
	return fmt.Errorf("%w: %w", err, failure)
}

// tooLate is the error of a caller that was not sent because no answer would have come in its time.
func tooLate(left, takes time.Duration) error {
	return fmt.Errorf("%w: nothing was sent: %s are left and an answer takes up to %s: %w",
		admission.ErrUnavailable, max(left, 0).Round(time.Microsecond), takes.Round(time.Microsecond), context.DeadlineExceeded)
}

// notSent is the error of a caller that goes because of cause before its jobs were sent. If that is the producer's
// time-out, Redis did not answer those before it.
func notSent(cause error) error {
	if errors.Is(cause, errTimeout) {
		return fmt.Errorf("%w: nothing was sent: %w", admission.ErrUnavailable, cause)
	}
	return fmt.Errorf("nothing was sent: %w", cause)
}

// outcome returns what err of the last attempt means for the flight's jobs, all attempts considered.
func (f *flight) outcome(err error) error {
	if err != nil && f.doubted {
		return unknown(err)
	}
	return err
}

// mayRepeat reports whether the flight may be sent again after err. An answer of Redis is final.
func (p *Producer) mayRepeat(f *flight, err error) bool {
	if errors.Is(err, store.ErrStale) || errors.Is(err, policy.ErrStored) || errors.Is(err, errTooLate) || store.Closed(err) {
		return false
	}
	doubt := store.InDoubt(err)
	if !doubt && !errors.Is(err, admission.ErrUnavailable) {
		return false
	}
	f.doubted = f.doubted || doubt
	return true
}

// lateCall is how long a call that was cut off may still be on its way to Redis, for askAgain to find what became of it.
const lateCall = 50 * time.Millisecond

// doubts says whether a call whose caller was told that its outcome is unknown may still be on its way: that caller asks again by another
// flight, with the same ids, which knows nothing of the first. Its zero value is ready; several goroutines may use it.
type doubts struct {
	// end is when it cannot any more, since clockStart, by a clock that nobody sets: 0 where no call is, noAnswer where none has been answered since.
	end atomic.Int64
}

const noAnswer = -1

// clockStart is when the process began.
var clockStart = time.Now()

// note is called before a caller is told that an outcome is unknown.
func (d *doubts) note() { d.end.Store(noAnswer) }

// answered is called when a call is answered, and reports whether one of an earlier caller may be read after it.
func (d *doubts) answered(now time.Time) bool {
	end := d.end.Load()
	if end == noAnswer {
		d.end.CompareAndSwap(noAnswer, int64(now.Sub(clockStart)+lateCall))
		return true
	}
	if end == 0 || int64(now.Sub(clockStart)) < end {
		return end != 0
	}
	d.end.CompareAndSwap(end, 0)
	return false
}

// askAgain asks once more for those jobs of a flight in doubt, or beside doubts, that were refused, and puts the answers in the place of the first. Redis may
// read a call that was cut off after its own repetition, from the buffer of another connection, and let a job in whose repetition it has
// refused; that call has been read when lateCall is over. One that a network keeps for longer than that stays possible.
func (p *Producer) askAgain(ctx context.Context, snapshot *policy.Compiled, candidates []store.Candidate, verdicts []admission.Verdict) error {
	var refused []store.Candidate
	var at []int
	for i := range verdicts {
		if verdicts[i].Decision == admission.Refused {
			refused, at = append(refused, candidates[i]), append(at, i)
		}
	}
	if len(refused) == 0 {
		return nil
	}
	late := time.NewTimer(lateCall)
	defer late.Stop()
	select {
	case <-late.C:
	case <-ctx.Done():
		return context.Cause(ctx) //nolint:wrapcheck // as of a call that got no answer
	}
	again, err := p.part.Admit(ctx, snapshot.Version(), refused)
	if err != nil {
		return err //nolint:wrapcheck // as that of the first
	}
	for i, verdict := range again {
		verdicts[at[i]] = verdict
	}
	return nil
}

// errTooLate ends a flight whose ids the store may have forgotten by the time a resend arrives.
var errTooLate = errors.New("too late to send again: the dedup window could be over")

// checkWindow returns an error matching errTooLate where the flight is in doubt and a resend made now could arrive
// after the dedup window (law L3).
func (p *Producer) checkWindow(f *flight) error {
	if !f.doubted || time.Since(f.sentFirst)+p.config.Timeout < p.limits.window() {
		return nil
	}
	return fmt.Errorf("%w: %w", errTooLate, f.failure)
}
