package worker

import (
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
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

type discardError struct{ cause error }

func (e *discardError) Error() string { return fmt.Sprintf("discarded: %s", e.cause) }
func (e *discardError) Unwrap() error { return e.cause }

type snoozeError struct{ delay time.Duration }

func (e *snoozeError) Error() string { return "snoozed for " + e.delay.String() }

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

// payloadError is a payload that a handler's type does not take.
type payloadError struct{ cause error }

func (e *payloadError) Error() string { return "decode payload: " + e.cause.Error() }
func (e *payloadError) Unwrap() error { return e.cause }

// panicError is a panic of a handler.
type panicError struct {
	value any
	stack string
}

func newPanicError(value any) *panicError {
	stack := string(debug.Stack())
	// The frames above the panic are the runtime's and this package's; a kept text has no room for them.
	if _, below, ok := strings.Cut(stack, "\npanic("); ok {
		if _, below, ok = strings.Cut(below, "\n"); ok {
			_, stack, _ = strings.Cut(below, "\n")
		}
	}
	return &panicError{value, stack}
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

// try asks an error all that it will be asked. One that panics then, as a nil of its own type does, is a panic of its handler,
// not of the worker.
func try(err error) {
	if err != nil {
		_ = err.Error()
		_ = is[*panicError](err)
	}
}

// errExited is a handler that ended its goroutine.
var errExited = errors.New("handler called runtime.Goexit")

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
