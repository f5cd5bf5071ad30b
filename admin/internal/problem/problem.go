package problem

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"time"
)

// MediaType is the content type of a problem.
const MediaType = "application/problem+json"

// typePrefix begins the type of every problem.
const typePrefix = "urn:headgate:problem:"

// Kind is what went wrong; each has one status and one title.
type Kind string

// The kinds.
const (
	InvalidRequest   Kind = "invalid-request"
	Unauthenticated  Kind = "unauthenticated"
	Forbidden        Kind = "forbidden"
	NotFound         Kind = "not-found"
	MethodNotAllowed Kind = "method-not-allowed"
	Conflict         Kind = "conflict"

	PreconditionFailed   Kind = "precondition-failed"
	PreconditionRequired Kind = "precondition-required"

	TooLarge         Kind = "too-large"
	UnsupportedMedia Kind = "unsupported-media-type"
	TooManyRequests  Kind = "too-many-requests"
	Refused          Kind = "refused"
	RefusedForGood   Kind = "refused-for-good"
	Internal         Kind = "internal"
	Unavailable      Kind = "unavailable"
	OutcomeUnknown   Kind = "outcome-unknown"
	Busy             Kind = "busy"
)

type meaning struct {
	status int
	title  string
}

var meanings = map[Kind]meaning{
	InvalidRequest:   {http.StatusBadRequest, "The request is not valid"},
	Unauthenticated:  {http.StatusUnauthorized, "No valid credential was sent"},
	Forbidden:        {http.StatusForbidden, "The credential does not allow this"},
	NotFound:         {http.StatusNotFound, "There is nothing like that"},
	MethodNotAllowed: {http.StatusMethodNotAllowed, "The path does not take this method"},
	Conflict:         {http.StatusConflict, "The state does not allow this"},

	PreconditionFailed:   {http.StatusPreconditionFailed, "Somebody else was faster"},
	PreconditionRequired: {http.StatusPreconditionRequired, "The request does not say what it was made from"},

	TooLarge:         {http.StatusRequestEntityTooLarge, "The body is too large"},
	UnsupportedMedia: {http.StatusUnsupportedMediaType, "The body is not JSON"},
	TooManyRequests:  {http.StatusTooManyRequests, "Too many requests"},
	Refused:          {http.StatusTooManyRequests, "The job was refused for now"},
	RefusedForGood:   {http.StatusUnprocessableEntity, "The job was refused for good"},
	Internal:         {http.StatusInternalServerError, "The server failed"},
	Unavailable:      {http.StatusServiceUnavailable, "Redis is not available"},
	Busy:             {http.StatusServiceUnavailable, "The server has too much to do"},
	OutcomeUnknown:   {http.StatusGatewayTimeout, "No answer came; it may have been done"},
}

// Fault is one bad part of a request.
type Fault struct {
	// Pointer is a JSON pointer into the body; Parameter names a query parameter or a header. One of them is set.
	Pointer   *string `json:"pointer,omitempty"`
	Parameter string  `json:"parameter,omitempty"`
	// Detail says what is wrong and what is allowed.
	Detail string `json:"detail"`
}

// At is a fault at a JSON pointer into the body; "" is the body itself.
func At(pointer, detail string) Fault { return Fault{Pointer: &pointer, Detail: detail} }

// DetailsError is why a call failed. It is an error, so that handlers return it.
type DetailsError struct {
	Kind   Kind
	Detail string
	// Faults are what is wrong with an invalid request, all of it or the first MaxFaults.
	Faults []Fault
	// RetryAfter is told in the header of that name, rounded up to whole seconds, unless zero.
	RetryAfter time.Duration
	// Extensions are further members, by names that a problem does not have itself.
	Extensions map[string]any
	// Header is sent with it.
	Header http.Header
}

// New returns a problem of a kind. detail says what to do.
func New(kind Kind, format string, args ...any) *DetailsError {
	return &DetailsError{Kind: kind, Detail: fmt.Sprintf(format, args...)}
}

// MaxFaults is how many faults of a request are told at most.
const MaxFaults = 50

// Invalid returns the problem of a request with faults, of which the first MaxFaults are told.
func Invalid(faults ...Fault) *DetailsError {
	if len(faults) > MaxFaults {
		faults = faults[:MaxFaults]
	}
	return &DetailsError{Kind: InvalidRequest, Detail: "see errors for what is wrong and what is allowed", Faults: faults}
}

// Error returns kind and detail.
func (p *DetailsError) Error() string { return string(p.Kind) + ": " + p.Detail }

// Status is its HTTP status.
func (p *DetailsError) Status() int { return meanings[p.Kind].status }

// document returns the members that are not of the call.
func (p *DetailsError) document() map[string]any {
	document := map[string]any{}
	maps.Copy(document, p.Extensions)
	document["type"], document["title"], document["detail"] = typePrefix+string(p.Kind), meanings[p.Kind].title, p.Detail
	if len(p.Faults) > 0 {
		document["errors"] = p.Faults
	}
	return document
}

// Part returns the problem as a part of an answer that has several: without the members that are of the call, the id that stands
// beside it, and with RetryAfter as a member.
func (p *DetailsError) Part() map[string]any {
	document := p.document()
	delete(document, "id")
	if _, told := document["retry_after_ms"]; !told && p.RetryAfter > 0 {
		document["retry_after_ms"] = float64(p.RetryAfter.Microseconds()) / 1000
	}
	return document
}

// Write answers with the problem. instance is the path that was called.
func (p *DetailsError) Write(w http.ResponseWriter, instance, requestID string) {
	document := p.document()
	document["status"], document["instance"], document["request_id"] = p.Status(), instance, requestID
	text, err := json.Marshal(document)
	if err != nil {
		http.Error(w, "the problem has no JSON text", http.StatusInternalServerError)
		return
	}
	header := w.Header()
	maps.Copy(header, p.Header)
	if p.RetryAfter > 0 {
		header.Set("Retry-After", Seconds(p.RetryAfter))
	}
	header.Set("Content-Type", MediaType)
	w.WriteHeader(p.Status())
	_, _ = w.Write(text) // Whoever went away hears nothing.
}

// Seconds writes a duration in whole seconds, rounded up.
func Seconds(d time.Duration) string {
	return fmt.Sprintf("%d", (d+time.Second-1)/time.Second)
}

// RetrySoon is when to try again where nobody knows when it helps.
const RetrySoon = time.Second
