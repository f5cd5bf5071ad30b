package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

func (a *API) limitRoutes() []route.Route {
	check := ofTenant(http.MethodPost, "/api/v1/rate-limit/check", access.Producer, a.check)
	check.Load, check.Parts = route.Data, func(body []byte) int { return elements(body, "checks") }
	reserve := ofTenant(http.MethodPost, "/api/v1/rate-limit/reserve", access.Producer, a.reserve)
	commit := ofTenant(http.MethodPost, "/api/v1/rate-limit/commit", access.Producer, a.commit)
	cancel := ofTenant(http.MethodPost, "/api/v1/rate-limit/cancel", access.Producer, a.cancelReservation)
	reserve.Load, commit.Load, cancel.Load = route.Data, route.Data, route.Data
	commit.UnderWay, cancel.UnderWay = true, true
	return []route.Route{
		check, reserve, commit, cancel,
		ofTenant(http.MethodGet, "/api/v1/rate-limit/status/{scope}", access.Viewer, a.status),
		ofTenant(http.MethodGet, "/api/v1/rate-limit/metrics/{scope}", access.Viewer, a.counts),
		see("/api/v1/rate-limit/metrics", a.top),
		ofTenant(http.MethodGet, "/api/v1/usage", access.Viewer, a.usage),
		see("/api/v1/rate-limit/scale", a.scales),
		operate(http.MethodPut, "/api/v1/rate-limit/scale/{scope}", a.scale),
		operate(http.MethodDelete, "/api/v1/rate-limit/scale/{scope}", a.unscale),
		{Method: http.MethodPost, Path: "/api/v1/rate-limit/reset/{scope}", Role: access.Admin, Reach: route.Deployment, Handle: a.reset},
	}
}

// elements is how many a list of the body has, and 1 where it has none.
func elements(body []byte, list string) int {
	var members map[string]json.RawMessage
	var all []json.RawMessage
	if json.Unmarshal(body, &members) != nil || json.Unmarshal(members[list], &all) != nil { // The handler says so.
		return 1
	}
	return max(len(all), 1)
}

type question struct {
	Scope  admission.Scope  `json:"scope"`
	Tokens admission.Tokens `json:"tokens"`
	// Priority is the class, of a scope that names a queue and none.
	Priority admission.Priority `json:"priority"`
	// Also are the values of dimensions, by their names.
	Also map[string]string `json:"also"`
}

// withPriority returns the question with its class in its scope.
func (q question) withPriority() (question, error) {
	if q.Priority == "" {
		return q, nil
	}
	if q.Scope.Level() != admission.LevelQueue {
		return q, &admission.FieldError{Field: "priority", Value: string(q.Priority), Allowed: "none, unless the scope is tenant:queue"}
	}
	q.Scope += admission.Scope(":" + q.Priority)
	return q, nil
}

// metadata is what a caller says of itself. It goes into the log beside the call, and nowhere else.
type metadata struct {
	RequestID string `json:"request_id"`
	UserAgent string `json:"user_agent"`
}

type checkBody struct {
	question

	Checks   []question `json:"checks"`
	Peek     bool       `json:"peek"`
	Metadata metadata   `json:"metadata"`
}

type bucketView struct {
	Scope           admission.Scope           `json:"scope"`
	TokensLeft      float64                   `json:"tokens_left"`
	Burst           admission.Tokens          `json:"burst"`
	TokensPerSecond admission.TokensPerSecond `json:"tokens_per_second"`
	FullInMs        float64                   `json:"full_in_ms"`

	window admission.Window
}

// span is how long a rate takes for some tokens, to the microsecond.
func span(tokens float64, rate admission.TokensPerSecond) time.Duration {
	return time.Duration(tokens/float64(rate)*1e6) * time.Microsecond
}

type answerView struct {
	Scope     admission.Scope  `json:"scope"`
	Allowed   bool             `json:"allowed"`
	Tokens    admission.Tokens `json:"tokens"`
	Reason    admission.Reason `json:"reason,omitempty"`
	RefusedBy admission.Scope  `json:"refused_by,omitempty"`
	WaitMs    *float64         `json:"wait_ms,omitempty"`
	Buckets   []bucketView     `json:"buckets"`
}

type decisionView struct {
	Scope    admission.Scope `json:"scope,omitempty"` // of a single question
	Allowed  bool            `json:"allowed"`
	Consumed bool            `json:"consumed"`
	Source   string          `json:"source"`
	Answers  []answerView    `json:"answers"`

	summaryView
}

// charged is what a decision took, each token counted once, however many buckets are on its way.
func (v decisionView) charged() (tokens int64) {
	if v.Consumed {
		for _, answer := range v.Answers {
			tokens += int64(answer.Tokens)
		}
	}
	return tokens
}

