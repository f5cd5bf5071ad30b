// Hello world on Headgate: a producer and a worker.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/headgate/headgate"
)

type Welcome struct{ To string }

func (Welcome) Kind() string { return "welcome" }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	hg, err := headgate.Open(ctx, "redis://localhost:6379", headgate.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer hg.Close()
	w := hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"mail": 1}})
	headgate.Handle(w, func(ctx context.Context, job *headgate.Run[Welcome]) error {
		fmt.Println("welcome", job.Args.To)
		return nil
	})
	if _, err := hg.Enqueue(ctx, headgate.Job{Tenant: "acme", Queue: "mail", Args: Welcome{To: "ada@example.com"}}); err != nil {
		log.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		log.Fatal(err)
	}
}
