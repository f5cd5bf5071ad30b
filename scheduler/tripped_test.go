package scheduler_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestATripThatRedisDidNotHearOfIsHeeded: where the first word of it is lost, or its answer is, the limit is half of what it was all the same, and not less.
func TestATripThatRedisDidNotHearOfIsHeeded(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]redistest.Cut{"lost before": redistest.CutBefore, "lost after": redistest.CutAfter} {
		t.Run(name, func(t *testing.T) {
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
			part := partsOn(t, s, map[string]policy.Adaptive{"all-in": {Of: "global", Min: 10, Interval: time.Minute, Controller: policy.Health, DependsOn: []string{"smtp"}}})
			var lost atomic.Bool
			proxy.Decide(func(c redistest.Command) (do redistest.Action) {
				if c.IsScript() && slices.Contains(c.Args, "tripped") && lost.CompareAndSwap(false, true) {
					do.Cut = cut
				}
				return do
			})
			run(t, behind, scheduler.Config{TimerLease: time.Minute})
			global := store.GlobalLimitGate
			await(t, "the first look", func() bool { return !part(global).At.IsZero() })
			if _, err := s.ForceBreaker(t.Context(), "smtp", breaker.Open, 0, store.Intervention{}); err != nil {
				t.Fatal(err)
			}
			await(t, "the word of it to be lost", lost.Load)
			await(t, "half", func() bool { return part(global).Limit <= 500 })
			for range 30 { // Three looks and more.
				time.Sleep(50 * time.Millisecond) //nolint:forbidigo // the pace of the test's own looks
				if a := part(global); a.Limit != 500 {
					t.Fatalf("not half: %+v", a)
				}
			}
		})
	}
}
