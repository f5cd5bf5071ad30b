package api

import (
	"context"
	"net/http"
	"time"

	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

func (a *API) queueRoutes() []route.Route {
	gate := func(r *route.Request) store.GateName { return store.QueueGate(r.PathValue("queue")) }
	routes := append(a.holdRoutes("/api/v1/queues/{queue}", gate),
		see("/api/v1/queues", a.queues),
		see("/api/v1/queues/{queue}", a.queue),
		see("/api/v1/load", a.loads),
		see("/api/v1/load/{queue}", a.load),
		see("/api/v1/load/downstreams/{downstream}", a.downstreamLoad),
		see("/api/v1/anomalies", a.anomalies),
		see("/api/v1/forecast", a.forecasts),
		see("/api/v1/forecast/{queue}", a.forecast),
		operate(http.MethodPost, "/api/v1/queues/{queue}/drain", a.drain),
	)
	return append(routes, route.Route{
		Method: http.MethodPost, Path: "/api/v1/queues/{queue}/purge", Role: access.Admin, Reach: route.Deployment, Handle: a.purgeQueue,
	})
}

func (a *API) queues(r *route.Request) (*route.Answer, error) {
	queues, err := a.config.Store.Queues(r.Context())
	if err != nil {
		return nil, err
	}
	return route.OK(shown.QueuesOf(queues)), nil
}

func (a *API) queue(r *route.Request) (*route.Answer, error) {
	queue, err := a.config.Store.Queue(r.Context(), r.PathValue("queue"))
	if err != nil {
		return nil, err
	}
	distincts, err := a.config.Store.Distincts(r.Context(), queue.Name)
	if err != nil {
		return nil, err
	}
	view := shown.QueueOf(&queue)
	view.Distinct = shown.DistinctOf(distincts[queue.Name])
	err = a.limits.with(r.Context(), func(snapshot *policy.Compiled) error {
		if bound := snapshot.QueueOf(queue.Name).Overflow; bound != (policy.Overflow{}) {
			view.Overflow = &bound
		}
		return nil
	})
	return route.OK(view), err
}

// drainHold is for how long a drain suspends enqueueing each time.
const drainHold = 30 * time.Second

type drainedView struct {
	Queue   string     `json:"queue"`
	Drained bool       `json:"drained"`
	Waiting int64      `json:"waiting"`
	Ready   int64      `json:"ready"`
	Running int64      `json:"running"`
	Later   int64      `json:"later"`
	Spilled int64      `json:"spilled"`
	Until   *time.Time `json:"until,omitempty"`
}

// drain leaves a suspension that ends later than its own as it is. Calls of one credential for a queue are one entry of the audit.
func (a *API) drain(r *route.Request) (*route.Answer, error) {
	ctx, store, name := r.Context(), a.config.Store, r.PathValue("queue")
	if _, err := store.Queue(ctx, name); err != nil {
		return nil, err
	}
	by := intervention(r, r.URL.Query().Get("reason"))
	by.Act = "drain"
	until, err := store.Drain(ctx, name, drainHold, by)
	if err != nil {
		return nil, err
	}
	left, err := store.Remaining(ctx, name)
	if err != nil {
		return nil, err
	}
	return route.OK(drainedView{name, left.Total() == 0, left.Waiting, left.Ready, left.Running, left.Later, left.Spilled, shown.Stamp(until)}), nil
}

type purgeQueue struct {
	Confirm string `json:"confirm"`
	Reason  string `json:"reason"`
	Cursor  string `json:"cursor"`
}

type purgedQueueView struct {
	Cancelled  int    `json:"cancelled"`
	Cancelling int    `json:"cancelling"`
	More       bool   `json:"more"`
	Cursor     string `json:"cursor,omitempty"`
}

func (a *API) purgeQueue(r *route.Request) (*route.Answer, error) {
	var ask purgeQueue
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	queue := r.PathValue("queue")
	if ask.Confirm != queue {
		return nil, problem.Invalid(problem.At("/confirm", "is not the name of the queue whose jobs are to be cancelled"))
	}
	ctx, store := r.Context(), a.config.Store
	if _, err := store.Queue(ctx, queue); err != nil {
		return nil, err
	}
	by := intervention(r, ask.Reason)
	by.Act = "purge" // The pages of one are one entry of the audit.
	done, err := store.PurgeQueue(ctx, queue, ask.Cursor, by)
	if err != nil {
		return nil, err
	}
	return route.OK(purgedQueueView{done.Cancelled, done.Cancelling, done.Cursor != "", done.Cursor}), nil
}

func (a *API) loads(r *route.Request) (*route.Answer, error) {
	loads, err := shown.ReadLoads(r.Context(), a.config.Store)
	if err != nil {
		return nil, err
	}
	return route.OK(loads), nil
}

func (a *API) anomalies(r *route.Request) (*route.Answer, error) {
	view, err := shown.ReadAnomalies(r.Context(), a.config.Store, r.URL.Query().Get("kind"), pageOf(r))
	if err != nil {
		return nil, err
	}
	return route.OK(view), nil
}

func (a *API) forecasts(r *route.Request) (*route.Answer, error) {
	view, err := shown.ReadForecasts(r.Context(), a.config.Store, pageOf(r))
	if err != nil {
		return nil, err
	}
	return route.OK(view), nil
}

func (a *API) forecast(r *route.Request) (*route.Answer, error) {
	view, err := shown.ReadForecast(r.Context(), a.config.Store, r.PathValue("queue"))
	if err != nil {
		return nil, err
	}
	return route.OK(view), nil
}

func (a *API) load(r *route.Request) (*route.Answer, error) {
	return a.loadOf(r, shown.ReadLoad, r.PathValue("queue"))
}

func (a *API) downstreamLoad(r *route.Request) (*route.Answer, error) {
	return a.loadOf(r, shown.ReadDownstreamLoad, r.PathValue("downstream"))
}

func (a *API) loadOf(r *route.Request, read func(context.Context, store.Deployment, string, time.Duration) (shown.LoadHistory, error), name string) (*route.Answer, error) {
	back, _ := time.ParseDuration(r.URL.Query().Get("history")) // The schema has seen to its form.
	if asked := r.URL.Query().Has("history"); asked && (back < shown.LeastLoadHistory || back > shown.MostLoadHistory) {
		return nil, problem.Invalid(problem.Fault{Parameter: "history", Detail: "is " + back.String() + "; allowed is 10s to 1h"})
	}
	load, err := read(r.Context(), a.config.Store, name, back)
	if err != nil {
		return nil, err
	}
	return route.OK(load), nil
}
