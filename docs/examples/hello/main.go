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

//snippet:begin hello

type Welcome struct{ To string }

func (Welcome) Kind() string { return "welcome" }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	hg, err := headgate.Open(ctx, "redis://localhost:6379", headgate.Config{})
	check(err)
	defer hg.Close()

	_, err = hg.Enqueue(ctx, headgate.Job{Tenant: "acme", Queue: "mail", Args: Welcome{To: "ada@example.com"}})
	check(err) // a refusal says which limit refused, and when to try again

	w := hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"mail": 1}})
	headgate.Handle(w, func(ctx context.Context, job *headgate.Run[Welcome]) error {
		fmt.Println("welcome", job.Args.To)
		return nil // done; an error has it tried again
	})
	check(w.Run(ctx)) // until Ctrl-C; then it finishes what it runs
}

//snippet:end

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
