package telemetry

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/limiter"
)

func TestLimitersStatsAreMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	err := registry.Register(limiterMetrics{func() limiter.Stats {
		return limiter.Stats{
			Calls: 1, Grants: 2, Leased: 3, Returns: 4, Returned: 5, BlindTokens: 6, Shared: 15,
			Checks: []limiter.CheckCount{{Source: limiter.Exact, Admitted: true, N: 7}, {Source: limiter.Cached, N: 8}},
			Blind:  []limiter.BlindCount{{Mode: limiter.OutageOpen, Admitted: true, N: 9}, {N: 10}},
			Levels: []limiter.LevelStats{{Level: admission.LevelTenant, Held: 11, Bound: limiter.Guarantee{Rate: 12.5, Burst: 13, Leased: 14}}},
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := `
# HELP headgate_limiter_blind_checks_total Checks to which Redis gave no answer, by the mode of the scope that decided (leased where tokens on lease did) and result.
# TYPE headgate_limiter_blind_checks_total counter
headgate_limiter_blind_checks_total{mode="leased",result="refused"} 10
headgate_limiter_blind_checks_total{mode="open",result="admitted"} 9
# HELP headgate_limiter_blind_tokens_total Cost of the checks admitted while Redis gave no answer.
# TYPE headgate_limiter_blind_tokens_total counter
headgate_limiter_blind_tokens_total 6
# HELP headgate_limiter_calls_total Calls to Redis that were answered.
# TYPE headgate_limiter_calls_total counter
headgate_limiter_calls_total 1
# HELP headgate_limiter_checks_total Checks by source (tokens leased, exact by Redis, a cached denial) and result.
# TYPE headgate_limiter_checks_total counter
headgate_limiter_checks_total{result="admitted",source="exact"} 7
headgate_limiter_checks_total{result="refused",source="cached"} 8
# HELP headgate_limiter_guarantee_burst_tokens Burst in force, the largest of the scopes of a level that were asked for.
# TYPE headgate_limiter_guarantee_burst_tokens gauge
headgate_limiter_guarantee_burst_tokens{level="tenant"} 13
# HELP headgate_limiter_guarantee_leased_tokens How much more than burst and rate a window may admit, the most of the scopes of a level that were asked for.
# TYPE headgate_limiter_guarantee_leased_tokens gauge
headgate_limiter_guarantee_leased_tokens{level="tenant"} 14
# HELP headgate_limiter_guarantee_tokens_per_second Rate in force, the largest of the scopes of a level that were asked for.
# TYPE headgate_limiter_guarantee_tokens_per_second gauge
headgate_limiter_guarantee_tokens_per_second{level="tenant"} 12.5
# HELP headgate_limiter_held_tokens Tokens on lease as each scope last asked for some, the sum of a level.
# TYPE headgate_limiter_held_tokens gauge
headgate_limiter_held_tokens{level="tenant"} 11
# HELP headgate_limiter_lease_grants_total Times that tokens of a scope were taken on lease.
# TYPE headgate_limiter_lease_grants_total counter
headgate_limiter_lease_grants_total 2
# HELP headgate_limiter_lease_returns_total Leases that were given back on closing.
# TYPE headgate_limiter_lease_returns_total counter
headgate_limiter_lease_returns_total 4
# HELP headgate_limiter_leased_tokens_total Tokens taken on lease, of all scopes.
# TYPE headgate_limiter_leased_tokens_total counter
headgate_limiter_leased_tokens_total 3
# HELP headgate_limiter_returned_tokens_total Tokens that were given back on closing, of all scopes.
# TYPE headgate_limiter_returned_tokens_total counter
headgate_limiter_returned_tokens_total 5
# HELP headgate_limiter_shared_total Checks that found no room for the bucket of a dimension's value, and were answered by the one that such values share.
# TYPE headgate_limiter_shared_total counter
headgate_limiter_shared_total 15
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}
