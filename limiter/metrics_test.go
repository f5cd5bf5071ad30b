package limiter

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
)

func TestMetricsSayHowChecksWereAnswered(t *testing.T) {
	t.Parallel()
	v, proxy, registry := newVirtual(), redistest.NewProxy(t, redistest.Shared(t).Addr()), prometheus.NewPedanticRegistry()
	client := proxy.Client(t)
	client.AddHook(hook{v})
	day := admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 1}
	l := start(t, open(t, client), Config{
		Policy: limited(admission.PerSecond(1000, 1000), day), Timeout: patient, Metrics: registry, OutageAt: map[admission.Scope]Outage{admission.Global: OutageOpen, "acme": OutageClosed},
	})
	l.clock.set = &v.process
	got := map[Source]int{}
	count := func(tenant string) {
		v := ask(t, l, Request{Tenant: tenant})
		l.line.flying.Wait()
		got[v.Source]++
	}
	for range 3 { // Granted, denied, and known to be.
		count("acme")
	}
	for range 200 {
		v.pass(time.Millisecond)
		count("")
	}
	want := fmt.Sprintf(`
# HELP headgate_limiter_checks_total Checks by source (tokens leased, exact by Redis, a cached denial) and result.
# TYPE headgate_limiter_checks_total counter
headgate_limiter_checks_total{result="admitted",source="exact"} %d
headgate_limiter_checks_total{result="admitted",source="leased"} %d
headgate_limiter_checks_total{result="refused",source="cached"} 1
headgate_limiter_checks_total{result="refused",source="exact"} 1
`, got[Exact]-1, got[Leased])
	check(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "headgate_limiter_checks_total"))
	if got[Cached] != 1 || got[Leased] == 0 {
		t.Fatalf("%v", got)
	}
	l.ways.scopes.Range(func(_ admission.Scope, s *scope) bool { s.count(l.clock.now()); return true })
	held := heldOf(l)
	bound, err := l.Guarantee(t.Context(), admission.Global)
	check(t, err)
	checkGauges(t, registry, map[string]float64{
		"held_tokens global": float64(held), "held_tokens tenant": 0,
		"guarantee_burst_tokens global": float64(bound.Burst), "guarantee_burst_tokens tenant": 1,
		"guarantee_tokens_per_second global": float64(bound.Rate), "guarantee_tokens_per_second tenant": float64(day.Rate()),
		"guarantee_leased_tokens global": float64(bound.Leased), "guarantee_leased_tokens tenant": 0,
	})
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	check(t, l.Close(t.Context()))
	if returned := testutil.ToFloat64(l.counts.returned); held == 0 || returned != float64(held) || testutil.ToFloat64(l.counts.returns) != 1 {
		t.Errorf("%g tokens counted as given back of %d", returned, held)
	}
}

// checkGauges compares all gauges, by name and level.
func checkGauges(t *testing.T, registry *prometheus.Registry, want map[string]float64) {
	t.Helper()
	families, err := registry.Gather()
	check(t, err)
	got := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if metric.GetGauge() != nil {
				got[strings.TrimPrefix(family.GetName(), "headgate_limiter_")+" "+metric.GetLabel()[0].GetValue()] = metric.GetGauge().GetValue()
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}

// TestBlindAnswersAreCountedByTheModeThatDecided: the one that refuses, else the one that lets the most through.
func TestBlindAnswersAreCountedByTheModeThatDecided(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	limit := admission.PerSecond(10, 100)
	l := start(t, open(t, proxy.Client(t)), Config{
		Policy: limited(limit, limit), OutageAt: map[admission.Scope]Outage{admission.Global: OutageOpen, "acme": OutageClosed},
	})
	cut(t, nil, proxy)
	for range 3 {
		ask(t, l, Request{})
		ask(t, l, Request{Tenant: "acme"})
	}
	for mode, admitted := range map[Outage]bool{OutageOpen: true, OutageClosed: false} {
		if n := testutil.ToFloat64(l.counts.blind.WithLabelValues(string(mode), resultOf(admitted))); n != 3 {
			t.Errorf("%g blind checks %s by mode %s, want 3", n, resultOf(admitted), mode)
		}
	}
	if series := testutil.CollectAndCount(l.counts.blind); series != 2 {
		t.Errorf("%d series of two modes", series)
	}
}

// TestMetricsStaySmall: with thousands of scopes.
func TestMetricsStaySmall(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	p := policy.Unlimited()
	p.Tiers = map[string]policy.Tier{policy.StandardTier: {Limit: admission.PerSecond(10, 10)}}
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Policy: &p, Timeout: patient, Metrics: registry})
	ask(t, l, Request{Tenant: "acme"})
	few, err := testutil.GatherAndCount(registry)
	check(t, err)
	for i := range 5000 {
		_, err := l.ways.open(l.clock.now(), route{tenant: fmt.Sprintf("tenant-%d", i)}, l.policy.Load())
		check(t, err)
	}
	if many, err := testutil.GatherAndCount(registry); err != nil || many != few || l.ways.scopes.Size() != 5001 {
		t.Errorf("%d series with 5000 tenants, %d with one, %v", many, few, err)
	}
}
