package api

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// namer says which gate a call is about.
type namer func(*route.Request) store.GateName

// holdRoutes are pause and suspension of what a path names. A tenant may not lift what an operator has put on it, so they
// are the deployment's.
func (a *API) holdRoutes(path string, name namer) []route.Route {
	return []route.Route{
		operate(http.MethodPut, path+"/pause", a.pause(name)),
		operate(http.MethodDelete, path+"/pause", a.resume(name)),
		operate(http.MethodPut, path+"/suspension", a.suspend(name)),
		operate(http.MethodDelete, path+"/suspension", a.unsuspend(name)),
	}
}

func (a *API) tenantRoutes() []route.Route {
	tenant := func(r *route.Request) store.GateName { return store.TenantGate(r.PathValue("tenant")) }
	inQueue := func(r *route.Request) store.GateName {
		return store.TenantQueueGate(r.PathValue("tenant"), r.PathValue("queue"))
	}
	routes := append(a.holdRoutes("/api/v1/tenants/{tenant}", tenant), a.holdRoutes("/api/v1/tenants/{tenant}/queues/{queue}", inQueue)...)
	return append(routes, ofTenant(http.MethodGet, "/api/v1/tenants/{tenant}", access.Viewer, a.tenant))
}

type newHold struct {
	For    string `json:"for"`
	Reason string `json:"reason"`
}

type heldView struct {
	Name    store.GateName `json:"name"`
	Running int            `json:"running"`
	Until   *time.Time     `json:"until,omitempty"`
}

// readHold returns for how long, and why; until is by the clock of Redis.
func (a *API) readHold(r *route.Request) (ask newHold, duration time.Duration, until time.Time, err error) {
	if err = r.Decode(&ask); err != nil || ask.For == "" {
		return ask, 0, time.Time{}, err
	}
	if duration, err = route.Duration("/for", ask.For, time.Millisecond, admission.MaxDelay); err != nil {
		return ask, 0, time.Time{}, err
	}
	now, err := a.config.Store.Time(r.Context())
	return ask, duration, now.Add(duration), err
}

func (a *API) pause(name namer) func(*route.Request) (*route.Answer, error) {
	return func(r *route.Request) (*route.Answer, error) {
		ask, duration, until, err := a.readHold(r)
		if err != nil {
			return nil, err
		}
		running, err := a.config.Store.Pause(r.Context(), name(r), duration, intervention(r, ask.Reason))
		if err != nil {
			return nil, err
		}
		return route.OK(heldView{name(r), running, shown.Stamp(until)}), nil
	}
}

func (a *API) resume(name namer) func(*route.Request) (*route.Answer, error) {
	return func(r *route.Request) (*route.Answer, error) {
		was, err := a.config.Store.Unpause(r.Context(), name(r), intervention(r, r.URL.Query().Get("reason")))
		if err != nil {
			return nil, err
		}
		if !was {
			return nil, problem.New(problem.NotFound, "%s is not paused: GET /api/v1/holds tells what is", name(r).Words())
		}
		return route.Done(), nil
	}
}

func (a *API) suspend(name namer) func(*route.Request) (*route.Answer, error) {
	return func(r *route.Request) (*route.Answer, error) {
		ask, duration, until, err := a.readHold(r)
		if err != nil {
			return nil, err
		}
		if err := a.config.Store.Suspend(r.Context(), name(r), duration, intervention(r, ask.Reason)); err != nil {
			return nil, err
		}
		return route.OK(heldView{Name: name(r), Until: shown.Stamp(until)}), nil
	}
}

func (a *API) unsuspend(name namer) func(*route.Request) (*route.Answer, error) {
	return func(r *route.Request) (*route.Answer, error) {
		was, err := a.config.Store.Resume(r.Context(), name(r), intervention(r, r.URL.Query().Get("reason")))
		if err != nil {
			return nil, err
		}
		if !was {
			return nil, problem.New(problem.NotFound, "enqueueing is not suspended for %s: GET /api/v1/holds tells for whom it is", name(r).Words())
		}
		return route.Done(), nil
	}
}

func (a *API) tenant(r *route.Request) (*route.Answer, error) {
	tenant, err := r.Bind(r.PathValue("tenant"))
	if err != nil {
		return nil, err
	}
	current, err := rollout.Current(r.Context(), a.config.Store)
	if err != nil {
		return nil, err
	}
	view, err := shown.ReadTenant(r.Context(), a.config.Store, current, tenant, eyesOf(r))
	return tagged(current.Version, view), err
}

