package telemetry

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/worker"
)

// Telemetry makes observers. It, and what it makes, may be used by several goroutines, and by several producers and
// workers.
type Telemetry struct {
	tracing *tracing // nil for none
	metrics *metrics // nil for none
}

// New returns a Telemetry whose metrics are registered.
func New(config Config) (*Telemetry, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("configure telemetry: %w", err)
	}
	t := &Telemetry{}
	if config.Tracer != nil {
		t.tracing = newTracing(config)
	}
	if config.Registerer != nil {
		t.metrics = newMetrics(config.Tenants)
		if err := t.metrics.register(config.Registerer); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return t, nil
}

// Producer returns the Observer of a producer's Config.
func (t *Telemetry) Producer() producer.Observer {
	var o producer.Observer
	if t.tracing != nil {
		o.Enqueuing = t.tracing.enqueuing
	}
	if t.metrics != nil {
		o.Decided = t.metrics.decided
	}
	return o
}

// Worker returns the Observer of a worker's Config. It calls next too.
func (t *Telemetry) Worker(next worker.Observer) worker.Observer {
	o := next
	if t.tracing != nil {
		o.Taken = t.tracing.taken
		if next.Taken != nil {
			o.Taken = both(t.tracing.taken, next.Taken)
		}
	}
	if t.metrics != nil {
		o.Finished = func(e worker.Event) {
			t.metrics.finished(e)
			if next.Finished != nil {
				next.Finished(e)
			}
		}
		o.Guarded = t.guarded(next.Guarded)
	}
	return o
}

// Guarded returns what shows the changes that the guard of a server has found, nil without metrics. That of a worker does so by its
// Observer.
func (t *Telemetry) Guarded() func(worker.GuardChange) {
	if t.metrics == nil {
		return nil
	}
	return t.metrics.guarded
}

// guarded shows a change, and calls next too.
func (t *Telemetry) guarded(next func(worker.GuardChange)) func(worker.GuardChange) {
	return func(change worker.GuardChange) {
		t.metrics.guarded(change)
		if next != nil {
			next(change)
		}
	}
}

type taken func(context.Context, worker.Event, map[string]string) (context.Context, func(worker.Event))

// both calls the second with the ctx of the first, and ends them the other way round.
func both(first, second taken) taken {
	return func(ctx context.Context, e worker.Event, headers map[string]string) (context.Context, func(worker.Event)) {
		ctx, outer := first(ctx, e, headers)
		ctx, inner := second(ctx, e, headers)
		return ctx, func(end worker.Event) {
			if inner != nil {
				inner(end)
			}
			outer(end)
		}
	}
}

// The results of a request, beside the names of decisions.
const (
	resultUnknown     = "unknown" // sent, and no answer came
	resultUnavailable = "unavailable"
	resultOverloaded  = "overloaded" // turned away in this process, nothing was sent
	resultInvalid     = "invalid"
	resultFailed      = "failed"
)

// outcomeOf returns what became of a request, and the reason if it was refused.
func outcomeOf(verdict admission.Verdict, err error) (result string, reason admission.Reason) {
	if err == nil {
		return verdict.Decision.String(), admission.ReasonNone
	}
	if refused, ok := errors.AsType[*admission.RefusedError](err); ok {
		return admission.Refused.String(), refused.Verdict.Reason
	}
	switch {
	case errors.Is(err, admission.ErrOutcomeUnknown):
		return resultUnknown, admission.ReasonNone
	case errors.Is(err, admission.ErrOverloaded):
		return resultOverloaded, admission.ReasonNone
	case errors.Is(err, admission.ErrUnavailable):
		return resultUnavailable, admission.ReasonNone
	case errors.Is(err, admission.ErrInvalid):
		return resultInvalid, admission.ReasonNone
	}
	return resultFailed, admission.ReasonNone
}
