package producer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store/redisstore"
)

// A producer enqueues jobs and learns at once what became of each.
func Example() {
	ctx := context.Background()
	url, stopRedis := startRedis(ctx) // yours: "redis://localhost:6379"
	defer stopRedis()
	s, err := redisstore.Connect(ctx, url, redisstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	two := policy.Tier{Limit: admission.Limit{Tokens: 2, Per: time.Hour, Burst: 2}}
	limits := policy.Policy{Tiers: map[string]policy.Tier{policy.StandardTier: two}}
	p, err := producer.New(s, producer.Config{Policy: &limits})
	if err != nil {
		log.Fatal(err)
	}

	for _, id := range []string{"order-1", "order-1", "order-2", "order-3"} {
		job := admission.NewJob("acme", "mail", "welcome", []byte(`{"to":"ada@example.com"}`))
		job.ID, job.Priority = id, admission.High
		verdict, err := p.Enqueue(ctx, job)
		switch {
		case errors.Is(err, admission.ErrLimited):
			fmt.Printf("%s: refused by scope %s, %d tokens left\n", id, verdict.Scope, verdict.TokensLeft)
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Printf("%s: %s\n", id, verdict.Decision)
		}
	}
	// Output:
	// order-1: admitted
	// order-1: duplicate
	// order-2: admitted
	// order-3: refused by scope acme, 0 tokens left
}

// startRedis starts a private Redis for an example and returns its URL.
func startRedis(ctx context.Context) (url string, stop func()) {
	redis, err := embedded.Open(ctx, embedded.Config{Log: io.Discard})
	if err != nil {
		log.Fatal(err)
	}
	return "redis://" + redis.Options().Addr, func() { _ = redis.Close() }
}

// Periodic jobs are enqueued once a tick, however many processes run the same list.
func ExampleNewPeriodic() {
	ctx, stop := context.WithCancel(context.Background())
	url, stopRedis := startRedis(ctx)
	defer stopRedis()
	s, err := redisstore.Connect(ctx, url, redisstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	p, err := producer.New(s, producer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	_, err = producer.NewPeriodic(p, producer.PeriodicConfig{Jobs: []producer.PeriodicJob{
		{Name: "invoices", Spec: "@every 0s", Job: admission.NewJob("acme", "report", "invoices", nil)},
	}})
	fmt.Println(errors.Is(err, admission.ErrInvalid))

	periodic, err := producer.NewPeriodic(p, producer.PeriodicConfig{Seconds: true, Jobs: []producer.PeriodicJob{{
		Name: "invoices", Spec: "* * * * * *", Make: func(time.Time) admission.Job {
			stop() // One tick is enough for an example.
			return admission.NewJob("acme", "report", "invoices", nil)
		},
	}}})
	if err != nil {
		log.Fatal(err)
	}
	if err := periodic.Run(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("a tick came, and Run ended with its ctx")
	// Output:
	// true
	// a tick came, and Run ended with its ctx
}
