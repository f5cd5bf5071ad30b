package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// startOrder runs a backlog of two queues with one slot and returns the queues in the order of starts.
func startOrder(t *testing.T, strict bool) string {
	t.Helper()
	r := newRig(t)
	const each = 24
	for i := range each {
		for _, queue := range []string{"b", "a"} {
			j := job("send", fmt.Sprint(queue, i))
			j.Queue = queue
			r.enqueue(j)
		}
	}
	config := worker.Config{Concurrency: 1, Strict: strict, Queues: []store.QueueWeight{{Queue: "a", Weight: 3}, {Queue: "b", Weight: 1}}}
	a := r.run(r.store, config, on("send", nothing))
	r.idle()
	r.await("the starts", func() bool { return len(a.starts()) == 2*each })
	var order strings.Builder
	for _, e := range a.starts() {
		order.WriteString(e.Queue)
	}
	return order.String()
}

func TestQueuesAreServedByWeight(t *testing.T) {
	t.Parallel()
	order := startOrder(t, false)
	if want := strings.Repeat("aaab", 8) + strings.Repeat("b", 16); order != want {
		t.Errorf("got  %s\nwant %s", order, want)
	}
}

func TestQueuesAreServedInStrictOrder(t *testing.T) {
	t.Parallel()
	order := startOrder(t, true)
	if want := strings.Repeat("a", 24) + strings.Repeat("b", 24); order != want {
		t.Errorf("got  %s\nwant %s", order, want)
	}
}

func TestSeveralWorkersRunEachJobOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var runs tally
	workers := make([]*running, 4)
	for i := range workers {
		workers[i] = r.runWithTimers(r.store, worker.Config{Concurrency: 8, Backoff: quick}, on("send", func(_ context.Context, job worker.Job[[]byte]) error {
			runs.add(job.ID)
			return nil
		}))
	}
	const jobs = 2000
	for from := 0; from < jobs; from += 500 {
		batch := make([]admission.Job, 500)
		for i := range batch {
			batch[i] = job("send", fmt.Sprint("job-", from+i))
			batch[i].Tenant = fmt.Sprint("tenant-", i%7)
			batch[i].Priority = admission.DefaultClasses()[i%3].Name
		}
		r.enqueue(batch...)
	}
	if c := r.idle(); c.Left["completed"] != jobs {
		t.Errorf("got %+v", c)
	}
	if bad := runs.repeated(jobs); bad != "" {
		t.Errorf("ran: %s", bad)
	}
	for _, a := range workers {
		a.stop() // All at once: each takes up to a second.
	}
}

func TestWithoutAnySchedulerHeartbeatsRunTimers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.run(r.store, worker.Config{Lease: 3 * time.Second, Backoff: quick}, on("send", func(_ context.Context, job worker.Job[[]byte]) error {
		if job.Attempt == 1 {
			return errors.New("not yet")
		}
		return nil
	}))
	r.enqueue(job("send", "a"))
	r.idle()
	r.await("the events", func() bool { return a.said("a") == "retried,completed" })
}

// TestARetryRunsWithinATenthOfASecondOfBeingDue tries until one does, for a minute: what is late by design is late every
// time, and the machine may be late too.
func TestARetryRunsWithinATenthOfASecondOfBeingDue(t *testing.T) {
	r := newRig(t)
	const backoff, punctual = 200 * time.Millisecond, 100 * time.Millisecond
	best, rounds := time.Hour, 0
	done := make(chan struct{})
	var failed time.Time
	end := time.Now().Add(patience)
	config := worker.Config{Concurrency: 1, Backoff: func(int) time.Duration { return backoff }}
	r.runWithTimers(r.store, config, on("send", func(_ context.Context, job worker.Job[[]byte]) error {
		if job.Attempt > 1 {
			late := time.Since(failed) - backoff
			if late < 0 {
				t.Errorf("the retry ran %s early", -late)
			}
			best = min(best, late)
		}
		failed, rounds = time.Now(), job.Attempt
		if best <= punctual || failed.After(end) {
			close(done)
			return nil
		}
		return errDown
	}))
	j := job("send", "a")
	j.MaxAttempts = admission.MaxAttemptsLimit
	allowed := policy.Unlimited()
	allowed.Queues = map[string]policy.Queue{"mail": {MostAttempts: admission.MaxAttemptsLimit}}
	var err error
	if r.producer, err = producer.New(r.store, producer.Config{Policy: &allowed}); err != nil {
		t.Fatal(err)
	}
	r.enqueue(j)
	<-done
	t.Logf("late by %s at best", best)
	if best > punctual {
		t.Errorf("of %d retries the best ran %s after it was due", rounds, best)
	}
}

func TestAnIdleWorkerSendsLessThanFiveCommandsASecond(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	proxy := redistest.NewProxy(t, r.server.Addr())
	r.runWithTimers(r.open(proxy.Client(t)), worker.Config{}, on("send", nothing))
	settled := time.NewTimer(time.Second)
	defer settled.Stop()
	<-settled.C
	before, began := proxy.Commands(), time.Now()
	idle := time.NewTimer(6 * time.Second)
	defer idle.Stop()
	<-idle.C
	sent, seconds := proxy.Commands()-before, time.Since(began).Seconds()
	t.Logf("%d commands in %.1f s", sent, seconds)
	if float64(sent) >= 5*seconds {
		t.Errorf("an idle worker sent %d commands in %.1f s", sent, seconds)
	}
}

func TestABadConfigNamesEveryField(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	_, err := worker.New(r.store, worker.Config{})
	if !errors.Is(err, admission.ErrInvalid) || err.Error() != "configure worker: invalid Queues 0 queues: allowed is 1 to 64 queues" {
		t.Errorf("got %v", err)
	}
	_, err = worker.New(r.store, worker.Config{
		Queues:      []store.QueueWeight{{Queue: "a", Weight: -1}, {Queue: "b:c"}, {Queue: "a"}},
		Concurrency: -1, Lease: time.Hour, DrainTimeout: -1, DefaultTimeout: time.Microsecond,
		Breaker:  breaker.Config{FailureRate: 2},
		Breakers: map[string]breaker.Config{"pay": {MaxProbes: -1}},
	})
	want := `configure worker: invalid Queues[0].Weight -1: allowed is 1 to 1000
invalid Queues[1] "b:c": allowed is 1-128 bytes of [A-Za-z0-9._@/-]
invalid Queues[2] "a": allowed is a queue that is named once
invalid Concurrency -1: allowed is 1 to 10000 slots
invalid Lease 1h0m0s: allowed is 200ms to 10m
invalid DrainTimeout -1ns: allowed is above 0, up to 1h
invalid DefaultTimeout 1µs: allowed is 1ms to 24h
breaker: invalid FailureRate 2: allowed is above 0, at most 1
breaker of downstream pay: invalid MaxProbes -1: allowed is 1 to 100`
	if !errors.Is(err, admission.ErrInvalid) || err.Error() != want {
		t.Errorf("got %v", err)
	}
}
