package headgate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestWhoAwaitsAJobHearsHowItEnded: with a result, without one, as a dead letter, not yet, or never.
func TestWhoAwaitsAJobHearsHowItEnded(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	ctx := t.Context()
	w := hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"mail": 1}})
	headgate.Handle(w, func(_ context.Context, job *headgate.Run[welcome]) error {
		switch job.Args.To {
		case "nobody":
			return headgate.Discard(errors.New("550"))
		case "quiet":
			return nil
		}
		return job.SetResult(report{Pages: len(job.Args.To)}, time.Minute)
	})
	enqueue := func(to string, delay time.Duration) headgate.Key {
		receipt, err := hg.Enqueue(ctx, headgate.Job{Tenant: "acme", Queue: "mail", Args: welcome{To: to}, Delay: delay})
		check(t, err)
		return headgate.Key{Tenant: "acme", ID: receipt.ID}
	}
	run(t, w)
	if got, err := headgate.Await[report](ctx, hg, enqueue("ada", 0)); err != nil || got.Pages != 3 {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := headgate.Await[report](ctx, hg, enqueue("quiet", 0)); !errors.Is(err, headgate.ErrNoResult) {
		t.Errorf("without a result: %v", err)
	}
	dead := enqueue("nobody", 0)
	_, err := headgate.Await[report](ctx, hg, dead)
	if letter, ok := errors.AsType[*headgate.DeadError](err); !ok || letter.Key != dead || letter.Reason != "discarded" || letter.Text != "550" {
		t.Errorf("a dead letter: %v", err)
	}
	if _, err := headgate.Await[report](ctx, hg, headgate.Key{Tenant: "acme", ID: "none"}); !errors.Is(err, headgate.ErrUnknownJob) {
		t.Errorf("nobody knows it: %v", err)
	}
	soon, end := context.WithTimeout(ctx, 50*time.Millisecond)
	defer end()
	if _, err := headgate.Await[report](soon, hg, enqueue("later", time.Hour)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("not in time: %v", err)
	}
}
