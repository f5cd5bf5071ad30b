package producer_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store/redisstore"
)

// Dead letters run again by their keys. What is no dead letter is told apart from what is refused.
func ExampleProducer_Redrive() {
	ctx := context.Background()
	url, stopRedis := startRedis(ctx) // yours: "redis://localhost:6379"
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
	job := admission.NewJob("acme", "mail", "welcome", nil)
	job.ID = "order-17"
	if _, err := p.Enqueue(ctx, job); err != nil {
		log.Fatal(err)
	}

	results, err := p.Redrive(ctx, admission.Key{Tenant: "acme", ID: "order-17"})
	if err != nil && results == nil {
		log.Fatal(err) // Nothing was sent.
	}
	for _, r := range results {
		switch {
		case errors.Is(r.Err, admission.ErrNotDead):
			fmt.Printf("%s: it is no dead letter\n", r.Key)
		case errors.Is(r.Err, admission.ErrRefused):
			fmt.Printf("%s: stays dead: %v\n", r.Key, r.Err)
		default:
			fmt.Printf("%s: %s\n", r.Key, r.Verdict.Decision)
		}
	}
	// Output:
	// acme:order-17: it is no dead letter
}
