package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admin/access"
	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/lua"
)

func (a *API) queueRoutes() []route.Route {
	gate := func(r *route.Request) lua.GateName { return lua.QueueGate(r.PathValue("queue")) }
	routes := append(a.holdRoutes("/api/v1/queues/{queue}", gate),
		see("/api/v1/queues", a.queues),
		see("/api/v1/queues/{queue}", a.queue),
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
	return route.OK(shown.QueueOf(&queue)), nil
}

// drainHold is for how long a drain suspends enqueueing each time.
const drainHold = 30 * time.Second

const drainReason = "the queue is being drained"

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

// drain leaves a suspension that ends later than its own as it is.
func (a *API) drain(r *route.Request) (*route.Answer, error) {
	ctx, store, name := r.Context(), a.config.Store, r.PathValue("queue")
	queue, err := store.Queue(ctx, name)
	if err != nil {
		return nil, err
	}
	now, err := store.Time(ctx)
	if err != nil {
		return nil, err
	}
	until := now.Add(drainHold)
	switch held := queue.Suspended; {
	case held != nil && held.Until.IsZero():
		until = time.Time{}
	case held != nil && held.Until.After(until):
		until = held.Until
	default:
		if err := store.Suspend(ctx, lua.QueueGate(name), drainHold, drainReason); err != nil {
			return nil, err
		}
	}
	left, err := store.Remaining(ctx, name)
	if err != nil {
		return nil, err
	}
	return route.OK(drainedView{name, left.Total() == 0, left.Waiting, left.Ready, left.Running, left.Later, left.Spilled, shown.Stamp(until)}), nil
}

// purgePage is how many jobs a call of purge cancels, each with a round trip of its own.
const purgePage = 500

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
	page, err := store.List(ctx, lua.ListQuery{Queue: queue, Limit: purgePage, Cursor: ask.Cursor})
	if err != nil {
		return nil, err
	}
	view := purgedQueueView{More: page.Cursor != "", Cursor: page.Cursor}
	for _, job := range page.Jobs {
		running, err := a.cancelOne(ctx, job.Key, ask.Reason)
		switch {
		case errors.Is(err, headgate.ErrUnknownJob), errors.Is(err, headgate.ErrEnded): // It has left by itself, or is a dead letter.
		case err != nil:
			return nil, err
		case running:
			view.Cancelling++
		default:
			view.Cancelled++
		}
	}
	return route.OK(view), nil
}

// cancelOne cancels a job. Work that it leaves is left to the schedulers.
func (a *API) cancelOne(ctx context.Context, key headgate.Key, reason string) (running bool, err error) {
	running, _, err = a.config.Store.Cancel(ctx, key, reason)
	return running, err
}
