// Headgate is an admission layer for job queues on Redis. This is its command line; see headgate help. It puts the commands of its rooms
// under one root, and turns how they end into an exit code (package cli).
//
//	jobs                    enqueue, job, dead, redrive: one job, or many
//	ops                     queue, breaker, pause, resume, holds, drain, explain, audit, doctor, migrate
//	policies                policy, limit, tenant, tier, downstream: the rules in force
//	setup                   config, key: what processes are told
//	work serve demo replay  the commands of these names
//	relay                   outbox: jobs that applications committed in a database
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/headgate/headgate/cmd/headgate/internal/firstprocess"
)

func main() {
	firstprocess.Run() // Where it is one, what follows runs in a child of it.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // The first signal drains, a second one ends the process at once.
	code := execute(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
