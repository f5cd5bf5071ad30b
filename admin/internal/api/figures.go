package api

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// figureMinutes is over how many minutes the rates of a scope are taken, the one under way included.
const figureMinutes = 5

// figuresView are the figures of a scope that the counts of minutes and its bucket tell.
type figuresView struct {
	RequestsPerSecond float64 `json:"requests_per_second"`
	AllowedPerSecond  float64 `json:"allowed_per_second"`
	DeniedPerSecond   float64 `json:"denied_per_second"`
	// AverageTokens is what a request asked for.
	AverageTokens float64 `json:"average_tokens"`
	// Utilization is the part of the scope's own bucket that is in use, 0 to 1; absent where it has none.
	Utilization *float64 `json:"bucket_utilization,omitempty"`
	P50         float64  `json:"wait_time_p50"`
	P95         float64  `json:"wait_time_p95"`
	P99         float64  `json:"wait_time_p99"`
}

// classView is what was decided on one class of a queue.
type classView struct {
	Requests int64 `json:"requests"`
	Allowed  int64 `json:"allowed"`
	Denied   int64 `json:"denied"`
}

// sums are counts of several minutes.
type sums struct {
	allowed, refused int64
	tokens           admission.Tokens
}

func sumOf(minutes []store.Minute) (all sums) {
	for _, m := range minutes {
		all.allowed, all.refused, all.tokens = all.allowed+m.Allowed, all.refused+m.Refused, all.tokens+m.Tokens
	}
	return all
}

// recent returns the latest of the minutes, and how many seconds they have lasted by now.
func recent(minutes []store.Minute, now time.Time) (latest []store.Minute, seconds float64) {
	began := now.Truncate(time.Minute).Add(-(figureMinutes - 1) * time.Minute)
	for i := range minutes {
		if !minutes[i].At.Before(began) {
			return minutes[i:], max(now.Sub(minutes[i].At).Seconds(), 1)
		}
	}
	return nil, 1
}

// figuresOf reckons. waitMs is what a request of one token would be told now.
func figuresOf(minutes []store.Minute, now time.Time, waitMs float64) figuresView {
	latest, seconds := recent(minutes, now)
	all := sumOf(latest)
	requests := all.allowed + all.refused
	v := figuresView{
		RequestsPerSecond: tenth(float64(requests) / seconds), AllowedPerSecond: tenth(float64(all.allowed) / seconds),
		DeniedPerSecond: tenth(float64(all.refused) / seconds), AverageTokens: tenth(float64(all.tokens) / float64(max(requests, 1))),
	}
	for _, part := range []struct {
		of float64
		to *float64
	}{{.5, &v.P50}, {.95, &v.P95}, {.99, &v.P99}} {
		if float64(all.allowed) < part.of*float64(requests) { // Else that part was allowed at once.
			*part.to = waitMs
		}
	}
	return v
}

// tenth rounds for people.
func tenth(f float64) float64 { return math.Round(f*10) / 10 }

// counts tells what limits decided on the jobs and checks of a scope in the last hour.
func (a *API) counts(r *route.Request) (*route.Answer, error) {
	view := countsView{Scope: admission.Scope(r.PathValue("scope")), Minutes: []minuteView{}}
	if err := bindScope(r, view.Scope); err != nil {
		return nil, err
	}
	ctx := r.Context()
	minutes, err := a.config.Store.Minutes(ctx, view.Scope)
	if err != nil {
		return nil, err
	}
	now, err := a.config.Store.Time(ctx)
	if err != nil {
		return nil, err
	}
	made, err := a.decide(r, true, []question{{Scope: view.Scope, Tokens: 1}})
	if err != nil {
		return nil, err
	}
	all := sumOf(minutes)
	view.At, view.Allowed, view.Refused = shown.Stamp(now), all.allowed, all.refused
	for _, m := range minutes {
		view.Minutes = append(view.Minutes, minuteView{shown.Stamp(m.At), m.Allowed, m.Refused, m.Tokens, m.Partial})
	}
	view.Metrics = figuresOf(minutes, now, shown.Millis(made.wait))
	if b := made.view.Answers[0].own(); b != nil {
		view.Metrics.Utilization = new(min(1, 1-b.TokensLeft/float64(b.Burst))) // One in debt is used to the full.
	}
	view.Classes, err = a.classes(ctx, made.policy, view.Scope, now)
	return route.OK(view), err
}

