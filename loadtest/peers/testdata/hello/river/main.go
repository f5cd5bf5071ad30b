// Hello world on river, which needs a PostgreSQL that river's migrations were run on.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

type Welcome struct{ To string }

func (Welcome) Kind() string { return "welcome" }

type Welcomer struct{ river.WorkerDefaults[Welcome] }

func (Welcomer) Work(_ context.Context, job *river.Job[Welcome]) error {
	fmt.Println("welcome", job.Args.To)
	return nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, "postgres://localhost/river")
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	workers := river.NewWorkers()
	river.AddWorker(workers, Welcomer{})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Queues: map[string]river.QueueConfig{"mail": {MaxWorkers: 10}}, Workers: workers})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Insert(ctx, Welcome{To: "ada@example.com"}, &river.InsertOpts{Queue: "mail"}); err != nil {
		log.Fatal(err)
	}
	if err := client.Start(ctx); err != nil {
		log.Fatal(err)
	}
	<-client.Stopped()
}
