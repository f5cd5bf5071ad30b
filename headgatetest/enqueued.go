package headgatetest

import (
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/store"
)

// journal is a partition that remembers which jobs were admitted.
type journal struct {
	*memory.Partition

	mu   sync.Mutex
	jobs []admission.Job
}

// Admit implements store.Partition.
func (j *journal) Admit(ctx context.Context, version int64, jobs []store.Candidate) ([]admission.Verdict, error) {
	verdicts, err := j.Partition.Admit(ctx, version, jobs)
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range verdicts {
		if verdicts[i].Decision == admission.Admitted {
			j.jobs = append(j.jobs, *jobs[i].Job)
		}
	}
	return verdicts, err
}

func (j *journal) of(kind string) (jobs []admission.Job) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.jobs {
		if kind == "" || j.jobs[i].Type == kind {
			jobs = append(jobs, j.jobs[i])
		}
	}
	return jobs
}

// Enqueued returns the jobs with arguments of the type A, which is no pointer, that entered since New, in order, whatever became of them.
// Of headgate.Raw it is all jobs, their payloads as they are.
//
//nolint:thelper // Those who call it have a t.
func Enqueued[A headgate.Args](t testing.TB, c *Client) (jobs []headgate.Job) {
	t.Helper()
	var zero A
	for _, j := range c.jobs.of(zero.Kind()) {
		var args A
		if raw, ok := any(&args).(*headgate.Raw); ok {
			raw.Type, raw.Payload = j.Type, slices.Clone(j.Payload)
		} else if err := json.Unmarshal(j.Payload, &args); err != nil {
			t.Fatalf("job %s of %s: %v", j.ID, j.Tenant, err)
		}
		jobs = append(jobs, headgate.Job{
			Tenant: j.Tenant, Queue: j.Queue, Args: args, ID: j.ID, Priority: j.Priority, Deadline: j.Deadline, Cost: j.Cost, Downstream: j.Downstream,
			MaxAttempts: j.MaxAttempts, Timeout: j.Timeout, RunAt: j.RunAt, Delay: j.Delay, Unique: j.Unique, Headers: j.Headers,
		})
	}
	return jobs
}

// RequireEnqueued fails the test unless exactly one job with these arguments entered, and returns it.
//
//nolint:thelper // Those who call it have a t.
func RequireEnqueued[A headgate.Args](t testing.TB, c *Client, args A) headgate.Job {
	t.Helper()
	all := Enqueued[A](t, c)
	var found []headgate.Job
	for _, j := range all {
		if reflect.DeepEqual(j.Args, headgate.Args(args)) {
			found = append(found, j)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d jobs of the kind %s with %+v were enqueued, want one%s", len(found), args.Kind(), args, listed(all))
	}
	return found[0]
}

// RequireNoneEnqueued fails the test if a job with arguments of the type A entered.
//
//nolint:thelper // Those who call it have a t.
func RequireNoneEnqueued[A headgate.Args](t testing.TB, c *Client) {
	t.Helper()
	if all := Enqueued[A](t, c); len(all) > 0 {
		t.Fatalf("%d jobs were enqueued, want none%s", len(all), listed(all))
	}
}

// listed tells of jobs, a line each.
func listed(jobs []headgate.Job) string {
	var lines strings.Builder
	for _, j := range jobs {
		line, _ := json.Marshal(j.Args)
		lines.WriteString("\n\t" + j.Tenant + " " + j.Queue + " " + j.Args.Kind() + " " + string(line))
	}
	return lines.String()
}
