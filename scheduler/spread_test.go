package scheduler_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestEachPartitionHasTimersAndThePolicyInForce lets a job fall due in each partition, and plays an edit of the policy that died
// before it reached the last.
func TestEachPartitionHasTimersAndThePolicyInForce(t *testing.T) {
	t.Parallel()
	client := redistest.Shared(t).Client(t)
	s, err := redisstore.Open(t.Context(), client, redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 3})
	if err != nil {
		t.Fatal(err)
	}
	benches := make([]*bench, 0, 3)
	for _, part := range s.Partitions() {
		b := newBench(t, part)
		b.admit("a")
		lease, _ := b.read()
		b.finish(lease, store.Release, 50*time.Millisecond)
		benches = append(benches, b)
	}
	if err := s.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute, Edit: "edit"}); err != nil {
		t.Fatal(err)
	}
	last := redisstore.KeysOf(s.Partitions()[2]).State()
	if err := client.HSet(t.Context(), last, "pv", 0, "pe", "").Err(); err != nil {
		t.Fatal(err)
	}
	run(t, s, scheduler.Config{})
	for i, b := range benches {
		await(t, "a job to fall due", func() bool {
			lease, ok := b.read()
			return ok && lease.Job.ID == "a"
		})
		if c, err := s.Partitions()[i].Census(t.Context()); err != nil || c.Later != 0 || c.Ready != 1 {
			t.Errorf("partition %d: %+v, %v", i, c, err)
		}
	}
	await(t, "the policy to reach the last partition", func() bool {
		return client.HGet(t.Context(), last, "pv").Val() == "1"
	})
}
