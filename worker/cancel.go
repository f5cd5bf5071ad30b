package worker

import (
	"context"
	"errors"
)

// ErrCancelled matches the cause with which a handler's ctx ends when its job was cancelled while it runs
// (store.Deployment.Cancel); the cause's text is the reason that was given. The job leaves as cancelled whatever the handler
// returns then, and its downstream's circuit breaker does not count the call.
var ErrCancelled = errors.New("job cancelled")

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
