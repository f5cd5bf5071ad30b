// Loadtest sends jobs through Headgate at a fixed rate, whatever becomes of them, and says how long they took, who was
// served and whether every promise held: go run loadtest/main.go -help.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/headgate/headgate/loadtest/internal/command"
	"github.com/headgate/headgate/loadtest/internal/gradient"
	"github.com/headgate/headgate/loadtest/internal/system"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // The first signal ends the run with its report, a second one the process.
	code := command.Run(ctx, command.Systems{
		Headgate: system.OpenHeadgate, Unshed: system.OpenUnshed, Capped: system.OpenCapped, Asynq: system.OpenAsynq, Gradient: system.OpenLimited("gradient", newGradient),
	}, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func newGradient(slots int) system.Limiter { return gradient.New(slots) }
