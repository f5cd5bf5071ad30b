package worker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/worker"
)

// TestJobsWithATimeOfTheirOwnStartNoEarlierAndSoonAfter measures time, so it is not parallel. How late a machine that is busy or halts
// starts any job is told by twins: jobs without a time that the test enqueues when some of the others are due.
func TestJobsWithATimeOfTheirOwnStartNoEarlierAndSoonAfter(t *testing.T) {
	r := newRig(t)
	const jobs, twinEvery, step = 400, 10, 3 * time.Millisecond
	batch := make([]admission.Job, jobs)
	at := map[string]time.Time{}
	first := redistest.Now().Add(300 * time.Millisecond)
	for i := range batch {
		j := job("send", fmt.Sprint("job-", i))
		if i%2 == 0 {
			j.RunAt = first.Add(time.Duration(i) * step)
			at[j.ID] = j.RunAt
		} else {
			j.Delay = 300*time.Millisecond + time.Duration(i)*step
		}
		batch[i] = j
	}
	var mu sync.Mutex
	var late, twins []time.Duration
	r.runWithTimers(r.store, worker.Config{Concurrency: 16}, on("send", func(_ context.Context, job worker.Job[[]byte]) error {
		now := redistest.Now().Round(0)
		mu.Lock()
		defer mu.Unlock()
		due, ok := at[job.ID]
		switch {
		case strings.HasPrefix(job.ID, "twin-"):
			twins = append(twins, now.Sub(due))
			return nil
		case !ok:
			var i int
			if _, err := fmt.Sscanf(job.ID, "job-%d", &i); err != nil {
				t.Error(err)
			}
			due = job.Admitted.Add(batch[i].Delay)
		case due.Before(job.Admitted):
			due = job.Admitted // It took so long to enqueue them all.
		}
		late = append(late, now.Sub(due))
		return nil
	}))
	r.enqueue(batch...)
	enqueued := redistest.Now()
	for i := 0; i < jobs; i += twinEvery {
		twin, due := job("send", fmt.Sprint("twin-", i)), first.Add(time.Duration(i)*step)
		if due.Before(enqueued) {
			due = enqueued
		}
		<-time.After(due.Sub(redistest.Now()))
		mu.Lock()
		at[twin.ID] = due
		mu.Unlock()
		r.enqueue(twin)
	}
	if c := r.idle(); c.Left["completed"] != jobs+jobs/twinEvery {
		t.Errorf("got %+v", c)
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(late)
	slowest := slices.Max(twins)
	t.Logf("late: p50 %s, p99 %s, most %s; jobs without a time at most %s", late[jobs/2], late[jobs*99/100], late[jobs-1], slowest)
	if late[0] < -time.Microsecond { // Redis counts in microseconds.
		t.Errorf("a job started %s early", -late[0])
	}
	if p99 := late[jobs*99/100] - slowest; p99 > 2*time.Second {
		t.Errorf("the p99 of lateness is %s more than that of a job without a time", p99)
	}
}