// adaptiveRoutes are those of limits that move by themselves. One holds back jobs of every tenant, so they are the deployment's.
func (a *API) adaptiveRoutes() []route.Route {
	const frozen, overridden = "/api/v1/adaptive/{name}/freeze", "/api/v1/adaptive/{name}/override"
	return []route.Route{
		see("/api/v1/adaptive", a.adaptives),
		operate(http.MethodPut, frozen, a.freeze),
		operate(http.MethodDelete, frozen, a.thaw),
		operate(http.MethodPut, overridden, a.override),
		operate(http.MethodDelete, overridden, a.endOverride),
	}
}

func (a *API) adaptives(r *route.Request) (*route.Answer, error) {
	all, err := shown.ReadAdaptives(r.Context(), a.config.Store)
	return route.OK(all), err
}

type freezeAsk struct {
	Reason string `json:"reason"`
}

func (a *API) freeze(r *route.Request) (*route.Answer, error) {
	var ask freezeAsk
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	_, err := a.setFrozen(r, true, ask.Reason)
	return route.Done(), err
}

func (a *API) thaw(r *route.Request) (*route.Answer, error) {
	was, err := a.setFrozen(r, false, r.URL.Query().Get("reason"))
	if err != nil {
		return nil, err
	}
	if !was {
		return nil, problem.New(problem.NotFound, "%s is not frozen: GET /api/v1/adaptive tells what is", r.PathValue("name"))
	}
	return route.Done(), nil
}

type overrideAsk struct {
	Limit  float64 `json:"limit"`
	For    string  `json:"for"`
	Reason string  `json:"reason"`
}

func (a *API) override(r *route.Request) (*route.Answer, error) {
	var ask overrideAsk
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	duration, err := route.Duration("/for", ask.For, store.MinOverride, store.MaxOverride)
	if err != nil {
		return nil, err
	}
	gate, err := shown.FindAdaptive(r.Context(), a.config.Store, r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	limit, err := shown.OverrideLimit(gate, ask.Limit)
	if err == nil {
		_, err = a.config.Store.Override(r.Context(), gate, limit, duration, intervention(r, ask.Reason))
	}
	return route.Done(), err
}

func (a *API) endOverride(r *route.Request) (*route.Answer, error) {
	gate, err := shown.FindAdaptive(r.Context(), a.config.Store, r.PathValue("name"))
	if err != nil {
		return nil, err
	}
	was, err := a.config.Store.Override(r.Context(), gate, 0, 0, intervention(r, r.URL.Query().Get("reason")))
	if err == nil && was == 0 {
		return nil, problem.New(problem.NotFound, "the limit of %s is not set for a time: GET /api/v1/adaptive tells what is", r.PathValue("name"))
	}
	return route.Done(), err
}

func (a *API) setFrozen(r *route.Request, frozen bool, reason string) (was bool, err error) {
	gate, err := shown.FindAdaptive(r.Context(), a.config.Store, r.PathValue("name"))
	if err != nil {
		return false, err
	}
	return a.config.Store.Freeze(r.Context(), gate, frozen, intervention(r, reason))
}

func (a *API) scales(r *route.Request) (*route.Answer, error) {
	all, err := shown.ReadScales(r.Context(), a.config.Store)
	return route.OK(all), err
}

type scaleAsk struct {
	Part   float64 `json:"part"`
	For    string  `json:"for"`
	Reason string  `json:"reason"`
}

func (a *API) scale(r *route.Request) (*route.Answer, error) {
	var ask scaleAsk
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	duration, err := route.Duration("/for", ask.For, store.MinScaleTime, store.MaxScaleTime)
	if err != nil {
		return nil, err
	}
	if _, err = a.setScale(r, ask.Part, duration, ask.Reason); err != nil {
		return nil, err
	}
	return a.scales(r)
}

func (a *API) unscale(r *route.Request) (*route.Answer, error) {
	was, err := a.setScale(r, 0, 0, r.URL.Query().Get("reason"))
	if err == nil && !was {
		return nil, problem.New(problem.NotFound, "limits of %s are not scaled: GET /api/v1/rate-limit/scale tells what is", r.PathValue("scope"))
	}
	return route.Done(), err
}

func (a *API) setScale(r *route.Request, part float64, duration time.Duration, reason string) (was bool, err error) {
	target, err := store.ScaleTarget(r.PathValue("scope"))
	if err != nil {
		return false, err
	}
	return a.config.Store.ScaleLimits(r.Context(), target, part, duration, intervention(r, reason))
}
