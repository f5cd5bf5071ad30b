// Hello world on asynq: a client and a server.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/hibiken/asynq"
)

type Welcome struct{ To string }

func main() {
	redis := asynq.RedisClientOpt{Addr: "localhost:6379"}
	client := asynq.NewClient(redis)
	defer client.Close()
	payload, err := json.Marshal(Welcome{To: "ada@example.com"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := client.Enqueue(asynq.NewTask("welcome", payload), asynq.Queue("mail")); err != nil {
		log.Fatal(err)
	}
	mux := asynq.NewServeMux()
	mux.HandleFunc("welcome", func(ctx context.Context, task *asynq.Task) error {
		var args Welcome
		if err := json.Unmarshal(task.Payload(), &args); err != nil {
			return err
		}
		fmt.Println("welcome", args.To)
		return nil
	})
	server := asynq.NewServer(redis, asynq.Config{Queues: map[string]int{"mail": 1}})
	if err := server.Run(mux); err != nil {
		log.Fatal(err)
	}
}
