package grpclimit

import (
	"context"
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/limiter"
)

// Refusal is why a call does not pass. It is a plain value.
type Refusal struct {
	// Code is that of the answer: RESOURCE_EXHAUSTED where a limit refuses, INTERNAL where the Config gives a name or a cost that is not allowed,
	// CANCELED or DEADLINE_EXCEEDED where the client has gone, else UNAVAILABLE.
	Code codes.Code
	// Verdict is the limiter's; zero where there is none.
	Verdict limiter.Verdict
	// Err is why there is no verdict, else nil. The client is not told.
	Err error
	// RetryAfter is when to come back; zero where that is of no use.
	RetryAfter time.Duration
}

// retrySoon is when to come back where nobody knows when it helps.
const retrySoon = time.Second

func refusalOf(verdict limiter.Verdict, err error) Refusal {
	r := Refusal{Code: codes.Unavailable, Verdict: verdict, Err: err, RetryAfter: max(verdict.RetryAfter, retrySoon)}
	switch {
	case isInvalid(err):
		r.Code, r.RetryAfter = codes.Internal, 0
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		r.Code, r.RetryAfter = status.FromContextError(err).Code(), 0
	case err != nil:
	case verdict.Reason == admission.ReasonLimited:
		r.Code, r.RetryAfter = codes.ResourceExhausted, max(verdict.RetryAfter, time.Nanosecond)
	case verdict.Reason == admission.ReasonTooCostly:
		r.Code, r.RetryAfter = codes.ResourceExhausted, 0
	}
	return r
}

// status is the error that a method ends with.
func (r *Refusal) status() error {
	text := "not decided"
	if r.Err == nil {
		text = "refused: " + string(r.Verdict.Reason)
	}
	var details []protoadapt.MessageV1
	if r.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(r.RetryAfter)})
	}
	if r.Code == codes.ResourceExhausted {
		details = append(details, &errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
			Subject: r.Verdict.Scope.Kind(), Description: string(r.Verdict.Reason),
		}}})
	}
	plain := status.New(r.Code, text)
	if detailed, err := plain.WithDetails(details...); err == nil {
		return detailed.Err()
	}
	return plain.Err()
}
