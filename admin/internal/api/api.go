package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admin/internal/sessions"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/tally"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Enqueuer puts jobs in; a *producer.Producer is one.
type Enqueuer interface {
	Enqueue(ctx context.Context, job admission.Job) (admission.Verdict, error)
	// EnqueueBatch puts many in, and returns a result for each, in their order. The error is that not all are in.
	EnqueueBatch(ctx context.Context, jobs []admission.Job) ([]admission.EnqueueResult, error)
	// RedriveWith brings up to store.MaxBatchJobs dead letters back through admission. What became of each is in the
	// results, in the order of the keys; without results the error is that of the call.
	RedriveWith(ctx context.Context, options admission.RedriveOptions, keys ...admission.Key) ([]admission.RedriveResult, error)
}

// Limiter decides questions by itself where it can; a *limiter.Limiter is one, and its methods say more.
type Limiter interface {
	Decide(ctx context.Context, questions []store.Question) (granted bool, source string, answers []store.Answer, err error)
}

// costs guesses what work will cost by what such work has; an Enqueuer that is one is asked, and without one nothing is learned.
type costs interface {
	Learn(tenant, queue, of string, actual admission.Tokens)
	Guess(tenant, queue, of string, burst admission.Tokens) admission.Tokens
}

// policied knows the policy by which it sends jobs, nil before the first one; an Enqueuer that is one knows tenants' records by which it has sent theirs.
type policied interface {
	Policy() *policy.Compiled
}

// Config is what the handlers work with.
type Config struct {
	Store    store.Deployment
	Enqueuer Enqueuer
	// Limiter is that of admin.Config.
	Limiter Limiter
	// Stats returns what is to be shown of the server.
	Stats func() any
	// Doctor examines the deployment, and returns what is to be shown of it.
	Doctor func(context.Context) (any, error)
	// Description is the text of /openapi.json; Metrics answers /metrics.
	Description []byte
	Metrics     http.Handler
	// Version names the build; it is shown to anyone.
	Version string
	// Decided is told of each decision and of the tokens that it charged.
	Decided func(allowed bool, charged int64)
	// Signalled is told of each level that an answer told of a queue.
	Signalled func(queue string, level admission.PressureLevel)
	// Took is told how long each took, and what it told its caller to wait: negative where that is of no use.
	Took func(took, wait time.Duration)
	// Acquired is told of each acquisition of a semaphore, and of those that the policy names: the limit, and whether it was refused.
	Acquired func(name string, limit int, refused bool)
	// Refused is told of one refused decision a second for each reason, with how many there were since the one before.
	Refused func(Refusal)
	// Missed is told of what failed beside a call that was answered.
	Missed func(what string, err error)
	// OldHeaders also sends X-RateLimit-Limit, -Remaining, -Reset and -Retry-After with decisions.
	OldHeaders bool
	// Breaker and Breakers are those of admin.Config.
	Breaker  breaker.Config
	Breakers map[string]breaker.Config
}

// API are the handlers.
type API struct {
	config Config
	limits *limits
	// documents answer what is asked of the policy's text.
	documents documents
	// describedBy is the ETag of the description.
	describedBy string
	sessions    *sessions.Sessions
	// costs are those of jobs and of reservations, nil where nobody learns them.
	costs costs
	// tally counts decisions without a job.
	tally    tally.Tally
	refusals tally.Sampler
	// examining is held by whoever finds out whether the server is ready; last is what came of it.
	examining chan struct{}
	last      atomic.Pointer[readiness]
	// began is when the server did.
	began time.Time
}

// New returns the handlers.
func New(config Config) *API {
	sum := sha256.Sum256(config.Description)
	known := &limits{store: config.Store}
	learned, _ := config.Enqueuer.(costs)
	var learn func(tenant, queue, jobType string, actual admission.Tokens)
	if learned != nil {
		learn = learned.Learn
	}
	return &API{
		costs:  learned,
		config: config, limits: known, documents: documents{store: config.Store}, examining: make(chan struct{}, 1),
		sessions: sessions.New(sessions.Config{
			Store: config.Store, Breaker: config.Breaker, Breakers: config.Breakers, Policy: known.snapshot.Load, With: known.with, Missed: config.Missed, Learn: learn,
		}),
		describedBy: `"` + hex.EncodeToString(sum[:16]) + `"`, began: time.Now(),
	}
}

// Follow keeps the policy by which decisions are made up to date until ctx ends. It tells of each version that it read, and
// of what goes wrong, which it tries again.
func (a *API) Follow(ctx context.Context, read func(version int64), failed func(error)) {
	a.limits.follow(ctx, func(version int64) {
		for name, limit := range a.limits.snapshot.Load().Semaphores() {
			a.config.Acquired(name, limit, false)
		}
		read(version)
	}, failed)
}

// Count stores counts of the decisions that are made until ctx ends, by scope.
func (a *API) Count(ctx context.Context) {
	a.tally.Run(ctx, a.config.Store, a.limits.snapshot.Load, func(err error) { a.config.Missed("decisions are not counted", err) })
}

// MaxUnknown is that of the policy: how many different things that are not there a credential may ask for in a minute, 0 where nobody counts.
func (a *API) MaxUnknown() int {
	if snapshot := a.limits.snapshot.Load(); snapshot != nil {
		return snapshot.MaxUnknown()
	}
	return 0
}

// Routes returns all routes.
func (a *API) Routes() []route.Route {
	return slices.Concat(a.metaRoutes(), a.queueRoutes(), a.tenantRoutes(), a.jobRoutes(), a.letterRoutes(), a.limitRoutes(), a.policyRoutes(), a.candidateRoutes(), a.partRoutes(), a.recordRoutes(), a.breakerRoutes(), a.adaptiveRoutes(), a.semaphoreRoutes(), a.sessions.Routes())
}

// see and operate are the routes of the deployment, by the role that they need.
func see(path string, handle func(*route.Request) (*route.Answer, error)) route.Route {
	return route.Route{Method: http.MethodGet, Path: path, Role: access.Viewer, Reach: route.Deployment, Handle: handle}
}

func operate(method, path string, handle func(*route.Request) (*route.Answer, error)) route.Route {
	return route.Route{Method: method, Path: path, Role: access.Operator, Reach: route.Deployment, Handle: handle}
}

// ofTenant is a route that reaches one tenant's things.
func ofTenant(method, path string, role access.Role, handle func(*route.Request) (*route.Answer, error)) route.Route {
	return route.Route{Method: method, Path: path, Role: role, Reach: route.Tenant, Handle: handle}
}
