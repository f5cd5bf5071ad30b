package worker_test

import (
	"context"
	"testing"
	"time"

	"github.com/headgate/headgate/worker"
)

// TestASlotIsLeftWhenTheEndGoesOut: of a worker with one slot the next job begins while the end of the last one is still being told, here to an
// observer that waits for it.
func TestASlotIsLeftWhenTheEndGoesOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.enqueue(job("send", "first"), job("send", "second"))
	began := make(chan string, 2)
	second := make(chan struct{})
	met := false // by the first job's end, and by nobody else before Run has returned
	observer := worker.Observer{Finished: func(e worker.Event) {
		if e.Key.ID != "first" {
			return
		}
		timer := time.NewTimer(patience / 2)
		defer timer.Stop()
		select {
		case <-second:
			met = true
		case <-timer.C:
		}
	}}
	a := r.run(r.store, worker.Config{Concurrency: 1, Observer: observer}, func(w *worker.Worker) {
		worker.Register(w, "send", func(_ context.Context, job worker.Job[[]byte]) error {
			if began <- job.ID; job.ID == "second" {
				close(second)
			}
			return nil
		})
	})
	r.idle()
	a.stop()
	if err := a.wait(); err != nil {
		t.Error(err)
	}
	if first, next := <-began, <-began; first != "first" || next != "second" || !met {
		t.Errorf("%q began, then %q; it began while the end of the first was being told: %v", first, next, met)
	}
}
