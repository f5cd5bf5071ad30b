package scheduler_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/scheduler"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// TestALateRenewalForgetsNothing: one answer in three comes so late that the timer lease is over for a moment, which nobody else has meanwhile. A trigger whose value
// has been beyond its bound for long does not begin to look anew each time.
func TestALateRenewalForgetsNothing(t *testing.T) {
	t.Parallel()
	server, config := redistest.Shared(t), redisstore.Config{Prefix: redistest.Prefix(t)}
	proxy := redistest.NewProxy(t, server.Addr())
	var open [2]store.Deployment
	for i, client := range []func() (store.Deployment, error){
		func() (store.Deployment, error) { return redisstore.Open(t.Context(), server.Client(t), config) },
		func() (store.Deployment, error) { return redisstore.Open(t.Context(), proxy.Client(t), config) },
	} {
		var err error
		if open[i], err = client(); err != nil {
			t.Fatal(err)
		}
	}
	b := triggerBenchOn(t, open[0])
	stop := deep(policy.SuspendQueue, "queue mail")
	stop.When.For = 8 * time.Second
	b.put(map[string]policy.Trigger{"stop": stop}, nil)
	fill(t, b.store, 20)
	renewed := 0
	proxy.Decide(func(c redistest.Command) (do redistest.Action) {
		if c.IsScript() && strings.HasSuffix(c.Args[0], "_promote") {
			if renewed++; renewed%3 == 0 {
				do.Late = 700 * time.Millisecond
			}
		}
		return do
	})
	run(t, open[1], scheduler.Config{})
	await(t, "the trigger to act", func() bool {
		names, _ := b.acting()
		return slices.Contains(names, "stop")
	})
}
