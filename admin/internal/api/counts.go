package api

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/internal/shown"
)

type minuteView struct {
	At      *time.Time      `json:"at"`
	Allowed int64           `json:"allowed"`
	Refused int64           `json:"refused"`
	Tokens  headgate.Tokens `json:"tokens"`
	// Partial says that the scope was counted for a part of the minute only.
	Partial bool `json:"partial"`
}

type countsView struct {
	Scope   headgate.Scope `json:"scope"`
	Allowed int64          `json:"allowed"`
	Refused int64          `json:"refused"`
	Minutes []minuteView   `json:"minutes"`
}

// counts tells what limits decided on the jobs of a scope in the last hour.
func (a *API) counts(r *route.Request) (*route.Answer, error) {
	view := countsView{Scope: headgate.Scope(r.PathValue("scope")), Minutes: []minuteView{}}
	if err := bindScope(r, view.Scope); err != nil {
		return nil, err
	}
	minutes, err := a.config.Store.Minutes(r.Context(), view.Scope)
	if err != nil {
		return nil, err
	}
	for _, m := range minutes {
		view.Allowed, view.Refused = view.Allowed+m.Allowed, view.Refused+m.Refused
		view.Minutes = append(view.Minutes, minuteView{shown.Stamp(m.At), m.Allowed, m.Refused, m.Tokens, m.Partial})
	}
	return route.OK(view), nil
}
