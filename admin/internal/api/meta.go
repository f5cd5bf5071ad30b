package api

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/explain"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// DescriptionPath is where the description is.
const DescriptionPath = "/api/v1/openapi.json"

func (a *API) metaRoutes() []route.Route {
	anyone := func(path string, handle func(*route.Request) (*route.Answer, error)) route.Route {
		return route.Route{Method: http.MethodGet, Path: path, Role: access.Anyone, Reach: route.Public, Load: route.Kept, Handle: handle}
	}
	metrics := see("/metrics", a.metrics)
	metrics.Load = route.Kept
	return []route.Route{
		anyone(DescriptionPath, a.description),
		anyone("/api/v1/health/live", a.live),
		anyone("/api/v1/health/ready", a.ready),
		metrics,
		see("/api/v1/doctor", a.doctor),
		see("/api/v1/stats", a.stats),
		see("/api/v1/census", a.census),

		see("/api/v1/workers", a.workers),
		see("/api/v1/schedulers", a.schedulers),
		see("/api/v1/holds", a.holds),
		ofTenant(http.MethodGet, "/api/v1/explain/{kind}/{name}", access.Viewer, a.explain),
	}
}

// description answers with the text of the description, which a cache may keep for an hour.
func (a *API) description(*route.Request) (*route.Answer, error) {
	return &route.Answer{Raw: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "public, max-age=3600")
		w.Header().Set("Etag", a.describedBy)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.config.Description)) // It answers 304 where the ETag is known.
	})}, nil
}

func (a *API) metrics(*route.Request) (*route.Answer, error) {
	return &route.Answer{Raw: a.config.Metrics}, nil
}

type healthView struct {
	Status  string      `json:"status"`
	Version string      `json:"version"`
	Uptime  float64     `json:"uptime_s"`
	Checks  []checkView `json:"checks"`
}

// health is what the server says of itself, with the time since it began in whole seconds.
func (a *API) health(status string, checks ...checkView) healthView {
	return healthView{status, a.config.Version, math.Floor(time.Since(a.began).Seconds()), append([]checkView{}, checks...)}
}

// checkView is one part of being ready. Its reason is for anyone, so it names no address and no error.
type checkView struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"`
}

func (a *API) stats(*route.Request) (*route.Answer, error) { return route.OK(a.config.Stats()), nil }

func (a *API) live(*route.Request) (*route.Answer, error) {
	return route.OK(a.health("ok")), nil
}

const (
	// readyTimeout bounds the checks of ready, so that a probe has its answer before it gives up.
	readyTimeout = time.Second
	// readyFor is how long an answer of ready holds: anyone may ask, however often.
	readyFor = time.Second
)

// readiness is the last answer of ready.
type readiness struct {
	view healthView
	at   time.Time
}

func (a *API) ready(r *route.Request) (*route.Answer, error) {
	select {
	case a.examining <- struct{}{}: // One at a time examines; the others wait for its answer.
		defer func() { <-a.examining }()
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	last := a.last.Load()
	if last == nil || time.Since(last.at) > readyFor {
		last = &readiness{a.examine(r.Context()), time.Now()}
		a.last.Store(last)
	}
	status := http.StatusOK
	if last.view.Status != "ok" {
		status = http.StatusServiceUnavailable
	}
	return &route.Answer{Status: status, Value: last.view}, nil
}

func (a *API) examine(ctx context.Context) healthView {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout) // The answer is others' too.
	defer cancel()
	const noAnswer = "Redis does not answer"
	checks := []checkView{{Name: "redis"}, {Name: "layout"}, {Name: "policy"}}
	redis, layout, policy := &checks[0], &checks[1], &checks[2]
	if _, err := a.config.Store.Time(ctx); err != nil {
		redis.Reason = noAnswer
	}
	if layout.Reason = redis.Reason; layout.Reason == "" {
		layout.Reason = layoutReason(a.config.Store.CheckLayout(ctx), noAnswer)
	}
	if policy.Reason = layout.Reason; policy.Reason == "" && a.limits.readable(ctx) != nil {
		policy.Reason = "the stored policy cannot be read"
	}
	status := "ok"
	for i := range checks {
		if checks[i].OK = checks[i].Reason == ""; !checks[i].OK {
			status = "failing"
		}
	}
	return a.health(status, checks...)
}

