package api

import (
	"context"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/internal/tally"
	"github.com/headgate/headgate/lua"
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

// wayOf is the way of a question.
func wayOf(q *lua.Question) tally.Path {
	return tally.Path{Tenant: q.Tenant, Queue: q.Queue, Class: q.Class}
}

// note counts the questions of a call, all of them allowed or all refused. A peek asks for no tokens.
func (a *API) note(made *decision) {
	a.tally.Note(func(add func(tally.Path, tally.Sum)) {
		for i := range made.questions {
			one := tally.Sum{Refused: 1}
			if made.view.Allowed {
				one = tally.Sum{Allowed: 1}
			}
			if !made.peek {
				one.Tokens = made.questions[i].Cost
			}
			add(wayOf(&made.questions[i]), one)
		}
	})
}

// try asks a candidate in shadow about the questions of a call, as producers do about jobs. What does not reach Redis is
// not counted, and nothing else. A peek takes no tokens under any limits.
func (a *API) try(ctx context.Context, made *decision) {
	if made.peek || made.policy.ShadowID() == "" {
		return
	}
	var questions []lua.Question
	for i := range made.questions {
		q, verdict := made.questions[i], &made.answers[i].Verdict
		limits, in := made.policy.ShadowFor(q.Tenant, q.Queue, q.Class)
		limited := verdict.Reason == headgate.ReasonLimited || verdict.Reason == headgate.ReasonTooCostly
		if in && q.Tenant != "" && (limited || verdict.Decision == headgate.Admitted) {
			q.Limits = downTo(wayOf(&q).Level(), limits)
			questions = append(questions, q)
		}
	}
	if len(questions) == 0 {
		return
	}
	if err := a.config.Store.Shadow(ctx, made.policy.Version(), made.policy.ShadowID(), questions); err != nil {
		a.config.Missed("a candidate in shadow was not asked", err)
	}
}

// counts tells what limits decided on the jobs and checks of a scope in the last hour.
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