// own returns the bucket of the scope itself, nil if it has none.
func (v *answerView) own() *bucketView {
	if n := len(v.Buckets); n > 0 && v.Buckets[n-1].Scope == v.Scope {
		return &v.Buckets[n-1]
	}
	return nil
}

// classes returns what was decided lately on each class of a tenant in a queue; nil for other scopes.
func (a *API) classes(ctx context.Context, snapshot *policy.Compiled, scope admission.Scope, now time.Time) (map[admission.Priority]classView, error) {
	tenant, queue, class, err := scope.Parts()
	if err != nil || queue == "" || class != "" {
		return nil, err
	}
	all := map[admission.Priority]classView{}
	for _, c := range snapshot.ClassesOf(queue) {
		minutes, err := a.config.Store.Minutes(ctx, admission.ScopeAt(admission.LevelPriority, tenant, queue, c.Name))
		if err != nil {
			return nil, err
		}
		latest, _ := recent(minutes, now)
		sum := sumOf(latest)
		all[c.Name] = classView{sum.allowed + sum.refused, sum.allowed, sum.refused}
	}
	return all, nil
}

// Bounds of a list of the top scopes.
const (
	topMinutes = 5
	topBudget  = 2 * time.Second
)

// top lists the scopes with the most decisions in the last minutes.
func (a *API) top(r *route.Request) (*route.Answer, error) {
	query := r.URL.Query()
	minutes, _ := strconv.Atoi(query.Get("minutes")) // The schema has seen to them.
	if minutes == 0 {
		minutes = topMinutes
	}
	counted, err := a.config.Store.LastMinutes(r.Context(), minutes, topBudget)
	if err != nil {
		return nil, err
	}
	return route.OK(shown.TopOf(counted, query.Get("sort"), pageOf(r))), nil
}

// pageOf returns how long a page is to be.
func pageOf(r *route.Request) int {
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit")) // The schema has seen to it.
	if limit == 0 {
		return store.DefaultPage
	}
	return limit
}

// status tells what the buckets on the way of a scope hold, and what was decided on it in the last hour.
func (a *API) status(r *route.Request) (*route.Answer, error) {
	scope := admission.Scope(r.PathValue("scope"))
	if err := bindScope(r, scope); err != nil {
		return nil, err
	}
	ctx, store := r.Context(), a.config.Store
	made, err := a.decide(r, true, []question{{Scope: scope, Tokens: 1}})
	if err != nil {
		return nil, err
	}
	minutes, err := store.Minutes(ctx, scope)
	if err != nil {
		return nil, err
	}
	all := sumOf(minutes)
	view := statusView{
		Scope: scope, Limited: !made.view.Allowed, WaitMs: shown.Millis(made.wait), Buckets: made.view.Answers[0].Buckets,
		Total: all.allowed + all.refused, Allowed: all.allowed, Denied: all.refused,
	}
	if n := len(minutes); n > 0 {
		view.CountedFrom, view.UpdatedAt = shown.Stamp(minutes[0].At), shown.Stamp(minutes[n-1].At)
	}
	own := made.view.Answers[0].own()
	if own == nil {
		return route.OK(view), nil
	}
	now, err := store.Time(ctx)
	if err != nil {
		return nil, err
	}
	view.Tokens, view.Burst, view.Rate = &own.TokensLeft, own.Burst, own.TokensPerSecond
	if missing := math.Floor(own.TokensLeft) + 1 - own.TokensLeft; own.TokensLeft < float64(own.Burst) {
		refilled := now.Add(span(missing, own.TokensPerSecond))
		if !own.window.IsZero() {
			refilled = now.Add(own.window.UntilNext(now))
		}
		view.NextRefill = shown.Stamp(refilled)
	}
	if scope != admission.Global {
		tenant, _, _, _ := scope.Parts() // bindScope has read it.
		left, err := store.BucketsTTL(ctx, tenant)
		if err != nil {
			return nil, err
		}
		view.TTL = new(int64(math.Ceil(left.Seconds())))
	}
	return route.OK(view), nil
}

