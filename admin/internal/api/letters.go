package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/store"
)

func (a *API) letterRoutes() []route.Route {
	return []route.Route{
		ofTenant(http.MethodGet, "/api/v1/dead-letters", access.Viewer, a.listLetters),
		ofTenant(http.MethodGet, "/api/v1/dead-letters/{tenant}/{id}", access.Viewer, a.letter),
		ofTenant(http.MethodPost, "/api/v1/dead-letters/redrive", access.Operator, a.redrive),
		ofTenant(http.MethodPost, "/api/v1/dead-letters/purge", access.Admin, a.purgeLetters),
	}
}

func (a *API) listLetters(r *route.Request) (*route.Answer, error) {
	query := r.URL.Query()
	q := store.ListQuery{Place: store.PlaceDead, Reason: query.Get("reason")}
	if before := query.Get("before"); before != "" {
		var err error
		if q.Before, err = time.Parse(time.RFC3339, before); err != nil {
			return nil, problem.Invalid(problem.Fault{Parameter: "before", Detail: "is no date-time"})
		}
	}
	return a.list(r, q)
}

func (a *API) letter(r *route.Request) (*route.Answer, error) {
	k, err := key(r)
	if err != nil {
		return nil, err
	}
	sight, err := a.config.Store.Look(r.Context(), k)
	if err != nil {
		return nil, err
	}
	if sight.Place != store.PlaceDead {
		return nil, admission.ErrNotDead
	}
	return route.OK(shown.JobOf(sight, eyesOf(r))), nil
}

// letterChoice names dead letters, or says which.
type letterChoice struct {
	Keys   []route.KeyName `json:"keys"`
	Filter *struct {
		Queue  string    `json:"queue"`
		Tenant string    `json:"tenant"`
		Reason string    `json:"reason"`
		Before time.Time `json:"before"`
	} `json:"filter"`
	Cursor string `json:"cursor"`
	Reason string `json:"reason"`
}

// letters returns the letters that were chosen, at most store.MaxBatchJobs, and where to go on.
func (a *API) letters(r *route.Request, choice letterChoice) (keys []admission.Key, cursor string, err error) {
	if choice.Filter == nil {
		for _, k := range choice.Keys {
			if _, err := r.Bind(k.Tenant); err != nil {
				return nil, "", err
			}
			keys = append(keys, admission.Key(k))
		}
		return keys, "", nil
	}
	f := choice.Filter
	tenant, err := r.Bind(f.Tenant)
	if err != nil {
		return nil, "", err
	}
	page, err := a.config.Store.List(r.Context(), store.ListQuery{
		Place: store.PlaceDead, Queue: f.Queue, Tenant: tenant, Reason: f.Reason, Before: f.Before, Limit: store.MaxBatchJobs, Cursor: choice.Cursor,
	})
	for _, job := range page.Jobs {
		keys = append(keys, job.Key)
	}
	return keys, page.Cursor, err
}

type redrive struct {
	letterChoice

	WithoutLimits bool `json:"without_limits"`
	DropDeadline  bool `json:"drop_deadline"`
}

type redrivenView struct {
	Redriven int           `json:"redriven"`
	Refused  []refusedView `json:"refused"`
	More     bool          `json:"more"`
	Cursor   string        `json:"cursor,omitempty"`
}

type refusedView struct {
	Tenant string           `json:"tenant"`
	ID     string           `json:"id"`
	Reason admission.Reason `json:"reason,omitempty"`
	Error  string           `json:"error"`
}

func (a *API) redrive(r *route.Request) (*route.Answer, error) {
	var ask redrive
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	keys, cursor, err := a.letters(r, ask.letterChoice)
	if err != nil {
		return nil, err
	}
	if ask.WithoutLimits && r.Who.Tenant != "" {
		return nil, problem.New(problem.Forbidden, "a credential of one tenant cannot leave its limits: without without_limits the letters are charged like new jobs")
	}
	view := redrivenView{Refused: []refusedView{}, More: cursor != "", Cursor: cursor}
	answer := route.OK(&view)
	wait, err := a.redriveKeys(r.Context(), admission.RedriveOptions{
		WithoutLimits: ask.WithoutLimits, DropDeadline: ask.DropDeadline, Author: author(r), Reason: ask.Reason, Act: "redrive", Own: r.Who.Tenant != "",
	}, keys, &view)
	if err != nil {
		return nil, err
	}
	if wait > 0 { // The letters that lack tokens are on this page: it is the one to come back to.
		answer.Header = http.Header{"Retry-After": {problem.Seconds(wait)}}
		if ask.Filter != nil {
			view.More, view.Cursor = true, ask.Cursor
		}
	}
	return answer, nil
}

// redriveKeys returns the longest wait for tokens.
func (a *API) redriveKeys(ctx context.Context, options admission.RedriveOptions, keys []admission.Key, view *redrivenView) (wait time.Duration, err error) {
	if len(keys) == 0 {
		return 0, nil
	}
	results, err := a.config.Enqueuer.RedriveWith(ctx, options, keys...)
	if results == nil {
		return 0, err
	}
	for _, result := range results {
		if result.Err == nil {
			view.Redriven++
			continue
		}
		reason := result.Verdict.Reason
		if errors.Is(result.Err, admission.ErrNotDead) {
			reason = admission.ReasonGone
		}
		if errors.Is(result.Err, admission.ErrLimited) {
			wait = max(wait, result.Verdict.RetryAfter)
		}
		view.Refused = append(view.Refused, refusedView{result.Key.Tenant, result.Key.ID, reason, problemFor(options.Own, &result.Verdict, result.Err).Detail})
	}
	return wait, nil
}

type purgedLettersView struct {
	Purged int    `json:"purged"`
	More   bool   `json:"more"`
	Cursor string `json:"cursor,omitempty"`
}

func (a *API) purgeLetters(r *route.Request) (*route.Answer, error) {
	var ask letterChoice
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	keys, cursor, err := a.letters(r, ask)
	if err != nil {
		return nil, err
	}
	view := purgedLettersView{More: cursor != "", Cursor: cursor}
	if len(keys) > 0 {
		by := intervention(r, ask.Reason)
		by.Act = "purge"
		purged, err := a.config.Store.Purge(r.Context(), keys, by)
		if err != nil {
			return nil, err
		}
		for _, yes := range purged {
			if yes {
				view.Purged++
			}
		}
	}
	return route.OK(view), nil
}