func (a *API) check(r *route.Request) (*route.Answer, error) {
	var ask checkBody
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	asked := ask.Checks
	if asked == nil {
		asked = []question{ask.question}
	}
	for i, q := range asked {
		var err error
		if asked[i], err = q.withPriority(); err != nil {
			return nil, err
		}
		if err := bindScope(r, q.Scope); err != nil {
			return nil, err
		}
		if len(q.Also) > 0 && r.Who.Tenant != "" {
			return nil, alsoOfAll(len(q.Also))
		}
	}
	r.Note(ask.Metadata.RequestID, ask.Metadata.UserAgent)
	began := time.Now()
	made, err := a.decide(r, ask.Peek, asked)
	if err != nil {
		return nil, err
	}
	a.counted(r.Context(), &made, time.Since(began))
	if ask.Checks == nil {
		made.view.Scope = ask.Scope
	}
	return a.answered(&made), nil
}

// counted tells all who count of a decision that took so long.
func (a *API) counted(ctx context.Context, made *decision, took time.Duration) {
	if !made.noted {
		a.note(made)
	}
	a.tell(made)
	a.try(ctx, made)
	a.config.Decided(made.view.Allowed, made.view.charged())
	wait := made.wait
	if !made.view.Allowed && wait == 0 {
		wait = -1
	}
	a.config.Took(took, wait)
}

// answered is what a caller is told of a decision.
func (a *API) answered(made *decision) *route.Answer {
	made.view.summaryView = summaryOf(&made.view, made.wait)
	answer := &route.Answer{Status: http.StatusOK, Value: made.view, Header: http.Header{}}
	if queue, most := made.pressed(); most.Level > 0 {
		a.signal(answer.Header, queue, most)
	}
	setRateLimit(answer.Header, made.view.Answers, made.wait)
	if a.config.OldHeaders {
		setOldRateLimit(answer.Header, made.view.Answers)
	}
	if !made.view.Allowed {
		answer.Status = http.StatusTooManyRequests
		if made.wait > 0 {
			answer.Header.Set("Retry-After", problem.Seconds(made.wait))
			if a.config.OldHeaders {
				answer.Header.Set("X-RateLimit-Retry-After", problem.Seconds(made.wait))
			}
		}
	}
	return answer
}

// bindScope binds a call to the tenant of a scope. The global one is nobody's: it is not for those who are bound.
func bindScope(r *route.Request, scope admission.Scope) error {
	if scope.OfDimension() { // It is of all tenants.
		_, err := r.Bind(string(admission.Global))
		return err
	}
	tenant, _, _, err := policy.LimitParts(scope)
	if err != nil {
		return err
	}
	if tenant == "" {
		tenant = string(admission.Global)
	}
	_, err = r.Bind(tenant)
	return err
}

// decision is what was decided on the questions of a call.
type decision struct {
	view decisionView
	// wait is the longest of all answers.
	wait time.Duration
	peek bool
	// noted says that the limiter counts it in the minutes of its scopes.
	noted     bool
	policy    *policy.Compiled
	questions []store.Question
	answers   []store.Answer
	// beside are the questions of dimensions, with their answers.
	beside dimensions
}

// pressed returns the queue of those asked about that is pressed most, and how much.
func (d *decision) pressed() (queue string, most admission.Pressure) {
	for i := range d.answers {
		if p := d.answers[i].Verdict.Pressure; p.Level > most.Level {
			queue, most = d.questions[i].Queue, p
		}
	}
	return queue, most
}

// decide asks the limiter, where there is one, and otherwise the store: what takes nothing, what is not well asked, and what finds a partition
// whose policy is behind.
func (a *API) decide(r *route.Request, peek bool, asked []question) (decision, error) {
	outermost := admission.LevelGlobal
	if r.Who.Tenant != "" { // What everybody takes together is nothing for one of them.
		outermost = admission.LevelTenant
	}
	if a.config.Limiter != nil && !peek {
		made, err := a.decideTogether(r.Context(), asked, outermost)
		if !errors.Is(err, store.ErrStale) && !errors.Is(err, admission.ErrInvalid) {
			return made, err
		}
	}
	return a.decideExactly(r.Context(), peek, asked, outermost)
}

// Who decides where it is not a Limiter, and where that has no answer of Redis.
const (
	sourceExact = "exact"
	sourceBlind = "blind"
)

// decideTogether asks the limiter.
func (a *API) decideTogether(ctx context.Context, asked []question, outermost admission.Level) (decision, error) {
	questions := make([]store.Question, len(asked))
	for i, q := range asked {
		tenant, queue, class, err := q.Scope.Parts()
		if err != nil {
			return decision{}, err
		}
		questions[i] = store.Question{Tenant: tenant, Queue: queue, Class: class, Cost: max(q.Tokens, 1)}
	}
	beside, err := a.besideOf(ctx, asked)
	if err != nil {
		return decision{}, err
	}
	questions = slices.Concat(questions, beside.questions)
	granted, source, answers, err := a.config.Limiter.Decide(ctx, questions)
	if err != nil {
		return decision{}, err
	}
	own := len(asked)
	beside.questions, beside.answers = questions[own:], answers[own:]
	made := decision{
		view:  decisionView{Allowed: granted, Consumed: granted, Source: source},
		noted: true, policy: a.limits.snapshot.Load(), questions: questions[:own], answers: answers[:own], beside: beside,
	}
	for i := range answers {
		if v := &answers[i].Verdict; v.Reason == admission.ReasonUnavailable {
			p := problem.New(problem.Unavailable, "Redis does not answer, and what serve.limiter.outage says refuses without it")
			p.RetryAfter = v.RetryAfter
			return decision{}, p
		}
	}
	made.show(asked, outermost)
	return made, nil
}

