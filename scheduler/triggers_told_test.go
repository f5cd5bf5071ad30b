package scheduler_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
)

// TestATriggerLooksAtHowLongJobsHaveWaited, as workers tell: one job in ten that waited for a minute is more than one in twenty, one in thirty is not.
func TestATriggerLooksAtHowLongJobsHaveWaited(t *testing.T) {
	t.Parallel()
	b := newTriggerBench(t)
	late := deep(policy.PauseJobs, "queue hook")
	late.Metric, late.When.Above = policy.MetricWaitP95, new(30.0)
	b.put(map[string]policy.Trigger{"late": late}, nil)
	part := b.store.Partitions()[0]
	if _, err := part.Register(t.Context(), "w", store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}, 1, time.Minute); err != nil {
		t.Fatal(err)
	}
	run(t, b.store, scheduler.Config{TimerLease: time.Second})
	fill(t, b.store, 1) // So that the queue is known.
	paused := func() string { return b.heldBy(store.QueueGate("hook"), store.HeldDispatch) }
	for _, seen := range []struct {
		of   int
		want string
	}{{10, store.TriggerAuthor}, {30, ""}, {10, store.TriggerAuthor}} {
		var w load.Window
		for i := range seen.of {
			wait := time.Second
			if i == 0 {
				wait = time.Minute
			}
			w.Began(time.Now(), "mail", wait)
		}
		if _, err := part.Heartbeat(t.Context(), "w", time.Minute, load.Sample{Use: load.Unknown, Queues: w.Sum(time.Now())}.Text()); err != nil {
			t.Fatal(err)
		}
		await(t, "the trigger to follow", func() bool { return paused() == seen.want })
	}
}

// TestATriggerLooksAtWaitsForADownstream: of jobs that call it, not of others in the same queue.
func TestATriggerLooksAtWaitsForADownstream(t *testing.T) {
	t.Parallel()
	b := newTriggerBench(t)
	late := deep(policy.PauseJobs, "downstream smtp")
	late.Metric, late.MeasuredOf, late.When.Above = policy.MetricWaitP95, "", new(30.0)
	b.put(map[string]policy.Trigger{"late": late}, nil)
	part := b.store.Partitions()[0]
	if _, err := part.Register(t.Context(), "w", store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}, 1, time.Minute); err != nil {
		t.Fatal(err)
	}
	run(t, b.store, scheduler.Config{TimerLease: time.Second})
	for _, seen := range []struct{ waits, want string }{{"smtp", store.TriggerAuthor}, {"sms", ""}, {"smtp", store.TriggerAuthor}} {
		var c load.Counts
		c.Began(time.Now(), "mail", "smtp", time.Second)
		c.Began(time.Now(), "mail", seen.waits, time.Minute)
		if _, err := part.Heartbeat(t.Context(), "w", time.Minute, c.Sample(time.Now(), load.Unknown, []string{"mail"}).Text()); err != nil {
			t.Fatal(err)
		}
		await(t, "the trigger to follow", func() bool { return b.heldBy(store.DownstreamGate("smtp"), store.HeldDispatch) == seen.want })
	}
}

// TestATriggerLooksAtHowRunsOfADownstreamGo, not at those of others in the same queue.
func TestATriggerLooksAtHowRunsOfADownstreamGo(t *testing.T) {
	t.Parallel()
	b := newTriggerBench(t)
	ill := deep(policy.PauseJobs, "downstream smtp")
	ill.Metric, ill.MeasuredOf, ill.When.Above = policy.MetricErrors, "", new(.05)
	b.put(map[string]policy.Trigger{"ill": ill}, nil)
	part := b.store.Partitions()[0]
	if _, err := part.Register(t.Context(), "w", store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}, 1, time.Minute); err != nil {
		t.Fatal(err)
	}
	run(t, b.store, scheduler.Config{TimerLease: time.Second})
	fill(t, b.store, 1) // So that the queue is known.
	for _, seen := range []struct{ failing, want string }{{"smtp", store.TriggerAuthor}, {"sms", ""}, {"smtp", store.TriggerAuthor}} {
		var queues, downstreams load.Window
		for _, name := range []string{"smtp", "sms"} {
			queues.Ended(time.Now(), "mail", time.Second, name == seen.failing)
			downstreams.Ended(time.Now(), name, time.Second, name == seen.failing)
		}
		told := load.Sample{Use: load.Unknown, Queues: queues.Sum(time.Now()), Downstreams: downstreams.Sum(time.Now())}
		if _, err := part.Heartbeat(t.Context(), "w", time.Minute, told.Text()); err != nil {
			t.Fatal(err)
		}
		await(t, "the trigger to follow", func() bool { return b.heldBy(store.DownstreamGate("smtp"), store.HeldDispatch) == seen.want })
	}
	await(t, "a point of its history", func() bool {
		points, err := b.store.LoadHistory(t.Context(), load.DownstreamHistory("smtp"), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		return len(points) > 0
	})
}
