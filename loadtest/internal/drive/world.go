package drive

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/loadtest/internal/downstream"
	"github.com/headgate/headgate/loadtest/internal/load"
)

// callTimeout bounds a handler's call of a downstream, beyond its work.
const callTimeout = 250 * time.Millisecond

// idleConnections is how many connections to each downstream are kept.
const idleConnections = 256

var (
	errFailed = errors.New("the downstream failed in the trace")
	errStatus = errors.New("the downstream answered with an error")
)

// world is what handlers meet, and what happens to it.
type world struct {
	plan    *load.Plan
	store   Redis
	servers []*downstream.Server
	client  *http.Client
	slow    atomic.Uint64 // the bits of the factor of handlers' work
}

func newWorld(ctx context.Context, plan *load.Plan, store Redis) (*world, error) {
	w := &world{plan: plan, store: store}
	w.slow.Store(math.Float64bits(1))
	if !plan.Serve {
		return w, nil
	}
	var work time.Duration
	if len(plan.Arrivals) > 0 {
		work = plan.Arrivals[0].Work
	}
	w.client = &http.Client{Timeout: work + callTimeout, Transport: &http.Transport{
		DialContext: (&net.Dialer{Timeout: callTimeout}).DialContext, MaxIdleConnsPerHost: idleConnections,
	}}
	for range plan.Downstreams {
		server, err := downstream.Start(ctx, work)
		if err != nil {
			w.close()
			return nil, err
		}
		w.servers = append(w.servers, server)
	}
	return w, nil
}

func (w *world) close() {
	for _, server := range w.servers {
		server.Close()
	}
	if w.client != nil {
		w.client.CloseIdleConnections()
	}
}

// run lets the plan's incidents happen. When ctx ends nothing breaks any more, but what is broken is mended: jobs that
// are in shall be able to end.
func (w *world) run(ctx context.Context, start time.Time) error {
	for _, incident := range w.plan.Incidents {
		if !sleep(ctx, time.Until(start.Add(incident.At))) && !mends(incident) {
			continue
		}
		if err := w.happen(context.WithoutCancel(ctx), incident); err != nil {
			return err
		}
	}
	return nil
}

func mends(incident load.Incident) bool {
	switch incident.Event {
	case load.DownstreamReturns, load.RedisReturns:
		return true
	case load.HandlersSlow:
		return incident.Factor <= 1
	case load.DownstreamDies, load.DownstreamHangs, load.RedisDies:
	}
	return false
}

func (w *world) happen(ctx context.Context, incident load.Incident) error {
	switch incident.Event {
	case load.DownstreamDies:
		w.servers[incident.Downstream].Die()
	case load.DownstreamHangs:
		w.servers[incident.Downstream].Hang()
	case load.DownstreamReturns:
		return w.servers[incident.Downstream].Mend(ctx)
	case load.HandlersSlow:
		w.slow.Store(math.Float64bits(incident.Factor))
	case load.RedisDies:
		w.store.Kill()
	case load.RedisReturns:
		return w.store.Restart(ctx)
	}
	return nil
}

// work does what a job's handler does.
func (w *world) work(ctx context.Context, a *load.Arrival) error {
	if w.plan.Serve {
		return w.call(ctx, a.Downstream)
	}
	factor := math.Float64frombits(w.slow.Load())
	if !sleep(ctx, time.Duration(factor*float64(a.Work))) {
		return context.Cause(ctx)
	}
	if a.Fails {
		return errFailed
	}
	return nil
}

func (w *world) call(ctx context.Context, number int) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.servers[number].URL(), http.NoBody)
	if err != nil {
		return fmt.Errorf("call %s: %w", w.plan.Downstreams[number], err)
	}
	response, err := w.client.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close() // It is empty.
	if response.StatusCode >= http.StatusMultipleChoices {
		return errStatus
	}
	return nil
}

// sleep waits; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
