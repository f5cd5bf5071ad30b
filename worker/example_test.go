package worker_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// Welcome is what a job of the type "welcome" carries.
type Welcome struct {
	To string `json:"to"`
}

// A worker runs jobs with typed handlers until its ctx ends; then it drains.
func Example() {
	ctx, stop := context.WithCancel(context.Background()) // in main: signal.NotifyContext(…, os.Interrupt, syscall.SIGTERM)
	url, stopRedis := startRedis(ctx)                     // yours: "redis://localhost:6379"
	defer stopRedis()
	s, err := redisstore.Connect(ctx, url, redisstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	w, err := worker.New(s, worker.Config{Queues: []store.QueueWeight{{Queue: "mail"}}})
	if err != nil {
		log.Fatal(err)
	}
	worker.Register(w, "welcome", func(_ context.Context, job worker.Job[Welcome]) error {
		defer stop() // One is enough for an example.
		fmt.Printf("welcome to %s, attempt %d\n", job.Args.To, job.Attempt)
		return nil
	})
	p, err := producer.New(s, producer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := p.Enqueue(ctx, admission.NewJob("acme", "mail", "welcome", []byte(`{"to":"ada@example.com"}`))); err != nil {
		log.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("drained")
	// Output:
	// welcome to ada@example.com, attempt 1
	// drained
}

// startRedis starts a private Redis for an example and returns its URL.
func startRedis(ctx context.Context) (url string, stop func()) {
	redis, err := embedded.Open(ctx, embedded.Config{Log: io.Discard})
	if err != nil {
		log.Fatal(err)
	}
	return "redis://" + redis.Options().Addr, func() { _ = redis.Close() }
}

// A handler leaves a result, which a producer reads once the job has completed.
func ExampleSetResult() {
	ctx, stop := context.WithCancel(context.Background())
	url, stopRedis := startRedis(ctx)
	defer stopRedis()
	s, err := redisstore.Connect(ctx, url, redisstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	w, err := worker.New(s, worker.Config{
		Queues:   []store.QueueWeight{{Queue: "math"}},
		Observer: worker.Observer{Finished: func(worker.Event) { stop() }},
	})
	if err != nil {
		log.Fatal(err)
	}
	worker.Register(w, "double", func(ctx context.Context, job worker.Job[int]) error {
		return worker.SetResult(ctx, fmt.Append(nil, 2*job.Args), time.Hour)
	})
	p, err := producer.New(s, producer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	verdict, err := p.Enqueue(ctx, admission.NewJob("acme", "math", "double", []byte("21")))
	if err != nil {
		log.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
	result, err := p.Result(context.Background(), "acme", verdict.ID)
	fmt.Printf("%s %v\n", result, err)
	// Output: 42 <nil>
}