// layoutReason says for anyone what an error of CheckLayout means, "" for none.
func layoutReason(err error, noAnswer string) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, admission.ErrMigrating):
		return "the deployment is being migrated"
	case errors.Is(err, admission.ErrMoved):
		return "the deployment has moved to another Redis: start this server anew, with that address"
	case errors.Is(err, admission.ErrPartitions):
		return "the deployment has another number of partitions than when this server began: start it anew"
	}
	return noAnswer
}

func (a *API) doctor(r *route.Request) (*route.Answer, error) {
	report, err := a.config.Doctor(r.Context())
	if err != nil {
		return nil, err
	}
	return route.OK(report), nil
}

type censusView struct {
	store.Census

	// Conserved is null where it is not known.
	Conserved *bool `json:"conserved"`
}

func (a *API) census(r *route.Request) (*route.Answer, error) {
	census, err := a.config.Store.Census(r.Context())
	if err != nil {
		return nil, err
	}
	view := censusView{Census: census}
	if census.Known() {
		view.Conserved = new(census.Conserved())
	}
	return route.OK(view), nil
}

// explain explains anything to whoever sees the deployment, and to a tenant its own jobs, without the rules and the notes of others.
func (a *API) explain(r *route.Request) (*route.Answer, error) {
	kind, name := r.PathValue("kind"), r.PathValue("name")
	tenant, _, _ := strings.Cut(name, ":")
	if r.Who.Tenant == "" {
		tenant = ""
	}
	if _, err := r.Bind(tenant); err != nil {
		return nil, err
	}
	if r.Who.Tenant != "" && kind != explain.Job {
		return nil, problem.New(problem.Forbidden, "this is the deployment's: a credential that is bound to a tenant has its jobs explained")
	}
	answer, err := explain.New(r.Context(), a.config.Store, kind, name, eyesOf(r))
	if err != nil {
		return nil, err
	}
	if !r.Who.May(access.Operator) {
		answer.Reasons = slices.DeleteFunc(answer.Reasons, func(reason explain.Reason) bool { return reason.Kind == explain.KindErrors })
	}
	return route.OK(answer), nil
}

type workersView struct {
	Workers []workerView `json:"workers"`
}

type workerView struct {
	Worker   string         `json:"worker"`
	Pool     string         `json:"pool"`
	Queues   map[string]int `json:"queues"`
	Slots    int            `json:"slots"`
	Held     int            `json:"held"`
	LeaseEnd time.Time      `json:"lease_end"`
}

func (a *API) workers(r *route.Request) (*route.Answer, error) {
	workers, err := a.config.Store.Workers(r.Context())
	if err != nil {
		return nil, err
	}
	view := workersView{Workers: []workerView{}}
	for _, w := range workers {
		queues := map[string]int{}
		for _, q := range w.Queues {
			queues[q.Queue] = q.Weight
		}
		view.Workers = append(view.Workers, workerView{w.Name, w.Pool, queues, w.Slots, w.Held, shown.Moment(w.LeaseEnd)})
	}
	return route.OK(view), nil
}

type schedulersView struct {
	Schedulers []schedulerView `json:"schedulers"`
}

type schedulerView struct {
	Scheduler  string     `json:"scheduler"`
	AliveUntil *time.Time `json:"alive_until,omitempty"`
	// HoldsTimer says that it is the one that runs timers, until LeaseEnd.
	HoldsTimer bool       `json:"holds_timer"`
	LeaseEnd   *time.Time `json:"lease_end,omitempty"`
}

func (a *API) schedulers(r *route.Request) (*route.Answer, error) {
	all, err := a.config.Store.Schedulers(r.Context())
	if err != nil {
		return nil, err
	}
	view := schedulersView{Schedulers: []schedulerView{}}
	for _, s := range all {
		view.Schedulers = append(view.Schedulers, schedulerView{s.Name, shown.Stamp(s.AliveUntil), !s.LeaseEnd.IsZero(), shown.Stamp(s.LeaseEnd)})
	}
	return route.OK(view), nil
}

func (a *API) holds(r *route.Request) (*route.Answer, error) {
	view, err := shown.ReadHolds(r.Context(), a.config.Store, func(store.GateName) bool { return true })
	return route.OK(view), err
}
