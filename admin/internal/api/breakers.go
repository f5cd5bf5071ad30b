package api

import (
	"net/http"
	"time"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

// breakerRoutes are those of circuit breakers. One holds back the jobs of every tenant, so they are the deployment's.
func (a *API) breakerRoutes() []route.Route {
	const one = "/api/v1/breakers/{downstream}"
	return []route.Route{
		see("/api/v1/breakers", a.breakers),
		see(one, a.breaker),
		operate(http.MethodPost, one+"/force", a.forceBreaker),
		operate(http.MethodPost, one+"/reset", a.resetBreaker),
	}
}

func (a *API) breakers(r *route.Request) (*route.Answer, error) {
	states, err := a.config.Store.Breakers(r.Context())
	if err != nil {
		return nil, err
	}
	view := shown.BreakersIn(states, r.URL.Query().Get("state"))
	for i := range view.Breakers {
		hideErrors(r, &view.Breakers[i])
	}
	return route.OK(view), nil
}

// hideErrors keeps what receivers have said from those who may only look.
func hideErrors(r *route.Request, v *shown.Breaker) {
	if !r.Who.May(access.Operator) {
		v.Errors = nil
	}
}

func (a *API) breaker(r *route.Request) (*route.Answer, error) {
	state, err := a.config.Store.Breaker(r.Context(), r.PathValue("downstream"))
	if err != nil {
		return nil, err
	}
	view := shown.BreakerOf(&state)
	hideErrors(r, &view)
	return route.OK(view), nil
}

type forceBreaker struct {
	State  string `json:"state"`
	For    string `json:"for"`
	Reason string `json:"reason"`
}

func (a *API) forceBreaker(r *route.Request) (*route.Answer, error) {
	var ask forceBreaker
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	to, duration := breaker.Closed, time.Duration(0)
	if ask.State == breaker.Open.String() {
		to = breaker.Open
	}
	if ask.For != "" {
		var err error
		if duration, err = route.Duration("/for", ask.For, time.Millisecond, store.MaxForce); err != nil {
			return nil, err
		}
	}
	if _, err := a.config.Store.ForceBreaker(r.Context(), r.PathValue("downstream"), to, duration, intervention(r, ask.Reason)); err != nil {
		return nil, err
	}
	return a.breaker(r)
}

type resetBreaker struct {
	Reason string `json:"reason"`
}

func (a *API) resetBreaker(r *route.Request) (*route.Answer, error) {
	var ask resetBreaker
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	if _, err := a.config.Store.ResetBreaker(r.Context(), r.PathValue("downstream"), intervention(r, ask.Reason)); err != nil {
		return nil, err
	}
	return a.breaker(r)
}

// intervention says that whoever calls changes something. What a tenant's credential does to the tenant's own jobs is counted with
// them, and stands in no audit.
func intervention(r *route.Request, reason string) store.Intervention {
	return store.Intervention{Author: author(r), Reason: reason, Own: r.Who.Tenant != ""}
}

// author names whoever calls for the audit.
func author(r *route.Request) string { return clip(r.Who.String(), store.MaxAuthor) }
