package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/worker"
)

// TestAShortWindowLosesNoOutcome: a window may be shorter than outcomes wait for their report, and each is counted all the same.
func TestAShortWindowLosesNoOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.run(r.store, worker.Config{Concurrency: 1, ReportEvery: time.Second, Breaker: breaker.Config{Window: 900 * time.Millisecond}}, on("send", nothing))
	const calls = 3
	for i := range calls {
		r.enqueue(to("mailgun", fmt.Sprint("job-", i)))
		r.await("the job to be done", func() bool { return r.census().Left["completed"] == int64(i+1) })
		time.Sleep(1200 * time.Millisecond) //nolint:forbidigo // longer than a report waits, so that each has one of its own
	}
	r.await("each call to be counted", func() bool {
		b, err := r.store.Breaker(t.Context(), "mailgun")
		return err == nil && b.Life.Calls == calls
	})
}
