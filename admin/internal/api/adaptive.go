package api

import (
	"net/http"

	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/internal/shown"
)

// adaptiveRoutes are those of limits that move by themselves. One holds back jobs of every tenant, so they are the deployment's.
func (a *API) adaptiveRoutes() []route.Route {
	const frozen = "/api/v1/adaptive/{name}/freeze"
	return []route.Route{
		see("/api/v1/adaptive", a.adaptives),
		operate(http.MethodPut, frozen, a.freeze),
		operate(http.MethodDelete, frozen, a.thaw),
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

func (a *API) setFrozen(r *route.Request, frozen bool, reason string) (was bool, err error) {
	gate, err := shown.FindAdaptive(r.Context(), a.config.Store, r.PathValue("name"))
	if err != nil {
		return false, err
	}
	return a.config.Store.Freeze(r.Context(), gate, frozen, intervention(r, reason))
}