// statusView is a scope as its bucket and its counts tell.
type statusView struct {
	Scope   admission.Scope `json:"scope"`
	Limited bool            `json:"limited"`
	WaitMs  float64         `json:"wait_ms"`
	// Total, Allowed and Denied are requests of the last hour, counted from CountedFrom to a moment of the minute of UpdatedAt.
	Total       int64      `json:"total_requests"`
	Allowed     int64      `json:"allowed_requests"`
	Denied      int64      `json:"denied_requests"`
	CountedFrom *time.Time `json:"counted_from,omitempty"`
	UpdatedAt   *time.Time `json:"updated_at,omitempty"`
	// Of the scope's own bucket, if it has one.
	Tokens     *float64                  `json:"current_tokens,omitempty"`
	Burst      admission.Tokens          `json:"burst_capacity,omitempty"`
	Rate       admission.TokensPerSecond `json:"rate_per_second,omitempty"`
	NextRefill *time.Time                `json:"next_refill_at,omitempty"`
	TTL        *int64                    `json:"ttl_seconds,omitempty"`
	Buckets    []bucketView              `json:"buckets"`
}

// codeExceeded is the paper's code of a decision that was refused.
const codeExceeded = "RATE_LIMIT_EXCEEDED"

// refusalView is why a decision was refused, for callers that look for a code.
type refusalView struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// summaryView is a decision in the paper's words, of all its questions together.
type summaryView struct {
	TokensConsumed int64 `json:"tokens_consumed"`
	// Of the bucket that refused, or of the one that holds least; absent where nothing is limited.
	TokensRemaining *float64                  `json:"tokens_remaining,omitempty"`
	Capacity        admission.Tokens          `json:"bucket_capacity,omitempty"`
	RefillRate      admission.TokensPerSecond `json:"refill_rate,omitempty"`
	WaitTimeMs      float64                   `json:"wait_time_ms"`
	Timestamp       time.Time                 `json:"timestamp"`
	Error           *refusalView              `json:"error,omitempty"`
}

// summaryOf sums up what was decided. wait is the longest of all answers.
func summaryOf(v *decisionView, wait time.Duration) summaryView {
	s := summaryView{TokensConsumed: v.charged(), WaitTimeMs: shown.Millis(wait), Timestamp: time.Now().UTC()}
	var tightest *bucketView
	var refused *answerView
	for i := range v.Answers {
		answer := &v.Answers[i]
		if !answer.Allowed && refused == nil {
			refused = answer
		}
		for j := range answer.Buckets {
			b := &answer.Buckets[j]
			if refusing := refused == answer && b.Scope == answer.RefusedBy; refusing || tightest == nil ||
				b.TokensLeft < tightest.TokensLeft && (refused == nil || tightest.Scope != refused.RefusedBy) {
				tightest = b
			}
		}
	}
	if tightest != nil {
		s.TokensRemaining, s.Capacity, s.RefillRate = &tightest.TokensLeft, tightest.Burst, tightest.TokensPerSecond
	}
	if refused != nil {
		s.Error = &refusalView{codeExceeded, "Rate limit exceeded for scope " + string(refused.Scope) + ", by the limit of " + string(refused.RefusedBy)}
		if refused.RefusedBy == "" {
			s.Error.Message = http.StatusText(http.StatusTooManyRequests) + " for scope " + string(refused.Scope)
		}
	}
	return s
}