// show fills the view with the answers, the buckets from a level on.
func (d *decision) show(asked []question, outermost admission.Level) {
	d.view.Answers = []answerView{}
	for i, answer := range d.answers {
		d.view.Answers = append(d.view.Answers, answerViewOf(asked[i], &d.questions[i], answer, outermost))
		d.wait = max(d.wait, answer.Verdict.RetryAfter)
	}
	d.beside.show(d)
}

// decideExactly asks the store, with the policy in force.
func (a *API) decideExactly(ctx context.Context, peek bool, asked []question, outermost admission.Level) (made decision, err error) {
	err = a.limits.with(ctx, func(snapshot *policy.Compiled) error {
		questions := make([]store.Question, len(asked))
		for i, q := range asked {
			if questions[i], err = questionOf(snapshot, q); err != nil {
				return err
			}
		}
		beside, err := besideFor(snapshot, asked)
		if err != nil {
			return err
		}
		granted, answers, err := a.checkAll(ctx, snapshot.Version(), peek, questions, &beside)
		if err != nil {
			return err
		}
		made = decision{
			view: decisionView{Allowed: granted, Consumed: granted && !peek, Source: sourceExact},
			peek: peek, policy: snapshot, questions: questions, answers: answers, beside: beside,
		}
		made.show(asked, outermost)
		return nil
	})
	return made, err
}

// questionOf resolves the limits on the way of a scope, those below it left out. A scope's priority must be a class of its
// queue: any other would get a bucket of its own, which no job has.
func questionOf(snapshot *policy.Compiled, q question) (store.Question, error) {
	tenant, queue, class, err := q.Scope.Parts()
	if err != nil {
		return store.Question{}, err
	}
	if _, ofType := class.JobType(); class != "" && !ofType {
		named, ok := snapshot.ClassNamed(queue, class)
		if !ok {
			return store.Question{}, &admission.FieldError{Field: "scope", Value: string(q.Scope), Allowed: "one whose priority is a class of queue " + queue}
		}
		class = named
	}
	limits, record := snapshot.WayFor(tenant, queue, class)
	limits = downTo(q.Scope.Level(), limits)
	from, _, _ := snapshot.PressureFor(tenant, queue, class)
	return store.Question{Tenant: tenant, Queue: queue, Class: class, Cost: max(q.Tokens, 1), Limits: limits, Measured: from > 0, Record: record}, nil
}

// downTo leaves out the limits below a level.
func downTo(lowest admission.Level, limits policy.Limits) policy.Limits {
	for level := lowest + 1; level < admission.Levels; level++ {
		limits[level] = admission.Limit{Disabled: true}
	}
	return limits
}

// answerViewOf shows an answer with the buckets from a level on.
func answerViewOf(q question, asked *store.Question, answer store.Answer, outermost admission.Level) answerView {
	view := answerView{Scope: q.Scope, Allowed: answer.Verdict.Decision == admission.Admitted, Tokens: asked.Cost, Buckets: []bucketView{}}
	if !view.Allowed {
		view.Reason, view.RefusedBy = answer.Verdict.Reason, answer.Verdict.Scope
		if answer.Verdict.RetryAfter > 0 {
			view.WaitMs = new(shown.Millis(answer.Verdict.RetryAfter))
		}
	}
	for level, limit := range asked.Limits {
		if limit.Disabled || admission.Level(level) < outermost {
			continue
		}
		left := shown.Tokens(answer.Left[level])
		view.Buckets = append(view.Buckets, bucketView{
			Scope:      admission.ScopeAt(admission.Level(level), asked.Tenant, asked.Queue, asked.Class),
			TokensLeft: left, Burst: limit.Burst, TokensPerSecond: limit.Rate(), FullInMs: shown.Millis(limit.UntilFull(left, time.Now())), window: limit.Window,
		})
	}
	return view
}

func (a *API) reset(r *route.Request) (*route.Answer, error) {
	tenant, queue, class, err := admission.Scope(r.PathValue("scope")).Parts()
	if err != nil {
		return nil, err
	}
	if _, err := a.config.Store.ResetBucket(r.Context(), tenant, queue, class, intervention(r, r.URL.Query().Get("reason"))); err != nil {
		return nil, err
	}
	return route.Done(), nil
}
