package api

import (
	"context"
	"encoding/json"
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

// candidateRoutes are those of the roll-out of other rules to a part of the tenants.
func (a *API) candidateRoutes() []route.Route {
	const path = "/api/v1/policy/rollout"
	admin := func(method, path string, handle func(*route.Request) (*route.Answer, error)) route.Route {
		return route.Route{Method: method, Path: path, Role: access.Admin, Reach: route.Deployment, Handle: handle}
	}
	return []route.Route{
		see(path, a.candidate),
		admin(http.MethodPut, path, a.putCandidate),
		admin(http.MethodDelete, path, a.endCandidate(rollout.Abandon)),
		see(path+"/shadow", a.shadow),
		admin(http.MethodPost, path+"/share", a.shareCandidate),
		admin(http.MethodPost, path+"/promote", a.endCandidate(rollout.Promote)),
	}
}

func (a *API) candidate(r *route.Request) (*route.Answer, error) {
	current, err := rollout.Current(r.Context(), a.config.Store)
	if err != nil {
		return nil, err
	}
	text, err := current.At("rollout")
	if err != nil {
		return nil, err
	}
	if text == nil {
		return nil, rollout.ErrNoCandidate
	}
	return tagged(current.Version, text), nil
}

// shadowView is what a candidate in shadow would have answered, and by which levels it would have refused.
type shadowView struct {
	ID      string           `json:"id"`
	Since   *time.Time       `json:"since"`
	Allowed int64            `json:"allowed"`
	Refused map[string]int64 `json:"refused"`
}

func (a *API) shadow(r *route.Request) (*route.Answer, error) {
	counts, err := a.config.Store.ShadowCounts(r.Context())
	if err != nil {
		return nil, err
	}
	if counts.ID == "" {
		return nil, problem.New(problem.NotFound, "nothing was counted for a candidate in shadow yet")
	}
	view := shadowView{counts.ID, shown.Stamp(counts.Since), counts.Allowed, map[string]int64{}}
	for level, refused := range counts.Refused {
		view.Refused[admission.Level(level).String()] = refused
	}
	return route.OK(view), nil
}

func (a *API) putCandidate(r *route.Request) (*route.Answer, error) {
	return a.editCandidate(r, func(ctx context.Context, edit rollout.Edit) (rollout.Result, error) {
		return rollout.StartCandidate(ctx, a.config.Store, json.RawMessage(r.Body), edit)
	})
}

type shareBody struct {
	Percent int `json:"percent"`
}

func (a *API) shareCandidate(r *route.Request) (*route.Answer, error) {
	var ask shareBody
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	return a.editCandidate(r, func(ctx context.Context, edit rollout.Edit) (rollout.Result, error) {
		return rollout.SetShare(ctx, a.config.Store, ask.Percent, edit)
	})
}

func (a *API) endCandidate(end func(context.Context, store.Deployment, rollout.Edit) (rollout.Result, error)) func(*route.Request) (*route.Answer, error) {
	return func(r *route.Request) (*route.Answer, error) {
		return a.editCandidate(r, func(ctx context.Context, edit rollout.Edit) (rollout.Result, error) {
			return end(ctx, a.config.Store, edit)
		})
	}
}

func (a *API) editCandidate(r *route.Request, change func(context.Context, rollout.Edit) (rollout.Result, error)) (*route.Answer, error) {
	edit, err := a.editOf(r, r.URL.Query().Get("reason"))
	if err != nil {
		return nil, err
	}
	done, err := change(r.Context(), edit)
	if err != nil {
		return nil, err
	}
	return tagged(done.To, editedViewOf(done)), nil
}
