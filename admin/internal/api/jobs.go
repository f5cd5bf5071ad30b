package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

func (a *API) jobRoutes() []route.Route {
	enqueue := ofTenant(http.MethodPost, "/api/v1/jobs", access.Producer, a.enqueue)
	enqueue.Load = route.Data
	batch := ofTenant(http.MethodPost, "/api/v1/jobs/batch", access.Producer, a.enqueueBatch)
	batch.Load, batch.Parts = route.Data, func(body []byte) int { return elements(body, "jobs") }
	return []route.Route{
		enqueue,
		batch,
		ofTenant(http.MethodGet, "/api/v1/jobs", access.Viewer, a.listJobs),
		ofTenant(http.MethodGet, "/api/v1/jobs/{tenant}/{id}", access.Viewer, a.job),
		ofTenant(http.MethodDelete, "/api/v1/jobs/{tenant}/{id}", access.Operator, a.cancel),
		ofTenant(http.MethodGet, "/api/v1/jobs/{tenant}/{id}/payload", access.Operator, a.payload),
		ofTenant(http.MethodGet, "/api/v1/jobs/{tenant}/{id}/result", access.Operator, a.result),
	}
}

type newJob struct {
	ID          string            `json:"id"`
	Tenant      string            `json:"tenant"`
	Queue       string            `json:"queue"`
	Type        string            `json:"type"`
	Priority    string            `json:"priority"`
	Deadline    time.Time         `json:"deadline"`
	Cost        cost              `json:"cost"`
	Downstream  string            `json:"downstream"`
	MaxAttempts int               `json:"max_attempts"`
	Timeout     string            `json:"timeout"`
	RunAt       time.Time         `json:"run_at"`
	Delay       string            `json:"delay"`
	Unique      *newUnique        `json:"unique"`
	Payload     json.RawMessage   `json:"payload"`
	Base64      *string           `json:"payload_base64"`
	Headers     map[string]string `json:"headers"`
}

// cost is a number of tokens, or "learned".
type cost struct {
	tokens admission.Tokens
	given  bool
}

// UnmarshalJSON reads what the schema allows.
func (c *cost) UnmarshalJSON(text []byte) error {
	c.given = string(text) != "null"
	if string(text) == `"learned"` {
		c.tokens = admission.LearnedCost
		return nil
	}
	return json.Unmarshal(text, &c.tokens)
}

type newUnique struct {
	Key     string            `json:"key"`
	For     string            `json:"for"`
	Release admission.Release `json:"release"`
}

// idempotencyHeader names the header that names a job.
const idempotencyHeader = "Idempotency-Key"

// job returns what the producer is asked to enqueue, or every fault that the schema does not know of.
func (n *newJob) job(header http.Header) (admission.Job, error) {
	var faults []problem.Fault
	job := admission.NewJob(n.Tenant, n.Queue, n.Type, n.Payload)
	job.ID, job.Deadline, job.RunAt, job.Downstream = n.ID, n.Deadline, n.RunAt, n.Downstream
	job.MaxAttempts, job.Headers = n.MaxAttempts, n.Headers
	if n.Priority != "" {
		job.Priority = admission.Priority(n.Priority)
	}
	if n.Cost.given {
		job.Cost = n.Cost.tokens
	}
	duration := func(pointer, text string, most time.Duration) time.Duration {
		if text == "" {
			return 0
		}
		d, err := route.Duration(pointer, text, time.Millisecond, most)
		if p, bad := err.(*problem.DetailsError); bad { //nolint:errorlint // It returns nothing else.
			faults = append(faults, p.Faults...)
		}
		return d
	}
	job.Timeout = duration("/timeout", n.Timeout, admission.MaxTimeout)
	job.Delay = duration("/delay", n.Delay, admission.MaxDelay)
	if n.Unique != nil {
		job.Unique = admission.Unique{Key: n.Unique.Key, For: duration("/unique/for", n.Unique.For, admission.MaxUniqueFor), Release: n.Unique.Release}
	}
	if n.Base64 != nil {
		bytes, err := base64.StdEncoding.DecodeString(*n.Base64)
		switch {
		case err != nil:
			faults = append(faults, problem.At("/payload_base64", "is not base64"))
		case n.Payload != nil:
			faults = append(faults, problem.At("/payload_base64", "is there beside payload; allowed is one of the two"))
		}
		job.Payload = bytes
	}
	if key := strings.Trim(header.Get(idempotencyHeader), `"`); key != "" {
		if err := admission.ValidateName("id", key, false); err != nil {
			faults = append(faults, problem.Fault{Parameter: idempotencyHeader, Detail: err.Error()})
		} else if job.ID != "" && job.ID != key {
			faults = append(faults, problem.At("/id", "is another than "+idempotencyHeader+"; allowed is one of the two, or the same"))
		}
		job.ID = key
	}
	if len(faults) > 0 {
		return job, problem.Invalid(faults...)
	}
	addTrace(&job, header)
	return job, nil
}

