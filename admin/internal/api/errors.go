package api

import (
	"context"
	"errors"
	"strings"

	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// overloaded is a call that was turned away before anything was sent.
func overloaded(e *admission.OverloadedError) *problem.DetailsError {
	p := problem.New(problem.Unavailable, "%s", e.Error())
	p.RetryAfter = e.RetryAfter
	return p
}

// ProblemOf says what a handler's error means to a caller. What is not known here stays inside: the caller gets the
// request's id, and the log the error.
func ProblemOf(err error) *problem.DetailsError {
	if p, ok := errors.AsType[*problem.DetailsError](err); ok {
		return p
	}
	if refused, ok := errors.AsType[*admission.RefusedError](err); ok {
		return refusal(refused)
	}
	if stale, ok := errors.AsType[*rollout.StaleError](err); ok {
		return lost(stale.InForce)
	}
	if full, ok := errors.AsType[*admission.OverloadedError](err); ok {
		return overloaded(full)
	}
	if none, ok := errors.AsType[*shown.NoForecastError](err); ok {
		return problem.New(problem.Conflict, "%s", none.Error())
	}
	switch {
	case errors.Is(err, admission.ErrInvalid):
		return problem.Invalid(fieldFaults(err)...)
	case errors.Is(err, admission.ErrUnknownJob):
		return problem.New(problem.NotFound, "nothing is known of that tenant or job: look at the names")
	case errors.Is(err, store.ErrUnknownVersion):
		return problem.New(problem.NotFound, "that version is not kept: GET /api/v1/policy/versions lists those that are")
	case errors.Is(err, rollout.ErrNoCandidate):
		return problem.New(problem.NotFound, "no roll-out is under way: PUT /api/v1/policy/rollout begins one")
	case errors.Is(err, rollout.ErrCandidate):
		return problem.New(problem.Conflict, "%s: promote or abandon it first", err)
	case errors.Is(err, store.ErrClassInUse):
		return problem.New(problem.Conflict, "jobs wait in a class that a queue would not have any more: drain it, or keep the class")
	case errors.Is(err, store.ErrConflict):
		return problem.New(problem.PreconditionFailed, "another version of the policy came first: look at what it says, and change that")
	case errors.Is(err, admission.ErrLeaseLost):
		return problem.New(problem.Conflict, "the lease is over: the job runs elsewhere or has ended; if every call is told so, POST /api/v1/workers begins another session")
	case errors.Is(err, store.ErrLeaseEnded):
		return problem.New(problem.Conflict, "the lease has ended, and others may hold the permits: acquire anew")
	case errors.Is(err, store.ErrReservationOther):
		return problem.New(problem.Conflict, "%s, or for those of another scope: choose another id", store.ErrReservationOther)
	case errors.Is(err, store.ErrNoReservation):
		return problem.New(problem.NotFound, "nothing is known of that reservation, or no more: twice as long as its cost could be told have passed, and what it took stands as it was")
	case errors.Is(err, store.ErrNoBreaker):
		return problem.New(problem.NotFound, "no worker has called that downstream within a day: GET /api/v1/breakers lists those that were called")
	case errors.Is(err, store.ErrNotAdaptive):
		return problem.New(problem.NotFound, "the policy has no adaptive limit of that name: GET /api/v1/adaptive lists those there are")
	case errors.Is(err, store.ErrTooManyScales):
		return problem.New(problem.Conflict, "%s: DELETE one, or scale all", err)
	case errors.Is(err, store.ErrUnknownQueue):
		return problem.New(problem.NotFound, "no job, no worker and no settings of that queue were seen: GET /api/v1/queues lists those there are")
	case errors.Is(err, shown.ErrNoLoad):
		return problem.New(problem.NotFound, "no worker has told of that downstream within an hour: GET /api/v1/load lists those that were")
	case errors.Is(err, admission.ErrEnded):
		return problem.New(problem.Conflict, "the job has ended, or is a dead letter: POST /api/v1/dead-letters/purge ends those")
	case errors.Is(err, store.ErrUnplaced):
		return problem.New(problem.Conflict, "%s", store.ErrUnplaced)
	case errors.Is(err, admission.ErrNotDead):
		return problem.New(problem.Conflict, "the job is no dead letter: GET /api/v1/jobs/{tenant}/{id} tells where it is")
	case errors.Is(err, admission.ErrOutcomeUnknown):
		return problem.New(problem.OutcomeUnknown, "send the same id again within the dedup window to find out; later it could run twice")
	case errors.Is(err, admission.ErrMigrating):
		return unavailable("the deployment is being migrated: send the same again when headgate migrate has ended")
	case store.IsOutdated(err):
		return unavailable("the deployment was migrated, and this server looks for it as it was before: start the server anew, and send the same again")
	case errors.Is(err, admission.ErrOutOfMemory):
		return unavailable("Redis is full: GET /api/v1/doctor says what to do")
	case store.IsDenied(err):
		return unavailable("Redis refuses the user of this server: its password, or its ACL, has changed")
	case errors.Is(err, store.ErrStale):
		return unavailable("the policy has changed again and again while this was decided, and nothing was")
	case store.InDoubt(err):
		p := problem.New(problem.OutcomeUnknown, "Redis did not answer in time; what the call was to do may have been done")
		p.RetryAfter = problem.RetrySoon
		return p
	case errors.Is(err, admission.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return unavailable("Redis cannot be reached, and what the call was to do was not sent to it: send the same again")
	}
	return problem.New(problem.Internal, "the server's log has the reason, by the request's id")
}

// unavailable is a call that may be made again soon.
func unavailable(detail string) *problem.DetailsError {
	p := problem.New(problem.Unavailable, "%s", detail)
	p.RetryAfter = problem.RetrySoon
	return p
}

// fieldFaults returns every bad field that an error holds.
func fieldFaults(err error) []problem.Fault {
	var faults []problem.Fault
	var visit func(error)
	visit = func(err error) {
		switch e := err.(type) { //nolint:errorlint // The tree is walked by hand, to find all of them.
		case *admission.FieldError:
			faults = append(faults, problem.At("/"+strings.ReplaceAll(e.Field, " ", "_"), e.Error()))
		case interface{ Unwrap() []error }:
			for _, inner := range e.Unwrap() {
				visit(inner)
			}
		case interface{ Unwrap() error }:
			visit(e.Unwrap())
		}
	}
	visit(err)
	return faults
}

// refusal is a job that was refused.
func refusal(refused *admission.RefusedError) *problem.DetailsError {
	v := refused.Verdict
	kind := problem.Refused
	if v.Permanent() {
		kind = problem.RefusedForGood
	}
	p := problem.New(kind, "%s", refused.Error())
	p.RetryAfter = v.RetryAfter
	p.Extensions = map[string]any{"id": v.ID, "reason": v.Reason}
	if v.Scope != "" {
		p.Extensions["scope"], p.Extensions["burst"] = v.Scope, v.Burst
	}
	if v.Reason == admission.ReasonLimited {
		p.Extensions["tokens_left"] = v.TokensLeft
	}
	if v.Reason == admission.ReasonDoomed {
		p.Extensions["estimated_wait_ms"] = shown.Millis(v.EstimatedWait)
	}
	if v.RetryAfter > 0 {
		p.Extensions["retry_after_ms"] = shown.Millis(v.RetryAfter)
	}
	return p
}
