package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

const (
	defaultPermitLease = 30 * time.Second
	mostPermitWait     = 5 * time.Second
	// leaveTimeout bounds what a call does for itself when it gives up.
	leaveTimeout = time.Second
)

// semaphoreRoutes are those of permits: who may ask for tokens may ask for them.
func (a *API) semaphoreRoutes() []route.Route {
	const one = "/api/v1/semaphores/{name}"
	acquire := ofTenant(http.MethodPost, one+"/acquire", access.Producer, a.acquire)
	acquire.Load = route.Wait
	extend, release := ofTenant(http.MethodPost, one+"/extend", access.Producer, a.extend), ofTenant(http.MethodPost, one+"/release", access.Producer, a.release)
	extend.Load, extend.UnderWay = route.Data, true
	release.Load, release.UnderWay = route.Data, true
	return []route.Route{
		acquire, extend, release,
		ofTenant(http.MethodGet, one, access.Viewer, a.semaphore),
		ofTenant(http.MethodGet, "/api/v1/semaphores", access.Viewer, a.semaphoreList),
	}
}

// semaphoreOf returns the name of the call's semaphore. One of no tenant is for those who are bound to none.
func semaphoreOf(r *route.Request) (string, error) {
	name := r.PathValue("name")
	if err := store.ValidateSemaphore(name); err != nil {
		return "", err
	}
	tenant, _, bound := strings.Cut(name, ":")
	if !bound {
		tenant = string(admission.Global)
	}
	_, err := r.Bind(tenant)
	return name, err
}

type acquireAsk struct {
	Permits int    `json:"permits"`
	Lease   string `json:"lease"`
	Wait    string `json:"wait"`
	Token   string `json:"token"`
}

type permitView struct {
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at"`
	Limit     int       `json:"limit"`
	Held      int       `json:"held"`
	Remaining int       `json:"remaining"`
}

type noPermitView struct {
	Token    string                `json:"token,omitempty"`
	Reason   store.SemaphoreAnswer `json:"reason"`
	Limit    int                   `json:"limit"`
	Held     int                   `json:"held"`
	Position int                   `json:"position"`
}

func permitOf(token string, p *store.Permit) *route.Answer {
	return route.OK(permitView{token, p.Expires.UTC(), p.Max, p.Held, max(0, p.Max-p.Held)})
}

func (a *API) acquire(r *route.Request) (*route.Answer, error) {
	name, err := semaphoreOf(r)
	if err != nil {
		return nil, err
	}
	var body acquireAsk
	if err := r.Decode(&body); err != nil {
		return nil, err
	}
	lease, err := leaseOf(body.Lease)
	if err != nil {
		return nil, err
	}
	var wait time.Duration
	if body.Wait != "" {
		if wait, err = route.Duration("/wait", body.Wait, 0, mostPermitWait); err != nil {
			return nil, err
		}
	}
	ask := store.Acquire{Name: name, Token: cmp.Or(body.Token, rand.Text()), Permits: cmp.Or(body.Permits, 1), Lease: lease, Queue: wait > 0}
	if err := ask.Validate(); err != nil {
		return nil, err
	}
	p, err := a.await(r.Context(), ask, wait)
	if body.Token == "" && (err != nil || p.Answer == store.SemaphoreWaiting) { // Nobody can come back for it.
		a.leave(r.Context(), name, ask.Token)
	}
	if err != nil {
		return nil, err
	}
	return a.acquired(&ask, body.Token, &p)
}

func leaseOf(text string) (time.Duration, error) {
	if text == "" {
		return defaultPermitLease, nil
	}
	return route.Duration("/lease", text, store.MinSemaphoreLease, store.MaxSemaphoreLease)
}

