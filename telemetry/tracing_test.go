package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/telemetry"
	"github.com/headgate/headgate/worker"
)

// traced returns a Telemetry that keeps its spans, and what makes others.
func traced(t *testing.T) (*telemetry.Telemetry, trace.Tracer, *tracetest.InMemoryExporter) {
	t.Helper()
	kept := tracetest.NewInMemoryExporter()
	provider := sdk.NewTracerProvider(sdk.WithSyncer(kept))
	shown, err := telemetry.New(telemetry.Config{Tracer: provider})
	must(t, err)
	return shown, provider.Tracer("test"), kept
}

// named returns the spans of a name, in the order in which they ended.
func named(kept *tracetest.InMemoryExporter, name string) (found tracetest.SpanStubs) {
	for _, span := range kept.GetSpans() {
		if span.Name == name {
			found = append(found, span)
		}
	}
	return found
}

// said returns the values of a span's attributes by the last part of their keys.
func said(span tracetest.SpanStub) map[string]string {
	values := map[string]string{}
	for _, kv := range span.Attributes {
		key := string(kv.Key)
		values[key[strings.LastIndex(key, ".")+1:]] = kv.Value.String()
	}
	return values
}

func expect(t *testing.T, span tracetest.SpanStub, want map[string]string) {
	t.Helper()
	got := said(span)
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s says %s=%q, want %q", span.Name, key, got[key], value)
		}
	}
}

// TestATraceGoesFromProducerToHandler: the way is through a real Redis, and the job fails once.
func TestATraceGoesFromProducerToHandler(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	shown, tracer, kept := traced(t)
	ctx, root := tracer.Start(t.Context(), "request")
	j := job("a")
	j.Priority, j.Headers = admission.High, map[string]string{"color": "blue"}
	own := maps.Clone(j.Headers)
	_, err := observed(t, store, shown, policy.Unlimited()).Enqueue(ctx, j)
	must(t, err)
	root.End()
	if !maps.Equal(j.Headers, own) {
		t.Errorf("the caller's headers became %v", j.Headers)
	}
	var color string
	work(t, store, shown, 2, func(ctx context.Context, job worker.Job[[]byte]) error {
		color = job.Headers["color"]
		_, span := tracer.Start(ctx, "inside")
		defer span.End()
		if job.Attempt == 1 {
			return errors.New("secret of the payload")
		}
		return nil
	})
	if color != "blue" {
		t.Errorf("the header color is %q", color)
	}
	enqueue, waits, runs, inside := named(kept, "enqueue mail"), named(kept, "wait mail"), named(kept, "run mail"), named(kept, "inside")
	if len(enqueue) != 1 || len(waits) != 2 || len(runs) != 2 || len(inside) != 2 {
		t.Fatalf("%d enqueue, %d wait, %d run, %d inside", len(enqueue), len(waits), len(runs), len(inside))
	}
	for _, span := range kept.GetSpans() {
		if span.SpanContext.TraceID() != root.SpanContext().TraceID() {
			t.Errorf("%s is of another trace", span.Name)
		}
		if strings.Contains(fmt.Sprint(span), "secret") {
			t.Errorf("%s tells what the handler said: %v", span.Name, span)
		}
	}
	under := func(child tracetest.SpanStub, parent trace.SpanContext, remote bool) {
		t.Helper()
		if child.Parent.SpanID() != parent.SpanID() || child.Parent.IsRemote() != remote {
			t.Errorf("%s stands under %s (remote %t)", child.Name, child.Parent.SpanID(), child.Parent.IsRemote())
		}
	}
	under(enqueue[0], root.SpanContext(), false)
	for i := range runs {
		under(waits[i], enqueue[0].SpanContext, true)
		under(runs[i], enqueue[0].SpanContext, true)
		under(inside[i], runs[i].SpanContext, false)
		if !waits[i].EndTime.Equal(runs[i].StartTime) || waits[i].StartTime.After(waits[i].EndTime) {
			t.Errorf("it waits from %s to %s, and runs from %s", waits[i].StartTime, waits[i].EndTime, runs[i].StartTime)
		}
	}
	expect(t, enqueue[0], map[string]string{"tenant": "acme", "name": "mail", "id": "a", "class": "high", "result": "admitted"})
	expect(t, runs[0], map[string]string{"tenant": "acme", "class": "high", "attempt": "1", "outcome": "retried"})
	expect(t, runs[1], map[string]string{"attempt": "2", "outcome": "completed", "reason": ""})
	expect(t, waits[1], map[string]string{"attempt": "2", "type": "send"})
	if enqueue[0].SpanKind != trace.SpanKindProducer || runs[0].SpanKind != trace.SpanKindConsumer {
		t.Errorf("kinds %s and %s", enqueue[0].SpanKind, runs[0].SpanKind)
	}
}

