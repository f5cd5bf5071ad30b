package route

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admission"
)

// Reach is whose things a route shows or changes. The zero Reach is none, and no route may have it.
type Reach int

// The reaches.
const (
	// Public is nobody's.
	Public Reach = iota + 1
	// Deployment is everybody's: a principal that is bound to a tenant is refused.
	Deployment
	// Tenant is one tenant's, or everybody's for a principal that is not bound: the handler asks Request.Bind.
	Tenant
)

// String returns the name that the description has for it.
func (r Reach) String() string {
	switch r {
	case Public:
		return "public"
	case Deployment:
		return "deployment"
	case Tenant:
		return "tenant"
	}
	return "none"
}

// Load says which of the server's bounds calls count against.
type Load int

// The loads.
const (
	// Operating is what people and their programs do now and then: so many a second of a credential.
	Operating Load = iota
	// Data is part of the traffic, with limits of its own.
	Data
	// Wait is traffic that does nothing most of the time but wait, and so takes no place among the calls under way.
	Wait
	// Kept has places of its own among the calls under way: whoever looks after the server is answered also by a full one.
	Kept
)

// String returns the name that the description has for it; that of Operating is empty.
func (l Load) String() string {
	return map[Load]string{Data: "data", Wait: "wait", Kept: "kept"}[l]
}

// Route is one method of one path.
type Route struct {
	Method string
	// Path is a pattern of http.ServeMux.
	Path  string
	Role  access.Role
	Reach Reach
	Load  Load
	// UnderWay says that calls are about work that somebody has in hand: they are answered also where nothing new is begun.
	UnderWay bool
	// Parts is how many things a body asks for, each of which costs what a call does; nil is one.
	Parts  func(body []byte) int
	Handle func(*Request) (*Answer, error)
}

// Pattern returns method and path as http.ServeMux takes them.
func (r Route) Pattern() string { return r.Method + " " + r.Path }

// Validate reports a route that does not say who may call it, or for whom.
func (r Route) Validate() error {
	var bad []error
	if r.Role == 0 {
		bad = append(bad, &admission.FieldError{Field: "role", Value: r.Role.String(), Allowed: "anyone, " + access.RoleNames})
	}
	if r.Reach == 0 {
		bad = append(bad, &admission.FieldError{Field: "reach", Value: r.Reach.String(), Allowed: "public, deployment or tenant"})
	}
	if (r.Role == access.Anyone) != (r.Reach == Public) {
		bad = append(bad, &admission.FieldError{Field: "role", Value: strconv.Quote(r.Role.String()), Allowed: "anyone, if and only if the reach is public"})
	}
	if r.Handle == nil {
		bad = append(bad, &admission.FieldError{Field: "handler", Value: "none", Allowed: "one"})
	}
	if err := errors.Join(bad...); err != nil {
		return fmt.Errorf("route %s: %w", r.Pattern(), err)
	}
	return nil
}

// Request is a call that may be answered: its sender is known and allowed, its body and its query are valid by the
// description.
type Request struct {
	*http.Request

	// Who calls; the zero Principal on routes for anyone.
	Who access.Principal
	// Body is what was sent, empty where nothing was.
	Body  []byte
	bound bool
	// callerID and callerAgent are what the caller calls the call and itself.
	callerID, callerAgent string
}

// Note keeps what the caller calls the call and itself, for the log. It is the caller's word and decides nothing.
func (r *Request) Note(id, agent string) { r.callerID, r.callerAgent = id, agent }

// Noted returns what Note kept.
func (r *Request) Noted() (id, agent string) { return r.callerID, r.callerAgent }

// Decode reads the body. Where it cannot be read the schema and the struct differ, or a number is out of range.
func (r *Request) Decode(into any) error {
	if len(r.Body) == 0 {
		return nil
	}
	err := json.Unmarshal(r.Body, into, jsonv1.DefaultOptionsV1(), json.RejectUnknownMembers(true))
	if wrong, ok := errors.AsType[*json.SemanticError](err); ok && wrong.GoType != nil && !errors.Is(err, json.ErrUnknownName) {
		return problem.Invalid(problem.At(string(wrong.JSONPointer), "cannot be read as "+wrong.GoType.String())) // Such as 1.0 where the schema has an integer.
	}
	if err != nil {
		return problem.Invalid(problem.At("", err.Error()))
	}
	return nil
}

// Bind returns the tenant that a call is about: the named one, or the principal's own where none is named. Another's is
// answered like one that nobody knows.
func (r *Request) Bind(named string) (string, error) {
	r.bound = true
	own := r.Who.Tenant
	if own == "" || named == own {
		return named, nil
	}
	if named == "" {
		return own, nil
	}
	return "", problem.New(problem.NotFound, "nothing is known of that tenant or job: look at the names")
}

// Bound reports whether Bind was asked.
func (r *Request) Bound() bool { return r.bound }

// Answer is what a call that did not fail is told.
type Answer struct {
	// Status is 200 where it is zero.
	Status int
	// Header is sent with it.
	Header http.Header
	// Value is sent as JSON, unless nil.
	Value any
	// Raw answers in place of all that, if not nil.
	Raw http.Handler
}

// OK answers 200 with a value.
func OK(value any) *Answer { return &Answer{Value: value} }

// Done answers 204.
func Done() *Answer { return &Answer{Status: http.StatusNoContent} }

// Duration reads a duration between two others. pointer says where in the body it is.
func Duration(pointer, text string, least, most time.Duration) (time.Duration, error) {
	duration, err := time.ParseDuration(text)
	if err != nil || duration < least || duration > most {
		return 0, problem.Invalid(problem.At(pointer, "is not from "+admission.DurationText(least)+" to "+admission.DurationText(most)))
	}
	return duration, nil
}

// KeyName names a job.
type KeyName struct {
	Tenant string `json:"tenant"`
	ID     string `json:"id"`
}
