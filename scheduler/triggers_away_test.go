package scheduler_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestWhatTriggersDidStandsWhileRedisIsAway for four times as long as what nobody knows takes to end it, and the scheduler goes on with it afterwards: a look for which
// Redis was away is none.
func TestWhatTriggersDidStandsWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server, config := redistest.Shared(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: 2}
	s, err := redisstore.Open(t.Context(), server.Client(t), config)
	if err != nil {
		t.Fatal(err)
	}
	b := &triggerBench{t: t, store: s}
	b.putTwo()
	proxy := redistest.NewProxy(t, server.Addr())
	behind, err := redisstore.Open(t.Context(), proxy.Client(t), config)
	if err != nil {
		t.Fatal(err)
	}
	var away atomic.Bool
	proxy.Decide(func(redistest.Command) (do redistest.Action) {
		if away.Load() {
			do.Cut = redistest.CutBefore
		}
		return do
	})
	run(t, behind, scheduler.Config{TimerLease: time.Minute})
	fill(t, s, 20)
	await(t, "all to act", func() bool { return b.two(true) })
	noted, gone := b.until("stop"), time.Now()
	away.Store(true)
	await(t, "Redis to be away for long enough", func() bool {
		if !b.two(true) {
			t.Fatal("what triggers did ended while Redis was away")
		}
		return time.Since(gone) > 4*deep(policy.PauseJobs, "queue hook").When.For
	})
	away.Store(false)
	await(t, "the scheduler to go on with it", func() bool {
		if !b.two(true) {
			t.Fatal("what triggers did ended when Redis was back")
		}
		return b.until("stop").After(noted)
	})
	if begun, ended := b.told(store.AuditTrigger), b.told(store.AuditTriggerEnd); begun != 4 || ended != 0 {
		t.Errorf("the audit has %d that began and %d that ended, want 4 and none", begun, ended)
	}
}