// TestARefusalAndWhatIsTurnedAwayHaveSpans: each job of a batch has its own.
func TestARefusalAndWhatIsTurnedAwayHaveSpans(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	shown, _, kept := traced(t)
	p := observed(t, store, shown, policy.Policy{Tiers: map[string]policy.Tier{policy.StandardTier: {Limit: admission.Limit{Tokens: 1, Per: time.Hour, Burst: 1}}}})
	j := job("a")
	j.Type = "other"
	_, err := p.EnqueueBatch(t.Context(), []admission.Job{j, job("b")})
	if !errors.Is(err, admission.ErrLimited) {
		t.Fatal(err)
	}
	work(t, store, shown, 1, nil)
	enqueue, runs := named(kept, "enqueue mail"), named(kept, "run mail")
	if len(enqueue) != 2 || len(runs) == 0 || len(named(kept, "wait mail")) != 0 {
		t.Fatalf("got %v", kept.GetSpans())
	}
	expect(t, enqueue[0], map[string]string{"id": "a", "result": "admitted"})
	expect(t, enqueue[1], map[string]string{"id": "b", "result": "refused", "reason": "limited", "scope": "acme"})
	expect(t, runs[0], map[string]string{"id": "a", "outcome": "released", "reason": "unknown_type"})
	if enqueue[0].SpanContext.TraceID() == enqueue[1].SpanContext.TraceID() || runs[0].Parent.SpanID() != enqueue[0].SpanContext.SpanID() {
		t.Error("the jobs' traces are mixed up")
	}
}

// TestAJobThatNamesATraceStaysInIt, as one that came over HTTP does.
func TestAJobThatNamesATraceStaysInIt(t *testing.T) {
	t.Parallel()
	shown, _, kept := traced(t)
	j := job("a")
	j.Headers = map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	headers, ended := shown.Producer().Enqueuing(t.Context(), j)
	ended(admission.Verdict{Decision: admission.Admitted}, nil)
	span := kept.GetSpans()[0]
	want := "00-0af7651916cd43dd8448eb211c80319c-" + span.SpanContext.SpanID().String() + "-01"
	if span.Parent.SpanID().String() != "b7ad6b7169203331" || headers["traceparent"] != want {
		t.Errorf("stands under %s, headers %v", span.Parent.SpanID(), headers)
	}
}

// TestTheStateOfATraceGoesWithIt: that of another, which the job has, does not travel beside the caller's span, nor one whose trace is malformed.
func TestTheStateOfATraceGoesWithIt(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	shown, tracer, _ := traced(t)
	p := observed(t, store, shown, policy.Unlimited())
	ctx, root := tracer.Start(t.Context(), "request")
	defer root.End()
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for id, row := range map[string]struct {
		ctx          context.Context //nolint:containedctx // It is the row's.
		parent, want string
	}{
		"own-span": {ctx, parent, ""}, "malformed": {t.Context(), "00-x", ""}, "same-trace": {t.Context(), parent, "vendor=1"},
	} {
		j := job(id)
		j.Headers = map[string]string{"traceparent": row.parent, "tracestate": "vendor=1"}
		_, err := p.Enqueue(row.ctx, j)
		must(t, err)
		work(t, store, shown, 1, func(ctx context.Context, job worker.Job[[]byte]) error {
			if got := job.Headers["tracestate"]; got != row.want || trace.SpanContextFromContext(ctx).TraceState().String() != row.want {
				t.Errorf("%s: the state %q travels with %s", id, got, job.Headers["traceparent"])
			}
			return nil
		})
	}
}

