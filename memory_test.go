package headgate_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestAProcessNeedsNoRedis runs a worker with its scheduler on a deployment in memory.
func TestAProcessNeedsNoRedis(t *testing.T) {
	t.Parallel()
	hg, err := headgate.Open(t.Context(), "memory:", headgate.Config{Partitions: 1})
	if err != nil {
		t.Fatal(err)
	}
	w := hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"mail": 1}})
	ctx, stop := context.WithCancel(t.Context())
	failed := false
	headgate.Handle(w, func(_ context.Context, job *headgate.Run[welcome]) error {
		if !failed {
			failed = true
			return headgate.RetryAfter(time.Millisecond, errors.New("once"))
		}
		stop()
		return job.SetResult("sent", time.Hour)
	})
	receipt, err := hg.Enqueue(t.Context(), headgate.Job{Tenant: "acme", Queue: "mail", Args: welcome{To: "ada"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if result, err := headgate.ResultOf[string](t.Context(), hg, headgate.Key{Tenant: "acme", ID: receipt.ID}); result != "sent" || err != nil {
		t.Errorf("got %q, %v", result, err)
	}
	if err := hg.Close(); err != nil {
		t.Error(err)
	}
	if _, err := headgate.Open(t.Context(), "memory://here", headgate.Config{}); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("a name in memory: %v", err)
	}
	if _, err := headgate.Open(t.Context(), "memory:", headgate.Config{Partitions: 2}); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("two partitions in memory: %v", err)
	}
}

func TestARunOfATestKeepsItsResult(t *testing.T) {
	t.Parallel()
	var job headgate.Run[welcome]
	if data, keep := job.Result(); data != nil || keep != 0 {
		t.Errorf("before: %s for %s", data, keep)
	}
	if err := job.SetResult(welcome{"ada"}, 0); !errors.Is(err, headgate.ErrInvalid) {
		t.Error(err)
	}
	if err := job.SetResult(func() {}, time.Hour); err == nil {
		t.Error("a function is no JSON")
	}
	if err := job.SetResult(welcome{"ada"}, time.Hour); err != nil {
		t.Error(err)
	}
	if data, keep := job.Result(); string(data) != `{"To":"ada"}` || keep != time.Hour {
		t.Errorf("after: %s for %s", data, keep)
	}
}
