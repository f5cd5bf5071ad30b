package telemetry_test

import (
	"context"
	"fmt"
	"io"
	"log"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/telemetry"
	"github.com/headgate/headgate/worker"
)

// A job's spans have one trace, from the producer through Redis to the handler.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	redis, err := embedded.Open(ctx, embedded.Config{Log: io.Discard}) // yours: redisstore.Connect(ctx, "redis://localhost:6379", redisstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer redis.Close()
	s, err := redisstore.Open(ctx, redis.Client(), redisstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	spans := tracetest.NewInMemoryExporter() // yours: otlptracehttp.New(ctx)
	shown, err := telemetry.New(telemetry.Config{Tracer: sdk.NewTracerProvider(sdk.WithSyncer(spans))})
	if err != nil {
		log.Fatal(err)
	}
	p, err := producer.New(s, producer.Config{Observer: shown.Producer()})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := p.Enqueue(ctx, admission.NewJob("acme", "mail", "welcome", nil)); err != nil {
		log.Fatal(err)
	}
	w, err := worker.New(s, worker.Config{Queues: []store.QueueWeight{{Queue: "mail"}}, Observer: shown.Worker(worker.Observer{})})
	if err != nil {
		log.Fatal(err)
	}
	worker.Register(w, "welcome", func(context.Context, worker.Job[[]byte]) error {
		stop() // One is enough for an example.
		return nil
	})
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
	all := spans.GetSpans()
	for _, span := range all {
		fmt.Println(span.Name, span.SpanContext.TraceID() == all[0].SpanContext.TraceID())
	}
	// Output:
	// enqueue mail true
	// wait mail true
	// run mail true
}
