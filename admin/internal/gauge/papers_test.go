package gauge

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/store"
)

// TestThePapersNamesAreExported: what waits by queue and in all, what runs under which cap, changes of the policy, and what decisions took.
func TestThePapersNamesAreExported(t *testing.T) {
	t.Parallel()
	s, registry := newStore(t), prometheus.NewPedanticRegistry()
	requests, err := Register(registry, s)
	must(t, err)
	admit(t, s, func(n int) string { return []string{"mail", "sms"}[n%2] }, 2, 5)
	caps := []store.Cap{{Gate: store.DownstreamGate("smtp"), Limit: 7}}
	for n := range MaxDownstreams {
		caps = append(caps, store.Cap{Gate: store.DownstreamGate(fmt.Sprint("zz", n)), Limit: 1})
	}
	must(t, s.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte(`{"version":1}`), Window: time.Minute, Caps: caps}))
	requests.Took(3*time.Millisecond, 0)
	requests.Took(3*time.Millisecond, 2*time.Second)
	requests.Took(3*time.Millisecond, -1)
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP rate_limit_config_changes_total Changes of the policy: its version.
# TYPE rate_limit_config_changes_total counter
rate_limit_config_changes_total 1
# HELP system_queue_depth Jobs that wait or are ready, of all queues.
# TYPE system_queue_depth gauge
system_queue_depth 5
# HELP throttle_queued_requests Jobs that wait in the lanes of a queue.
# TYPE throttle_queued_requests gauge
throttle_queued_requests{queue_id="mail"} 3
throttle_queued_requests{queue_id="sms"} 2
`), "rate_limit_config_changes_total", "system_queue_depth", "throttle_queued_requests"))
	families, err := registry.Gather()
	must(t, err)
	limits, seen := map[string]float64{}, map[string]bool{}
	for _, family := range families {
		seen[family.GetName()] = true
		for _, m := range family.GetMetric() {
			switch family.GetName() {
			case "concurrent_limit":
				limits[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			case "rate_limit_decision_duration_seconds":
				if n := m.GetHistogram().GetSampleCount(); n != 3 {
					t.Errorf("%d decisions took time", n)
				}
			case "rate_limit_wait_time_seconds":
				if h := m.GetHistogram(); h.GetSampleCount() != 2 || h.GetSampleSum() != 2 {
					t.Errorf("%d waits of %g s in all", h.GetSampleCount(), h.GetSampleSum())
				}
			case "rate_limit_redis_connections":
				if n := m.GetGauge().GetValue(); n < 1 {
					t.Errorf("%g connections", n)
				}
			}
		}
	}
	if limits["smtp"] != 7 || limits[Other] != 1 || len(limits) != MaxDownstreams+1 {
		t.Errorf("%d caps, smtp %g, others %g", len(limits), limits["smtp"], limits[Other])
	}
	for _, name := range []string{"concurrent_requests", "rate_limit_active_buckets"} {
		if !seen[name] {
			t.Errorf("%s is not there", name)
		}
	}
}
