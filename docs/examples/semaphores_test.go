package examples_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/headgatetest"
)

// render is work that needs a GPU.
func render(ctx context.Context) error { return ctx.Err() }

func TestPermitsAreHeldWhileOneWorks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hg := headgatetest.New(t)
		limiter, err := hg.Limiter(headgate.LimiterConfig{})
		check(t, err)
		rendered := func(ctx context.Context) error {
			//snippet:begin hold
			permits, err := limiter.Semaphore("gpu").Acquire(ctx, 2) // in line, until ctx ends
			if err != nil {
				return err
			}
			defer permits.Release(context.WithoutCancel(ctx))
			return render(permits.Context()) // ends for ErrPermitsLost before anybody else has them
			//snippet:end
		}
		check(t, rendered(t.Context()))
		check(t, limiter.Close(t.Context()))
	})
}
