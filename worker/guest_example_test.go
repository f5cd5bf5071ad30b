package worker_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// A guest's work comes from elsewhere, and calls under the circuit breakers of all workers: here one that an operator opens.
func ExampleGuest() {
	ctx, stop := context.WithCancel(context.Background())
	url, stopRedis := startRedis(ctx)
	defer stopRedis()
	s, err := redisstore.Connect(ctx, url, redisstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	changed := make(chan struct{}, 1)
	guest, err := worker.NewGuest(s, worker.GuestConfig{Changed: func(string) { changed <- struct{}{} }})
	if err != nil {
		log.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = guest.Run(ctx) })

	if call, _, ok := guest.Begin(ctx, "pay"); ok {
		call.Succeeded(ctx) // or Failed, or Ignored
		fmt.Println("paid")
	}
	<-changed // The fleet has heard of it.
	if _, err := s.ForceBreaker(ctx, "pay", breaker.Open, time.Hour, store.Intervention{Reason: "maintenance"}); err != nil {
		log.Fatal(err)
	}
	<-changed
	if _, wait, ok := guest.Begin(ctx, "pay"); !ok {
		fmt.Println(guest.Fleet("pay").State, "for", wait.Round(time.Hour))
	}
	stop()
	running.Wait()
	// Output:
	// paid
	// open for 1h0m0s
}
