package scheduler_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store/redisstore"
)

// TestASlowRedisHidesNoQueue: as many queues as may be measured are, also where each word to Redis takes as long as it may under load.
func TestASlowRedisHidesNoQueue(t *testing.T) {
	t.Parallel()
	server, config := redistest.Shared(t), redisstore.Config{Prefix: redistest.Prefix(t)}
	proxy := redistest.NewProxy(t, server.Addr())
	s, err := redisstore.Open(t.Context(), server.Client(t), config)
	if err != nil {
		t.Fatal(err)
	}
	behind, err := redisstore.Open(t.Context(), proxy.Client(t), config)
	if err != nil {
		t.Fatal(err)
	}
	p := policy.Unlimited()
	p.Queues = map[string]policy.Queue{}
	for i := range policy.MaxPressured {
		p.Queues[fmt.Sprintf("queue-%03d", i)] = policy.Queue{Pressure: &policy.PressureRules{MaxDepth: 10}}
	}
	if _, err := rollout.Put(t.Context(), s, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	proxy.Decide(func(c redistest.Command) (do redistest.Action) {
		if c.IsScript() && slices.ContainsFunc(c.Args, func(arg string) bool { return arg == "depth 0 of weight 1" }) {
			do.Late = 10 * time.Millisecond
		}
		return do
	})
	run(t, behind, scheduler.Config{TimerLease: time.Minute})
	await(t, "the last of them to be measured", func() bool {
		q, err := s.Queue(t.Context(), fmt.Sprintf("queue-%03d", policy.MaxPressured-1))
		return err == nil && q.Pressure != nil && q.Pressure.Parts != ""
	})
}
