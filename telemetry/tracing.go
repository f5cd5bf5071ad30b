package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/worker"
)

// scopeName names this instrumentation.
const scopeName = "github.com/headgate/headgate/telemetry"

// The attributes of spans. Those of messaging are OpenTelemetry's semantic conventions.
const (
	keySystem      = attribute.Key("messaging.system")
	keyDestination = attribute.Key("messaging.destination.name")
	keyMessage     = attribute.Key("messaging.message.id")
	keyOperation   = attribute.Key("messaging.operation.name")
	keyTenant      = attribute.Key("headgate.tenant")
	keyType        = attribute.Key("headgate.type")
	keyClass       = attribute.Key("headgate.class")
	keyDownstream  = attribute.Key("headgate.downstream")
	keyAttempt     = attribute.Key("headgate.attempt")
	keyResult      = attribute.Key("headgate.result")
	keyScope       = attribute.Key("headgate.scope")
	keyOutcome     = attribute.Key("headgate.outcome")
	keyReason      = attribute.Key("headgate.reason")
)

// The headers of W3C Trace Context. The second is about the trace that the first names.
const headerParent, headerState = "traceparent", "tracestate"

type tracing struct {
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
}

func newTracing(config Config) *tracing {
	return &tracing{tracer: config.Tracer.Tracer(scopeName), propagator: config.Propagator}
}

// enqueuing begins the span of a producer, under that of the caller or, without one, under what the job's headers name.
func (t *tracing) enqueuing(ctx context.Context, job admission.Job) (headers map[string]string, ended func(admission.Verdict, error)) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = t.propagator.Extract(ctx, propagation.MapCarrier(job.Headers))
	}
	ctx, span := t.tracer.Start(ctx, "enqueue "+job.Queue, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(
		keySystem.String("headgate"), keyOperation.String("enqueue"), keyDestination.String(job.Queue), keyMessage.String(job.ID),
		keyTenant.String(job.Tenant), keyType.String(job.Type), keyClass.String(string(job.Priority)), keyDownstream.String(job.Downstream),
	))
	carrier := propagation.MapCarrier{}
	t.propagator.Inject(ctx, carrier)
	_, stated := carrier[headerState]
	if _, parent := carrier[headerParent]; parent && !stated && job.Headers[headerState] != "" {
		carrier[headerState] = "" // The job's is that of another trace.
	}
	return carrier, func(verdict admission.Verdict, err error) {
		result, reason := outcomeOf(verdict, err)
		span.SetAttributes(keyResult.String(result))
		switch {
		case reason != admission.ReasonNone:
			span.SetAttributes(keyReason.String(string(reason)), keyScope.String(string(verdict.Scope)))
		case err != nil:
			span.SetStatus(codes.Error, result)
		}
		span.End()
	}
}

// taken begins the span of a worker, and with its end writes that of the wait before it.
func (t *tracing) taken(ctx context.Context, e worker.Event, headers map[string]string) (context.Context, func(worker.Event)) {
	now := time.Now()
	parent := t.propagator.Extract(ctx, propagation.MapCarrier(headers))
	about := trace.WithAttributes(
		keySystem.String("headgate"), keyDestination.String(e.Queue), keyMessage.String(e.Key.ID), keyTenant.String(e.Key.Tenant),
		keyType.String(e.Type), keyClass.String(string(e.Class)), keyDownstream.String(e.Downstream), keyAttempt.Int(e.Attempt),
	)
	running, run := t.tracer.Start(parent, "run "+e.Queue, trace.WithSpanKind(trace.SpanKindConsumer), trace.WithTimestamp(now),
		about, trace.WithAttributes(keyOperation.String("process")))
	return running, func(end worker.Event) {
		if end.RunTime > 0 {
			_, wait := t.tracer.Start(parent, "wait "+e.Queue, trace.WithTimestamp(now.Add(-e.Wait)), about)
			wait.End(trace.WithTimestamp(now))
		}
		run.SetAttributes(keyOutcome.String(string(end.Outcome)), keyReason.String(end.Reason))
		switch end.Outcome {
		case worker.Retried, worker.Dead, worker.Expired, worker.Lost:
			run.SetStatus(codes.Error, string(end.Outcome))
		case worker.Completed, worker.Released, worker.Cancelled:
		}
		run.End()
	}
}
