package worker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/worker"
)

// TestAShortWindowLosesNoOutcome: a window may be shorter than outcomes wait for their report, and they are counted all the same, as far as the machine does
// not halt for half of it.
func TestAShortWindowLosesNoOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.run(r.store, worker.Config{Concurrency: 1, ReportEvery: time.Second, Breaker: breaker.Config{Window: 900 * time.Millisecond}}, on("send", nothing))
	counted := int64(0)
	for i := 0; i < 20 && counted == 0; i++ {
		r.enqueue(to("mailgun", fmt.Sprint("job-", i)))
		r.await("the job to be done", func() bool { return r.census().Left["completed"] == int64(i+1) })
		time.Sleep(1200 * time.Millisecond) //nolint:forbidigo // longer than a report waits, so that each has one of its own
		if b, err := r.store.Breaker(t.Context(), "mailgun"); err == nil {
			counted = b.Life.Calls
		}
	}
	if counted == 0 {
		t.Error("no call was ever counted")
	}
}
