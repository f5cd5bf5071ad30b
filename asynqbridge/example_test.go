package asynqbridge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/asynqbridge"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// startSite starts a private Redis for an example, in which a tenant has a burst of two tokens.
func startSite(ctx context.Context) (connection asynq.RedisClientOpt, s store.Deployment, stop func()) {
	redis, err := embedded.Open(ctx, embedded.Config{Log: io.Discard})
	if err != nil {
		log.Fatal(err)
	}
	addr := redis.Options().Addr
	s, err = redisstore.Connect(ctx, "redis://"+addr, redisstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	own := policy.Policy{Version: 1, Tiers: map[string]policy.Tier{policy.StandardTier: {Limit: admission.Limit{Tokens: 1, Per: time.Hour, Burst: 2}}}}
	text, err := policy.Marshal(own)
	if err != nil {
		log.Fatal(err)
	}
	if err := s.PutPolicy(ctx, store.PolicyUpdate{Version: 1, Text: text, Window: policy.DefaultDedupWindow}); err != nil {
		log.Fatal(err)
	}
	return asynq.RedisClientOpt{Addr: addr}, s, func() { _, _ = s.Close(), redis.Close() }
}

// Gate: the client alone changes. A task over the limit does not reach asynq.
func ExampleClient() {
	ctx := context.Background()
	connection, store, stop := startSite(ctx)
	defer stop()
	client, err := asynqbridge.NewClient(connection, store, asynqbridge.ClientConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for range 3 {
		task := asynq.NewTask("welcome", []byte(`{"to":"ada"}`), asynq.Queue("mail"), asynq.MaxRetry(5))
		info, err := client.EnqueueContext(ctx, task, asynqbridge.Tenant("acme"))
		var refused *admission.RefusedError
		switch {
		case errors.As(err, &refused):
			fmt.Printf("refused by %s, again in %s\n", refused.Verdict.Scope, refused.Verdict.RetryAfter.Round(time.Minute))
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Printf("%s in queue %s\n", info.State, info.Queue)
		}
	}
	// Output:
	// pending in queue mail
	// pending in queue mail
	// refused by acme, again in 1h0m0s
}

// Breaker: the middleware, two functions of the server's Config, and Run beside the server.
func ExampleBreaker() {
	ctx, stopGuard := context.WithCancel(context.Background())
	connection, store, stop := startSite(ctx)
	defer stop()
	guard, err := asynqbridge.NewBreaker(connection, store, asynqbridge.BreakerConfig{
		Breakers: map[string]breaker.Config{"mail": {FailureThreshold: 1, OpenBase: 10 * time.Minute}},
	})
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- guard.Run(ctx) }()
	mux := asynq.NewServeMux()
	mux.Use(guard.Middleware)
	mux.HandleFunc("welcome", func(context.Context, *asynq.Task) error {
		return errors.New("the mail server is away")
	})
	server := asynq.NewServer(connection, asynq.Config{
		Queues: map[string]int{"mail": 1}, LogLevel: asynq.FatalLevel,
		IsFailure: asynqbridge.IsFailure, RetryDelayFunc: asynqbridge.RetryDelay(nil),
	})
	if err := server.Start(mux); err != nil {
		log.Fatal(err)
	}
	client := asynq.NewClient(connection)
	defer client.Close()
	if _, err := client.Enqueue(asynq.NewTask("welcome", nil, asynq.Queue("mail"))); err != nil {
		log.Fatal(err)
	}
	inspector := asynq.NewInspector(connection)
	defer inspector.Close()
	waiting, stopWaiting := context.WithTimeout(ctx, time.Minute)
	defer stopWaiting()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for paused := false; !paused; {
		select {
		case <-look.C:
		case <-waiting.Done():
			log.Fatal("queue mail is not paused: ", waiting.Err())
		}
		info, err := inspector.GetQueueInfo("mail")
		if err != nil {
			log.Fatal(err)
		}
		paused = info.Paused
	}
	fleet, err := store.Breaker(ctx, "mail")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("paused, breaker", fleet.State)
	server.Shutdown()
	stopGuard()
	if err := errors.Join(<-ended, guard.Close()); err != nil {
		log.Fatal(err)
	}
	// Output: paused, breaker open
}

// Fair: tasks wait in Headgate, and a Releaser feeds asynq, whose servers stay as they are.
func ExampleFair() {
	ctx, stopReleaser := context.WithCancel(context.Background())
	connection, store, stop := startSite(ctx)
	defer stop()
	p, err := producer.New(store, producer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	client := asynqbridge.NewFair(p)
	info, err := client.Enqueue(asynq.NewTask("welcome", nil, asynq.Queue("mail")), asynqbridge.Tenant("acme"), asynq.TaskID("order-1"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("enqueued", info.ID)

	ran := make(chan string, 1)
	server := asynq.NewServer(connection, asynq.Config{Queues: map[string]int{"mail": 1}, LogLevel: asynq.FatalLevel})
	if err := server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		ran <- id
		return nil
	})); err != nil {
		log.Fatal(err)
	}
	releaser, err := asynqbridge.NewReleaser(connection, store, asynqbridge.ReleaserConfig{Queues: []string{"mail"}})
	if err != nil {
		log.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- releaser.Run(ctx) }()
	fmt.Println("ran", <-ran)
	stopReleaser()
	if err := errors.Join(<-ended, releaser.Close()); err != nil {
		log.Fatal(err)
	}
	server.Shutdown()
	// Output:
	// enqueued acme:order-1
	// ran acme:order-1
}

// Native: a worker of Headgate's own takes what Fair has enqueued, in the Releaser's place. An asynq handler that needs
// nothing of asynq's context runs in it as it is.
func ExampleFair_native() {
	ctx, stopWorker := context.WithCancel(context.Background())
	_, s, stop := startSite(ctx)
	defer stop()
	p, err := producer.New(s, producer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := asynqbridge.NewFair(p).Enqueue(asynq.NewTask("welcome", []byte("ada"), asynq.Queue("mail")), asynqbridge.Tenant("acme")); err != nil {
		log.Fatal(err)
	}
	handler := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		fmt.Printf("%s %s\n", task.Type(), task.Payload())
		return nil
	})
	w, err := worker.New(s, worker.Config{Queues: []store.QueueWeight{{Queue: "mail"}}})
	if err != nil {
		log.Fatal(err)
	}
	worker.RegisterAny(w, func(ctx context.Context, job worker.Job[[]byte]) error {
		defer stopWorker() // One job is enough for an example.
		return handler.ProcessTask(ctx, asynq.NewTaskWithHeaders(job.Type, job.Payload, job.Headers))
	})
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: welcome ada
}