type verdictView struct {
	ID       string          `json:"id"`
	Decision string          `json:"decision"`
	Place    admission.Place `json:"place,omitempty"`
	Position int             `json:"position,omitempty"`
	WaitMs   *float64        `json:"estimated_wait_ms,omitempty"`
	Bypassed bool            `json:"bypassed,omitempty"`
	Dropped  int             `json:"dropped,omitempty"`
	AtRisk   bool            `json:"unreplicated,omitempty"`
}

// verdictOf shows that a job is in, and the status that says so.
func verdictOf(verdict admission.Verdict) (int, verdictView) {
	view := verdictView{
		ID: verdict.ID, Decision: verdict.Decision.String(), Place: verdict.Place, Position: verdict.Position, Dropped: verdict.Dropped,
		Bypassed: verdict.Bypassed, AtRisk: verdict.Unreplicated,
	}
	if verdict.Decision != admission.Admitted {
		return http.StatusOK, view
	}
	if verdict.EstimatedWait >= 0 {
		view.WaitMs = new(shown.Millis(verdict.EstimatedWait))
	}
	return http.StatusCreated, view
}

// problemFor is ProblemOf for a job of a verdict. Of a refusal by the limit of all a tenant's own credential is told, as in decide, when to come back, and no more.
func problemFor(own bool, verdict *admission.Verdict, err error) *problem.DetailsError {
	p := ProblemOf(err)
	if !own || verdict.Scope != admission.Global {
		return p
	}
	p.Detail = "the limit of the whole deployment refused the job"
	delete(p.Extensions, "tokens_left")
	delete(p.Extensions, "burst")
	return p
}

func (a *API) enqueue(r *route.Request) (*route.Answer, error) {
	var ask newJob
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	if _, err := r.Bind(ask.Tenant); err != nil {
		return nil, err
	}
	job, err := ask.job(r.Header)
	if err != nil {
		return nil, err
	}
	verdict, err := a.config.Enqueuer.Enqueue(r.Context(), job)
	if own := r.Who.Tenant != ""; err != nil && own && verdict.Scope == admission.Global {
		return nil, problemFor(own, &verdict, err)
	}
	refused, isRefused := errors.AsType[*admission.RefusedError](err)
	if err != nil && !isRefused {
		return nil, err
	}
	header := http.Header{}
	a.limitJob(r, header, &job, &verdict)
	a.signal(header, job.Queue, verdict.Pressure)
	if isRefused {
		p := refusal(refused)
		p.Header = header
		return nil, p
	}
	status, view := verdictOf(verdict)
	answer := &route.Answer{Status: status, Value: view, Header: header}
	if status == http.StatusCreated {
		header.Set("Location", "/api/v1/jobs/"+url.PathEscape(job.Tenant)+"/"+url.PathEscape(verdict.ID))
	}
	return answer, nil
}

func (a *API) listJobs(r *route.Request) (*route.Answer, error) {
	query := r.URL.Query()
	return a.list(r, store.ListQuery{Place: admission.Place(query.Get("place")), Type: query.Get("type")})
}