// TestAJobWhoseCostIsLearnedIsInTheTrace, as it enters alone, after a wait and in a batch.
func TestAJobWhoseCostIsLearnedIsInTheTrace(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	shown, _, kept := traced(t)
	p := observed(t, store, shown, policy.Unlimited())
	learned := func(id string) admission.Job {
		j := job(id)
		j.Cost = admission.LearnedCost
		return j
	}
	_, err := p.Enqueue(t.Context(), learned("a"))
	must(t, err)
	_, err = p.EnqueueWait(t.Context(), learned("b"))
	must(t, err)
	_, err = p.EnqueueBatch(t.Context(), []admission.Job{learned("c")})
	must(t, err)
	work(t, store, shown, 3, func(context.Context, worker.Job[[]byte]) error { return nil })
	for _, run := range named(kept, "run mail") {
		if !run.Parent.IsValid() {
			t.Errorf("a run stands under nothing: %v", run.Attributes)
		}
	}
}

// TestHeadersThatHaveNoRoomStay: a job with as many headers as it may have is sent without a trace, not refused.
func TestHeadersThatHaveNoRoomStay(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	shown, _, kept := traced(t)
	j := job("a")
	j.Headers = map[string]string{}
	for i := range admission.MaxHeaders {
		j.Headers[fmt.Sprintf("h%d", i)] = "v"
	}
	_, err := observed(t, store, shown, policy.Unlimited()).Enqueue(t.Context(), j)
	must(t, err)
	work(t, store, shown, 1, func(_ context.Context, job worker.Job[[]byte]) error {
		if !maps.Equal(job.Headers, j.Headers) {
			t.Errorf("headers became %v", job.Headers)
		}
		return nil
	})
	if runs := named(kept, "run mail"); len(runs) != 1 || runs[0].Parent.IsValid() {
		t.Errorf("got %v", runs)
	}
}

// TestWithoutTracesNothingIsAdded: a record is as long as before, and observers have nothing to call.
func TestWithoutTracesNothingIsAdded(t *testing.T) {
	t.Parallel()
	shown, err := telemetry.New(telemetry.Config{})
	must(t, err)
	if o := shown.Producer(); o.Enqueuing != nil || o.Decided != nil {
		t.Error("a producer calls somebody")
	}
	if o := shown.Worker(worker.Observer{}); o.Taken != nil || o.Started != nil || o.Finished != nil {
		t.Error("a worker calls somebody")
	}
	store := openStore(t)
	_, err = observed(t, store, shown, policy.Unlimited()).Enqueue(t.Context(), job("a"))
	must(t, err)
	work(t, store, shown, 1, func(ctx context.Context, job worker.Job[[]byte]) error {
		if len(job.Headers) > 0 || trace.SpanContextFromContext(ctx).IsValid() {
			t.Errorf("headers %v, span %v", job.Headers, trace.SpanContextFromContext(ctx))
		}
		return nil
	})
}

// TestAWorkersOwnObserverIsToldToo: its ctx is inside that of the trace.
func TestAWorkersOwnObserverIsToldToo(t *testing.T) {
	t.Parallel()
	shown, _, kept := traced(t)
	var told []string
	o := shown.Worker(worker.Observer{Taken: func(ctx context.Context, _ worker.Event, _ map[string]string) (context.Context, func(worker.Event)) {
		told = append(told, strconv.FormatBool(trace.SpanContextFromContext(ctx).IsValid()))
		return ctx, func(worker.Event) { told = append(told, strconv.Itoa(len(kept.GetSpans()))) }
	}})
	_, ended := o.Taken(t.Context(), worker.Event{Queue: "mail"}, nil)
	ended(worker.Event{RunTime: time.Millisecond})
	if got := strings.Join(told, " "); got != "true 0" || len(kept.GetSpans()) != 2 {
		t.Errorf("told %q, %d spans", got, len(kept.GetSpans()))
	}
}
