package worker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/worker"
)

// TestJobsWithATimeOfTheirOwnStartNoEarlierAndSoonAfter measures time, so it is not parallel.
func TestJobsWithATimeOfTheirOwnStartNoEarlierAndSoonAfter(t *testing.T) {
	r := newRig(t)
	const jobs = 400
	batch := make([]admission.Job, jobs)
	at := map[string]time.Time{}
	first := redistest.Now().Add(300 * time.Millisecond)
	for i := range batch {
		j := job("send", fmt.Sprint("job-", i))
		if i%2 == 0 {
			j.RunAt = first.Add(time.Duration(i) * 3 * time.Millisecond)
			at[j.ID] = j.RunAt
		} else {
			j.Delay = time.Duration(300+i*3) * time.Millisecond
		}
		batch[i] = j
	}
	var mu sync.Mutex
	var late []time.Duration
	r.runWithTimers(r.store, worker.Config{Concurrency: 16}, on("send", func(_ context.Context, job worker.Job[[]byte]) error {
		now := redistest.Now().Round(0)
		due, ok := at[job.ID]
		if !ok {
			var i int
			if _, err := fmt.Sscanf(job.ID, "job-%d", &i); err != nil {
				t.Error(err)
			}
			due = job.Admitted.Add(batch[i].Delay)
		}
		mu.Lock()
		defer mu.Unlock()
		late = append(late, now.Sub(due))
		return nil
	}))
	r.enqueue(batch...)
	if c := r.idle(); c.Left["completed"] != jobs {
		t.Errorf("got %+v", c)
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(late)
	t.Logf("late: p50 %s, p99 %s, most %s", late[jobs/2], late[jobs*99/100], late[jobs-1])
	if late[0] < -time.Microsecond { // Redis counts in microseconds.
		t.Errorf("a job started %s early", -late[0])
	}
	if p99 := late[jobs*99/100]; p99 > 2*time.Second {
		t.Errorf("the p99 of lateness is %s", p99)
	}
}