// list answers with a page. What jobs and dead letters have in common is read from the query.
func (a *API) list(r *route.Request, q store.ListQuery) (*route.Answer, error) {
	query := r.URL.Query()
	tenant, err := r.Bind(query.Get("tenant"))
	if err != nil {
		return nil, err
	}
	q.Tenant, q.Queue, q.Cursor = tenant, query.Get("queue"), query.Get("cursor")
	if limit := query.Get("limit"); limit != "" {
		if q.Limit, err = strconv.Atoi(limit); err != nil {
			return nil, problem.Invalid(problem.Fault{Parameter: "limit", Detail: "is not an integer"})
		}
	}
	page, err := a.config.Store.List(r.Context(), q)
	if err != nil {
		return nil, parameterFaults(err)
	}
	return route.OK(shown.PageOf(page, eyesOf(r))), nil
}

// parameterFaults makes faults of the query out of faults of the body.
func parameterFaults(err error) error {
	p := ProblemOf(err)
	if p.Kind != problem.InvalidRequest {
		return err
	}
	for i := range p.Faults {
		p.Faults[i].Parameter, p.Faults[i].Pointer = strings.TrimPrefix(*p.Faults[i].Pointer, "/"), nil
	}
	return p
}

// key returns the job that the path names.
func key(r *route.Request) (admission.Key, error) {
	tenant, err := r.Bind(r.PathValue("tenant"))
	return admission.Key{Tenant: tenant, ID: r.PathValue("id")}, err
}

func (a *API) job(r *route.Request) (*route.Answer, error) {
	k, err := key(r)
	if err != nil {
		return nil, err
	}
	sight, err := a.config.Store.Look(r.Context(), k)
	if err != nil {
		return nil, err
	}
	return route.OK(shown.JobOf(sight, eyesOf(r))), nil
}

// eyesOf returns what a caller may see of jobs: operators see what receivers have said, as they see payloads.
func eyesOf(r *route.Request) shown.Eyes {
	return shown.Eyes{Deployment: r.Who.Tenant == "", Texts: r.Who.May(access.Operator)}
}

type payloadView struct {
	Base64  []byte            `json:"payload_base64"`
	Headers map[string]string `json:"headers"`
}

func (a *API) payload(r *route.Request) (*route.Answer, error) {
	k, err := key(r)
	if err != nil {
		return nil, err
	}
	sight, err := a.config.Store.Look(r.Context(), k)
	if err != nil {
		return nil, err
	}
	payload, err := a.config.Store.Payload(r.Context(), k)
	if err != nil {
		return nil, err
	}
	view := payloadView{Base64: append([]byte{}, payload...), Headers: map[string]string{}}
	maps.Copy(view.Headers, sight.Record.Job.Headers)
	return route.OK(view), nil
}

type resultView struct {
	Base64 []byte `json:"result_base64"`
}

// result returns what a completed job has left.
func (a *API) result(r *route.Request) (*route.Answer, error) {
	k, err := key(r)
	if err != nil {
		return nil, err
	}
	result, err := a.config.Store.Result(r.Context(), k)
	if err != nil {
		return nil, err
	}
	return route.OK(resultView{append([]byte{}, result...)}), nil
}

type cancelledView struct {
	Tenant  string `json:"tenant"`
	ID      string `json:"id"`
	Outcome string `json:"outcome"`
}

func (a *API) cancel(r *route.Request) (*route.Answer, error) {
	k, err := key(r)
	if err != nil {
		return nil, err
	}
	running, _, err := a.config.Store.Cancel(r.Context(), k, intervention(r, r.URL.Query().Get("reason")))
	if err != nil {
		return nil, err
	}
	view := cancelledView{k.Tenant, k.ID, "cancelled"}
	if running {
		view.Outcome = "cancelling"
	}
	return route.OK(view), nil
}

// The headers of W3C Trace Context, of calls and of jobs alike.
const (
	traceParent = "traceparent"
	traceState  = "tracestate"
)

var parentForm = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// addTrace lets the trace of a call go on in its job, unless the job names one of its own. Where a job may not have so
// many headers the trace is lost, not the job.
func addTrace(job *admission.Job, header http.Header) {
	parent := header.Get(traceParent)
	if _, own := job.Headers[traceParent]; own || !parentForm.MatchString(parent) {
		return
	}
	with := *job
	with.Headers = map[string]string{}
	maps.Copy(with.Headers, job.Headers)
	with.Headers[traceParent] = parent
	if state := header.Get(traceState); state != "" {
		with.Headers[traceState] = state
	}
	if with.Validate(math.MaxInt) == nil {
		job.Headers = with.Headers
	}
}
