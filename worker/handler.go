package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
)

// Job is what a handler is given.
type Job[A any] struct {
	// Job is as it was enqueued. Its Payload and Headers must not be changed.
	admission.Job
	// Args is the payload, decoded.
	Args A
	// Attempt counts runs from 1. Runs whose worker was lost do not count.
	Attempt int
	// Suspect says that a worker was lost that held the job, which may therefore have run before. Lost is how many were
	// lost that are known to have begun it.
	Suspect bool
	Lost    int
	// Admitted is when the job entered, by the clock of Redis.
	Admitted time.Time
}

// Handler runs a job, its payload undecoded. Its answer is the error: nil completes the job, Discard, Snooze and
// RetryAfter do what they say, any other fails it: it is retried after a backoff until it is out of attempts. A panic
// fails it too. When ctx ends, context.Cause says why: a time-out, which matches context.DeadlineExceeded and names whose it is,
// headgate.ErrLeaseLost, ErrDraining, or ErrCancelled with its reason.
type Handler func(ctx context.Context, job Job[[]byte]) error

// Middleware wraps every handler.
type Middleware func(next Handler) Handler

// Use adds middleware around all handlers, also those that are registered already; the first one added is the
// outermost. It must not be called once Run was.
func (w *Worker) Use(middleware ...Middleware) {
	w.middleware = append(w.middleware, middleware...)
}

// Register makes handler the one of all jobs of a type. A payload is decoded from JSON into A, an empty one is A's zero value.
// []byte, string and json.RawMessage, but not other types made of them, take the bytes as they are: Job[string] of the payload
// "ada" in quotes has the quotes. A job whose payload A does not take becomes a dead letter for the reason "bad_payload".
// Register must not be called once Run was; a bad or repeated type is reported by Run.
func Register[A any](w *Worker, jobType string, handler func(ctx context.Context, job Job[A]) error) {
	if err := admission.ValidateName("type", jobType, false); err != nil {
		w.problems = append(w.problems, fmt.Errorf("register handler: %w", err))
		return
	}
	if w.handlers[jobType] != nil {
		err := &admission.FieldError{Field: "type", Value: strconv.Quote(jobType), Allowed: "one handler a type"}
		w.problems = append(w.problems, fmt.Errorf("register handler: %w", err))
		return
	}
	w.handlers[jobType] = func(ctx context.Context, raw Job[[]byte]) error {
		var args A
		if err := decode(raw.Payload, &args); err != nil {
			return &payloadError{err}
		}
		return handler(ctx, Job[A]{Job: raw.Job, Args: args, Attempt: raw.Attempt, Suspect: raw.Suspect, Lost: raw.Lost, Admitted: raw.Admitted})
	}
}

// RegisterAny makes handler the one of all jobs whose type has none of its own, whatever the type: for programs that
// pass jobs on to somebody who knows the types. It must not be called once Run was; Run reports a second one.
func RegisterAny(w *Worker, handler Handler) {
	if w.anyType != nil {
		err := &admission.FieldError{Field: "handler of any type", Value: "a second one", Allowed: "one a worker"}
		w.problems = append(w.problems, fmt.Errorf("register handler: %w", err))
		return
	}
	w.anyType = handler
}

// decode fills args, a pointer, with the payload.
func decode(payload []byte, args any) error {
	switch raw := args.(type) {
	case *[]byte:
		*raw = payload
	case *json.RawMessage:
		*raw = payload
	case *string:
		*raw = string(payload)
	default:
		if len(payload) > 0 {
			return json.Unmarshal(payload, args)
		}
	}
	return nil
}

// wrap puts all middleware around all handlers.
func (w *Worker) wrap() {
	around := func(handler Handler) Handler {
		for _, middleware := range slices.Backward(w.middleware) {
			handler = middleware(handler)
		}
		return handler
	}
	for jobType, handler := range w.handlers {
		w.handlers[jobType] = around(handler)
	}
	if w.anyType != nil {
		w.anyType = around(w.anyType)
	}
}

// handlerOf returns the handler of a type; nil if there is none.
func (w *Worker) handlerOf(jobType string) Handler {
	if handler := w.handlers[jobType]; handler != nil {
		return handler
	}
	return w.anyType
}
