package telemetry_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/telemetry"
	"github.com/headgate/headgate/worker"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// patience is how long anything may take before a test gives up.
const patience = time.Minute

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func openStore(tb testing.TB) store.Deployment {
	tb.Helper()
	s, err := redisstore.Open(tb.Context(), redistest.Shared(tb).Client(tb), redisstore.Config{Prefix: redistest.Prefix(tb)})
	must(tb, err)
	return s
}

// observed returns a producer under a policy whose tellings go to a Telemetry.
func observed(tb testing.TB, store store.Deployment, shown *telemetry.Telemetry, limits policy.Policy) *producer.Producer {
	tb.Helper()
	p, err := producer.New(store, producer.Config{Policy: &limits, Observer: shown.Producer()})
	must(tb, err)
	return p
}

// work runs a worker of the queue "mail" until so many jobs have left its hand.
func work(tb testing.TB, s store.Deployment, shown *telemetry.Telemetry, jobs int, handler worker.Handler) {
	tb.Helper()
	ctx, stop := context.WithTimeout(tb.Context(), patience)
	defer stop()
	left := make(chan struct{}, jobs)
	w, err := worker.New(s, worker.Config{
		Queues: []store.QueueWeight{{Queue: "mail"}}, Concurrency: 1,
		Backoff:  func(int) time.Duration { return time.Millisecond },
		Observer: shown.Worker(worker.Observer{Finished: func(worker.Event) { left <- struct{}{} }}),
	})
	must(tb, err)
	worker.Register(w, "send", func(ctx context.Context, job worker.Job[[]byte]) error { return handler(ctx, job) })
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	for range jobs {
		select {
		case <-left:
		case <-ctx.Done():
			tb.Fatal("the jobs do not end")
		}
	}
	stop()
	must(tb, <-done)
}

func job(id string) admission.Job {
	j := admission.NewJob("acme", "mail", "send", []byte("{}"))
	j.ID = id
	return j
}
