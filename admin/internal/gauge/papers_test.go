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
	for n := range 100 { // Accounts are no labels, and take the place of none.
		caps = append(caps, store.Cap{Gate: store.DownstreamGate(fmt.Sprint("shopify+shop-", n)), Limit: 1000})
	}
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
# HELP system_queue_depth Jobs of a queue that wait or are ready.
# TYPE system_queue_depth gauge
system_queue_depth{service_id="mail"} 3
system_queue_depth{service_id="sms"} 2
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

// TestSemaphoresAreExported: what they hold, of the first 200 that were heard of, and what was refused, of the others together.
func TestSemaphoresAreExported(t *testing.T) {
	t.Parallel()
	s, registry := newStore(t), prometheus.NewPedanticRegistry()
	requests, err := Register(registry, s)
	must(t, err)
	_, err = s.Acquire(t.Context(), store.Acquire{Name: "gpu", Token: "a", Permits: 3, Max: 4, Lease: time.Minute})
	must(t, err)
	requests.Acquired("gpu", 4, false)
	requests.Acquired("gpu", 4, true)
	for n := range MaxSemaphores + 9 {
		requests.Acquired(fmt.Sprint("zz", n), 1, true)
	}
	families, err := registry.Gather()
	must(t, err)
	got := map[string]map[string]float64{}
	for _, family := range families {
		got[family.GetName()] = map[string]float64{}
		for _, m := range family.GetMetric() {
			if len(m.GetLabel()) == 1 {
				got[family.GetName()][m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	held, limit, rejected := got["concurrent_requests"], got["concurrent_limit"], got["concurrent_requests_rejected_total"]
	if held["gpu"] != 3 || limit["gpu"] != 4 || rejected["gpu"] != 1 || len(limit) != MaxSemaphores {
		t.Errorf("gpu: %g of %g, %g rejected; %d names", held["gpu"], limit["gpu"], rejected["gpu"], len(limit))
	}
	if rejected[Other] != 10 || len(rejected) != MaxSemaphores+1 {
		t.Errorf("%g of others rejected, %d names", rejected[Other], len(rejected))
	}
}
