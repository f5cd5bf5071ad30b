package examples_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/breaker"
)

func TestACallOutsideOfJobsAsksTheBreaker(t *testing.T) {
	t.Parallel()
	hg := open(t)
	//snippet:begin acquire
	call := func(ctx context.Context, to string) (err error) {
		done, err := hg.Breaker("smtp").Acquire(ctx)
		if err != nil {
			return err // a *headgate.Refusal, with the time until the breaker lets probes through
		}
		defer func() { done(err) }()
		return send(ctx, to)
	}
	//snippet:end
	check(t, call(t.Context(), "ada"))
	if err := call(t.Context(), "busy"); !errors.Is(err, errBusy) {
		t.Error(err)
	}
}

func TestABreakerHasRules(t *testing.T) {
	t.Parallel()
	hg := open(t)
	ctx := t.Context()
	w := hg.Worker(headgate.WorkerConfig{
		Queues: headgate.Weights{"mail": 1},
		//snippet:begin rules
		Breakers: map[string]breaker.Config{
			"smtp": {FailureThreshold: 5, SlowCallDuration: 2 * time.Second, OpenBase: 10 * time.Second},
		},
		//snippet:end
	})
	ran := make(chan struct{})
	headgate.Handle(w, func(context.Context, *headgate.Run[Welcome]) error { close(ran); return nil })
	work(t, w)
	//snippet:begin downstream
	_, err := hg.Enqueue(ctx, headgate.Job{Tenant: "acme", Queue: "mail", Downstream: "smtp", Args: Welcome{To: "ada@example.com"}})
	//snippet:end
	check(t, err)
	<-ran
}
