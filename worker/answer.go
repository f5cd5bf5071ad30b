package worker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Discard returns err as an answer of a handler that the job will never succeed: it becomes a dead letter for the
// reason "discarded", whatever attempts are left. It says nothing about the downstream.
func Discard(err error) error { return &discardError{err} }

// Snooze returns an answer of a handler that the job is to come back after d. No attempt is burnt, and it says
// nothing about the downstream.
func Snooze(d time.Duration) error { return &snoozeError{max(d, 0)} }

// RetryAfter returns err as a failure of the job after which it comes back in d, 0 to headgate.MaxDelay, whatever its
// backoff says: what a downstream asks for in a Retry-After. An attempt is burnt, and the downstream's circuit breaker
// counts err as it would count it alone.
func RetryAfter(d time.Duration, err error) error { return &retryError{max(d, 0), err} }

// Ignore returns err as a failure of the job that is not the downstream's: it is retried as after err itself, and
// the downstream's circuit breaker does not count it.
func Ignore(err error) error { return &ignoreError{err} }

// Throttled returns err, any answer of a handler but nil, as that to a call which the downstream refused as one too many: by a 429, a quota. The
// job goes the way of err (Throttled(Snooze(d)) burns no attempt), and the downstream's circuit breaker does not count the call: who refuses
// is not ill. Where the policy lets the dispatch of the downstream move (adaptive), it goes by how many calls were refused so; where it has a max_retry_after, the d of a Snooze or a RetryAfter in
// err, from a second on, holds back all of the downstream's jobs, for as long as the policy lets it.
func Throttled(err error) error { return &throttledError{err} }

// IsThrottled reports whether err is, or wraps, one of Throttled.
func IsThrottled(err error) bool { return is[*throttledError](err) }

// IsDiscard reports whether err is, or wraps, a Discard.
func IsDiscard(err error) bool { return is[*discardError](err) }

// IsSnooze reports whether err is, or wraps, a Snooze, and for how long.
func IsSnooze(err error) (d time.Duration, ok bool) {
	e, ok := errors.AsType[*snoozeError](err)
	if !ok {
		return 0, false
	}
	return e.delay, true
}

// IsRetryAfter reports whether err is, or wraps, a RetryAfter, and after how long.
func IsRetryAfter(err error) (d time.Duration, ok bool) {
	e, ok := errors.AsType[*retryError](err)
	return e.after(), ok
}

// IsIgnored reports whether err is, or wraps, one of Ignore.
func IsIgnored(err error) bool { return is[*ignoreError](err) }

type discardError struct{ cause error }

func (e *discardError) Error() string { return fmt.Sprintf("discarded: %s", e.cause) }
func (e *discardError) Unwrap() error { return e.cause }

type snoozeError struct{ delay time.Duration }

func (e *snoozeError) Error() string { return "snoozed for " + e.delay.String() }

// after returns the delay; that of nil is zero.
func (e *snoozeError) after() time.Duration {
	if e == nil {
		return 0
	}
	return e.delay
}

type retryError struct {
	delay time.Duration
	cause error
}

func (e *retryError) Error() string { return fmt.Sprintf("retry after %s: %s", e.delay, e.cause) }
func (e *retryError) Unwrap() error { return e.cause }

// after returns the delay; that of nil is zero.
func (e *retryError) after() time.Duration {
	if e == nil {
		return 0
	}
	return e.delay
}

type ignoreError struct{ cause error }

func (e *ignoreError) Error() string { return fmt.Sprint(e.cause) }
func (e *ignoreError) Unwrap() error { return e.cause }

type throttledError struct{ cause error }

func (e *throttledError) Error() string { return fmt.Sprint(e.cause) }
func (e *throttledError) Unwrap() error { return e.cause }

// payloadError is a payload that a handler's type does not take.
type payloadError struct{ cause error }

func (e *payloadError) Error() string { return "decode payload: " + e.cause.Error() }
func (e *payloadError) Unwrap() error { return e.cause }

// errExited is a handler that ended its goroutine.
var errExited = errors.New("handler called runtime.Goexit")

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

type cancelledError struct{ reason string }

func (e *cancelledError) Error() string {
	if e.reason == "" {
		return ErrCancelled.Error()
	}
	return ErrCancelled.Error() + ": " + e.reason
}

func (e *cancelledError) Unwrap() error { return ErrCancelled }

// cancelledBy returns why a job was cancelled, if that is what ended its handler's ctx.
func cancelledBy(ctx context.Context) (reason string, ok bool) {
	e, ok := errors.AsType[*cancelledError](context.Cause(ctx))
	if !ok {
		return "", false
	}
	if e.reason == "" {
		return ReasonCancelled, true
	}
	return e.reason, true
}

// ErrCancelled matches the cause with which a handler's ctx ends when its job was cancelled while it runs
// (store.Deployment.Cancel); the cause's text is the reason that was given. The job leaves as cancelled whatever the handler
// returns then, and its downstream's circuit breaker does not count the call.
var ErrCancelled = errors.New("job cancelled")
