package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/worker"
)

// ofTenant returns jobs of a tenant that call "pay".
func ofTenant(tenant string, from, n int) []admission.Job {
	jobs := make([]admission.Job, n)
	for i := range jobs {
		jobs[i] = to("pay", fmt.Sprint(tenant, from+i))
		jobs[i].Tenant, jobs[i].Type = tenant, "call"
	}
	return jobs
}

// TestATenantThatFailsOnPurposeOpensNothing runs three workers. One tenant's jobs fail as fast as they can, ten attempts each, and
// another's, beside them, succeed: nobody stops calling, and no worker takes itself for the culprit.
func TestATenantThatFailsOnPurposeOpensNothing(t *testing.T) {
	t.Parallel()
	const evilJobs, attempts = 30, 10
	r := newRig(t)
	var evil, victim atomic.Int64
	handler := on("call", func(_ context.Context, j worker.Job[[]byte]) error {
		if j.Tenant == "evil" {
			evil.Add(1)
			return errDown
		}
		victim.Add(1)
		return nil
	})
	ran := make([]*running, 3)
	for i := range ran {
		ran[i] = r.runWithTimers(r.store, worker.Config{Concurrency: 4}, handler)
	}
	r.await("the registrations", func() bool { return len(r.registrations()) == len(ran) })
	r.enqueue(ofTenant("victim", 0, 20)...)
	r.await("the victim's first calls", func() bool {
		state, err := r.store.Breaker(t.Context(), "pay")
		return err == nil && state.Life.Calls >= 20
	})
	jobs := ofTenant("evil", 0, evilJobs)
	for i := range jobs {
		jobs[i].MaxAttempts, jobs[i].Headers = attempts, map[string]string{admission.HeaderBackoff: "1ms"}
	}
	r.enqueue(jobs...)
	sent := 20
	r.await("the end of the evil jobs", func() bool {
		if int64(sent) == victim.Load() && evil.Load() >= int64(4*(sent-20)) { // Four of five calls fail.
			r.enqueue(ofTenant("victim", sent, 5)...)
			sent += 5
		}
		return evil.Load() == evilJobs*attempts
	})
	r.await("the victim's last", func() bool { return victim.Load() == int64(sent) })
	state, err := r.store.Breaker(t.Context(), "pay")
	if err != nil || state.State != breaker.Closed || state.Trips != 0 {
		t.Errorf("got %+v, %v", state, err)
	}
	if causes := r.causes(); causes != "" {
		t.Errorf("the breaker of all changed: %s", causes)
	}
	for i, w := range ran {
		if log := w.logs.String(); strings.Contains(log, "its jobs are left to others") {
			t.Errorf("worker %d takes itself for the culprit: %s", i, log)
		}
	}
}

// TestATimeOutOfAJobsOwnSaysNothing: what the job gives itself is less than a call may take, so that it ends is no news of the
// downstream; and one that gives itself as much as any call may take is.
func TestATimeOutOfAJobsOwnSaysNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	config := worker.Config{
		Concurrency: 4, Backoff: quick, CallTimeout: 60 * time.Millisecond,
		Breaker: breaker.Config{SlowCallDuration: time.Hour, FailureThreshold: 100, MinCalls: 100},
	}
	var calls atomic.Int64
	r.runWithTimers(r.store, config, on("call", func(ctx context.Context, _ worker.Job[[]byte]) error {
		calls.Add(1)
		<-ctx.Done()
		return errors.New("read: connection timed out") // What a client makes of its ctx is not always the ctx's error.
	}))
	jobs := ofTenant("evil", 0, 12)
	for i := range jobs {
		jobs[i].MaxAttempts, jobs[i].Timeout = 2, time.Millisecond
	}
	patient := ofTenant("patient", 0, 1)
	patient[0].MaxAttempts, patient[0].Timeout = 1, 60*time.Millisecond
	r.enqueue(append(jobs, patient...)...)
	r.await("all attempts", func() bool { return calls.Load() == 2*12+1 })
	r.idle()
	r.await("the report", func() bool {
		state, err := r.store.Breaker(t.Context(), "pay")
		return err == nil && state.Life.Calls > 0
	})
	state, err := r.store.Breaker(t.Context(), "pay")
	if err != nil || state.Life.Calls != 1 || state.Life.Failures != 1 {
		t.Errorf("got %+v, %v", state, err)
	}
	if len(state.Errors) != 1 || state.Errors[0].Text != "cut after 60ms by the time-out of the job: read: connection timed out" || state.Errors[0].Count != 1 {
		t.Errorf("errors %+v", state.Errors)
	}
}
