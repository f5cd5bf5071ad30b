package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"github.com/headgate/headgate/loadtest/internal/command"
	"github.com/headgate/headgate/loadtest/internal/gradient"
	"github.com/headgate/headgate/loadtest/internal/system"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // The first signal ends the run with its report, a second one the process.
	code := command.Run(ctx, command.Systems{
		Headgate: system.OpenHeadgate, Unshed: system.OpenUnshed, Capped: system.OpenCapped, Asynq: system.OpenAsynq, Gradient: system.OpenLimited("gradient", newGradient),
		Failsafe: system.OpenLimited("failsafe", newAdaptive),
	}, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func newGradient(slots int) system.Limiter { return gradient.New(slots) }

// adaptive is failsafe-go's limiter with its defaults, but that it begins with the worker's slots.
type adaptive struct {
	limiter adaptivelimiter.AdaptiveLimiter[any]
}

func newAdaptive(slots int) system.Limiter {
	const least, most = 1, 200 // Its defaults.
	initial := uint(max(least, min(most, slots)))
	return &adaptive{adaptivelimiter.NewBuilder[any]().WithLimits(least, most, initial).Build()}
}

func (a *adaptive) Acquire() (release func(counts bool), ok bool) {
	permit, ok := a.limiter.TryAcquirePermit()
	if !ok {
		return nil, false
	}
	return func(counts bool) {
		if counts {
			permit.Record()
			return
		}
		permit.Drop()
	}, true
}
