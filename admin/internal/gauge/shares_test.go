package gauge

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// divided is a store of so many partitions whose policy has some caps.
func divided(t *testing.T, partitions int, caps ...store.Cap) store.Deployment {
	t.Helper()
	s, err := redisstore.Open(t.Context(), redistest.Shared(t).Client(t), redisstore.Config{Prefix: redistest.Prefix(t), Partitions: partitions})
	must(t, err)
	must(t, s.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Caps: caps}))
	return s
}

// TestSharesOfPartitionsAreShown, of all that spans them and of nothing else.
func TestSharesOfPartitionsAreShown(t *testing.T) {
	t.Parallel()
	s, registry := divided(t, 2,
		store.Cap{Gate: store.QueueGate("mail"), Limit: 10}, store.Cap{Gate: store.DownstreamRateGate("smtp"), Rate: admission.PerSecond(8)},
		store.Cap{Gate: store.TenantGate("acme"), Limit: 10}), prometheus.NewPedanticRegistry()
	_, err := Register(registry, s)
	must(t, err)
	want := `
# HELP headgate_share_ratio Fraction that a partition has of what all divide among them: the cap of a queue (q:) or downstream (d:), the rate of a downstream (s:), the global limit if there is one (global).
# TYPE headgate_share_ratio gauge
headgate_share_ratio{bound="global",partition="0"} 0.5
headgate_share_ratio{bound="global",partition="1"} 0.5
headgate_share_ratio{bound="q:mail",partition="0"} 0.5
headgate_share_ratio{bound="q:mail",partition="1"} 0.5
headgate_share_ratio{bound="s:smtp",partition="0"} 0.5
headgate_share_ratio{bound="s:smtp",partition="1"} 0.5
`
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "headgate_share_ratio"))
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

// TestSeriesOfSharesAreBounded: bounds beyond have none, and each other has one for every partition.
func TestSeriesOfSharesAreBounded(t *testing.T) {
	t.Parallel()
	const partitions, bound = 64, MaxShares / 64
	var caps []store.Cap
	for n := range bound + 5 {
		caps = append(caps, store.Cap{Gate: store.QueueGate(fmt.Sprintf("queue-%03d", n)), Limit: partitions})
	}
	s, registry := divided(t, partitions, caps...), prometheus.NewRegistry()
	_, err := Register(registry, s)
	must(t, err)
	n, err := testutil.GatherAndCount(registry, "headgate_share_ratio")
	must(t, err)
	if n != bound*partitions {
		t.Errorf("%d series, want %d", n, bound*partitions)
	}
}
