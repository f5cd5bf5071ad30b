package scheduler_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestASchedulerMovesSpilledJobs: by what the policy says, there and back, whoever holds the timer lease; and it says when the second Redis is
// away, and when it is back.
func TestASchedulerMovesSpilledJobs(t *testing.T) {
	t.Parallel()
	const jobs = 30
	client, second := redistest.Shared(t).Client(t), redistest.Start(t, redistest.Options{AppendFsync: "always"})
	config := redisstore.Config{Prefix: redistest.Prefix(t)}
	alone, err := redisstore.Open(t.Context(), client, config)
	if err != nil {
		t.Fatal(err)
	}
	config.Second = second.Addr()
	s, err := redisstore.Open(t.Context(), client, config)
	if err != nil {
		t.Fatal(err)
	}
	p := policy.Unlimited()
	p.Queues = map[string]policy.Queue{"mail": {Overflow: policy.Overflow{
		Policy: policy.Spillover, MaxJobs: 2, MaxSpilled: 4, SpillTo: policy.SecondRedis,
	}}}
	if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	run(t, alone, scheduler.Config{TimerLease: handOver}) // It has the timer lease, most likely, and no second Redis.
	var told logs
	run(t, s, scheduler.Config{TimerLease: handOver, Logger: told.logger()})
	part, _ := s.Partitions()[0].(*redisstore.Partition)
	state := func() store.SpillState {
		found, err := part.SpillState(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	offer := func(n int) bool {
		j := admission.NewJob("acme", "mail", "send", fmt.Append(nil, "payload ", n))
		j.ID = strconv.Itoa(n)
		verdicts, err := part.Admit(t.Context(), 1, []store.Candidate{{Job: &j, Class: 1, Limits: &[admission.Levels]admission.Limit{}}})
		if err != nil {
			t.Fatal(err)
		}
		return verdicts[0].Err() == nil
	}
	for n := range jobs {
		await(t, "there is room", func() bool { return offer(n) })
	}
	if state().Away < jobs/2 {
		t.Fatalf("%+v", state())
	}
	second.Kill(t)
	await(t, "it says that the second redis is away", func() bool { return strings.Contains(told.String(), "spilled jobs are not moved") })
	second.Restart(t)
	await(t, "it says that it is back", func() bool { return strings.Contains(told.String(), "moved to the second redis again") })
	b := newBench(t, part)
	for n := range jobs {
		lease, ok := b.read()
		if !ok || lease.Err != nil || lease.Job.ID != strconv.Itoa(n) || string(lease.Job.Payload) != fmt.Sprint("payload ", n) {
			t.Fatalf("job %d comes as %+v, %v", n, lease.Job, lease.Err)
		}
		b.finish(lease, store.Complete, 0)
	}
	await(t, "nothing is left in the second redis", func() bool { return state().Held == 0 && state().Copies == 0 })
	if strings.Contains(told.String(), "record_gone") {
		t.Error(told.String())
	}
}