// await asks until there is an answer, or the wait is over.
func (a *API) await(ctx context.Context, ask store.Acquire, wait time.Duration) (p store.Permit, err error) {
	until := time.Now().Add(wait)
	for {
		err = a.limits.with(ctx, func(inForce *policy.Compiled) error {
			ask.Version = inForce.Version()
			ask.Max, ask.Record = inForce.SemaphoreFor(ask.Name)
			p, err = a.config.Store.Acquire(ctx, ask)
			return err
		})
		left := time.Until(until)
		if err != nil || left <= 0 || p.Answer != store.SemaphoreWaiting && p.Answer != store.SemaphoreCrowded {
			return p, err
		}
		pause := time.NewTimer(min(left, store.SemaphorePoll(p.Ahead)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return p, ctx.Err()
		}
	}
}

// leave gives up what a call may have, which else ends by itself.
func (a *API) leave(ctx context.Context, name, token string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	_ = a.config.Store.Release(ctx, name, token)
}

// acquired tells what came of it. named is the token that the caller chose, empty where it chose none.
func (a *API) acquired(ask *store.Acquire, named string, p *store.Permit) (*route.Answer, error) {
	a.config.Acquired(ask.Name, p.Max, !p.Granted())
	switch p.Answer {
	case store.SemaphoreGranted:
		return permitOf(ask.Token, p), nil
	case store.SemaphoreLarge:
		return nil, problem.New(problem.Conflict, "%d permits are asked for, and the limit of %s is %d", ask.Permits, ask.Name, p.Max)
	case store.SemaphoreOther:
		return nil, problem.New(problem.Conflict, "the token is in use for another number of permits")
	case store.SemaphoreNamed:
		return nil, problem.New(problem.TooManyRequests, "too many semaphores are in use, %d of a tenant at the most", store.MaxSemaphoresOfTenant)
	case store.SemaphoreWaiting, store.SemaphoreRefused, store.SemaphoreCrowded:
	}
	header := http.Header{}
	header.Set("Retry-After", strconv.Itoa(int(max(1, math.Ceil(p.Left.Seconds())))))
	return &route.Answer{
		Status: http.StatusTooManyRequests, Header: header, Value: noPermitView{named, p.Answer, p.Max, p.Held, p.Ahead},
	}, nil
}

type permitAsk struct {
	Token string `json:"token"`
	Lease string `json:"lease"`
}

func (a *API) permitOf(r *route.Request) (name string, ask permitAsk, err error) {
	if name, err = semaphoreOf(r); err == nil {
		err = r.Decode(&ask)
	}
	if err == nil {
		err = admission.ValidateName("token", ask.Token, false)
	}
	return name, ask, err
}

func (a *API) extend(r *route.Request) (*route.Answer, error) {
	name, ask, err := a.permitOf(r)
	if err != nil {
		return nil, err
	}
	lease, err := leaseOf(ask.Lease)
	if err != nil {
		return nil, err
	}
	p, err := a.config.Store.Extend(r.Context(), name, ask.Token, lease)
	if err != nil {
		return nil, err
	}
	return permitOf(ask.Token, &p), nil
}

func (a *API) release(r *route.Request) (*route.Answer, error) {
	name, ask, err := a.permitOf(r)
	if err != nil {
		return nil, err
	}
	return route.Done(), a.config.Store.Release(r.Context(), name, ask.Token)
}

func (a *API) semaphore(r *route.Request) (*route.Answer, error) {
	name, err := semaphoreOf(r)
	if err != nil {
		return nil, err
	}
	var v shown.Semaphore
	err = a.limits.with(r.Context(), func(inForce *policy.Compiled) (err error) {
		v, err = shown.ReadSemaphore(r.Context(), a.config.Store, inForce, name)
		return err
	})
	return route.OK(v), err
}

func (a *API) semaphoreList(r *route.Request) (*route.Answer, error) {
	query := r.URL.Query()
	tenant, err := r.Bind(query.Get("tenant"))
	if err != nil {
		return nil, err
	}
	limit, err := strconv.Atoi(cmp.Or(query.Get("limit"), strconv.Itoa(shown.SemaphorePage)))
	if err != nil {
		return nil, problem.Invalid(problem.Fault{Parameter: "limit", Detail: "is no number"})
	}
	var all shown.Semaphores
	err = a.limits.with(r.Context(), func(inForce *policy.Compiled) (err error) {
		all, err = shown.ReadSemaphores(r.Context(), a.config.Store, inForce, tenant, query.Get("cursor"), limit)
		return err
	})
	return route.OK(all), err
}
