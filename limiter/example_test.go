package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/embedded"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store/redisstore"
)

// A limiter asks whether a request may pass, without a job.
func Example() {
	ctx := context.Background()
	url, stopRedis := startRedis(ctx) // yours: "redis://localhost:6379"
	defer stopRedis()
	s, err := redisstore.Connect(ctx, url, redisstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	limits := policy.Default()
	limits.Global = admission.PerSecond(1000).WithBurst(2000)
	limits.QueueLimits = map[admission.Scope]admission.Limit{"acme:search": {Tokens: 60, Per: time.Hour, Burst: 2}}
	l, err := limiter.New(s, limiter.Config{Policy: &limits, Outage: limiter.OutageClosed, Timeout: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}

	for range 3 {
		verdict, err := l.Check(ctx, limiter.Request{Tenant: "acme", Queue: "search"})
		if err != nil {
			log.Fatal(err)
		}
		if err := verdict.Err(); errors.Is(err, admission.ErrLimited) {
			fmt.Printf("refused by %s for %s\n", verdict.Scope, verdict.RetryAfter.Round(time.Minute))
			continue
		}
		fmt.Println("passed")
	}
	bound, err := l.Guarantee(ctx, admission.Global)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(bound)
	if err := l.Close(ctx); err != nil { // Gives back what is on lease.
		log.Fatal(err)
	}
	// Output:
	// passed
	// passed
	// refused by acme:search for 1m0s
	// global: over all time at most 2000 + 1000/s, in any window 1000 more; without redis: closed, and up to 2000 taken off on return
}

// startRedis starts a private Redis for an example and returns its URL.
func startRedis(ctx context.Context) (url string, stop func()) {
	redis, err := embedded.Open(ctx, embedded.Config{Log: io.Discard})
	if err != nil {
		log.Fatal(err)
	}
	return "redis://" + redis.Options().Addr, func() { _ = redis.Close() }
}
