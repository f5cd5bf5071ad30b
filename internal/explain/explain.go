package explain

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// The kinds of what can be explained.
const (
	Job        = "job"
	Tenant     = "tenant"
	Scope      = "scope"
	Downstream = "downstream"
	Queue      = "queue"
)

// The kinds of a Reason beside those of a store.Wait.
const (
	KindLimit      = "limit"
	KindSuspension = "suspension"
	// KindScale is that limits are scaled to a part of what the policy says.
	KindScale    = "scale"
	KindDeadline = "deadline"
	KindTier     = "tier"
	KindBacklog  = "backlog"
	KindParked   = "parked"
	// KindAdaptive is a limit that moves by itself.
	KindAdaptive = "adaptive"
	KindDead     = "dead"
	// KindPressure is how much a queue is pressed, KindShed that jobs are refused for it.
	KindPressure = "pressure"
	KindShed     = "shed"
	// KindReserved is that slots are kept for some classes of a queue.
	KindReserved = "reserved"
	// KindDoomed is that a queue refuses jobs that would start too late.
	KindDoomed = "doomed"
	// KindBypass is that a class goes beside the limits of queues and classes.
	KindBypass = "bypass"
	// KindReservation is when reservations expire.
	KindReservation = "reservation"
	// KindErrors is what calls failed by, which receivers have said: for operators alone.
	KindErrors = "errors"
)

// Explanation says where something stands and what holds it back.
//
//nolint:recvcheck // It is a plain value when it is complete.
type Explanation struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Summary says in a sentence how it stands.
	Summary string `json:"summary"`
	// PolicyVersion is that of the policy in force, 0 for the built-in one.
	PolicyVersion int64 `json:"policy_version"`
	// Reasons are what holds it back, the most certain first, and what bounds it though it does not bind now.
	Reasons []Reason `json:"reasons"`
}

// Reason is one thing that holds something back, or may.
type Reason struct {
	// Kind is that of a store.Wait, or one of those above.
	Kind string `json:"kind"`
	// Binds says that it holds back now.
	Binds bool   `json:"binds"`
	Text  string `json:"text"`
	// Until is when it ends by itself; zero when it does not, or nobody knows.
	Until time.Time `json:"until,omitzero"`
	// Rule decided it; nil where no rule of the policy did.
	Rule *Rule `json:"rule,omitempty"`
	// Change says what would change it.
	Change string `json:"change,omitempty"`
}

// New explains what a kind and a name say: a job by "tenant:id", a tenant, a scope, a downstream or a queue. What nobody knows is
// headgate.ErrUnknownJob; of every tenant, scope and downstream there is something to say. Whoever does not see the deployment has jobs
// explained alone.
func New(ctx context.Context, s store.Deployment, kind, name string, eyes shown.Eyes) (Explanation, error) {
	job := func(ctx context.Context, s store.Deployment, name string) (Explanation, error) {
		if !eyes.Deployment {
			return ownJob(ctx, s, name, eyes)
		}
		return explainJob(ctx, s, name, eyes)
	}
	of := map[string]func(context.Context, store.Deployment, string) (Explanation, error){
		Job: job, Tenant: explainTenant, Scope: explainScope, Downstream: explainDownstream, Queue: explainQueue,
	}[kind]
	if of == nil {
		return Explanation{}, &admission.FieldError{Field: "kind", Value: strconv.Quote(kind), Allowed: "job, tenant, scope, downstream or queue"}
	}
	e, err := of(ctx, s, name)
	e.Kind, e.Name = kind, name
	return e, err
}

// add takes a reason.
func (e *Explanation) add(r Reason) {
	if !r.Until.IsZero() {
		r.Until = shown.Moment(r.Until)
	}
	e.Reasons = append(e.Reasons, r)
}

// keyOf reads "tenant:id". No tenant has a colon in its name.
func keyOf(name string) (admission.Key, error) {
	tenant, id, ok := strings.Cut(name, ":")
	if !ok {
		return admission.Key{}, &admission.FieldError{Field: "job", Value: strconv.Quote(name), Allowed: "TENANT:ID"}
	}
	return admission.Key{Tenant: tenant, ID: id}, nil
}
