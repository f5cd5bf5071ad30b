package worker_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

func TestTheMostParticularTimeoutCounts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var mu sync.Mutex
	got := map[string]time.Duration{}
	r.runWithTimers(r.store, worker.Config{
		DefaultTimeout: time.Hour, CallTimeout: 30 * time.Minute, CallTimeouts: map[string]time.Duration{"slow": 2 * time.Hour},
	}, func(w *worker.Worker) {
		worker.RegisterAny(w, func(ctx context.Context, job worker.Job[[]byte]) error {
			deadline, _ := ctx.Deadline()
			mu.Lock()
			defer mu.Unlock()
			got[job.ID] = time.Until(deadline).Round(time.Minute)
			return nil
		})
	})
	own := to("slow", "own")
	own.Timeout = 3 * time.Hour
	r.enqueue(job("send", "plain"), to("fast", "fast"), to("slow", "slow"), own)
	r.idle()
	mu.Lock()
	defer mu.Unlock()
	for id, want := range map[string]time.Duration{"plain": time.Hour, "fast": 30 * time.Minute, "slow": 2 * time.Hour, "own": 3 * time.Hour} {
		if got[id] != want {
			t.Errorf("%s may take %s, want %s", id, got[id], want)
		}
	}
}

// TestACallIsNotCutUnlessSomebodySaysSo: a model may take its time.
func TestACallIsNotCutUnlessSomebodySaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	left := make(chan time.Duration, 1)
	r.run(r.store, worker.Config{}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
		deadline, _ := ctx.Deadline()
		left <- time.Until(deadline)
		return nil
	}))
	r.enqueue(to("openai", "a"))
	if got := (<-left).Round(time.Minute); got != 5*time.Minute {
		t.Errorf("it may take %s", got)
	}
}

func TestTimeoutsOfDownstreamsAreChecked(t *testing.T) {
	t.Parallel()
	_, err := worker.New(store.Single(nil, nil), worker.Config{
		Queues: []store.QueueWeight{{Queue: "q"}}, CallTimeouts: map[string]time.Duration{"a^b": time.Second, "fast": time.Microsecond, "slow": 25 * time.Hour},
	})
	for _, want := range []string{
		`invalid downstream of CallTimeouts "a^b"`, `invalid CallTimeouts["fast"] 1µs: allowed is 1ms to 24h`, `invalid CallTimeouts["slow"] 25h0m0s`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) || !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
