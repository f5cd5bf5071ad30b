package telemetry

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestTheBusiestTenantsHaveNames: in each period those of the one before, whoever they are; never more than there may
// be, and no counter goes back while it has its name, that of the others never.
func TestTheBusiestTenantsHaveNames(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		most := rapid.IntRange(1, 4).Draw(r, "most")
		all, now := newTenants(most), time.Unix(1e9, 0)
		for range rapid.IntRange(1, 6).Draw(r, "periods") {
			counts := rapid.SliceOfN(rapid.IntRange(0, 5), 8, 8).Draw(r, "requests")
			for tenant, n := range counts {
				for range n {
					all.count(fmt.Sprintf("t%d", tenant), rapid.Bool().Draw(r, "refused"), now)
				}
			}
			before := totals(all)
			now = now.Add(tenantsPeriod + 1)
			all.count("next", true, now)
			busiest := []int{}
			for tenant, n := range counts {
				if n > 0 {
					busiest = append(busiest, tenant)
				}
			}
			slices.SortStableFunc(busiest, func(a, b int) int { return counts[b] - counts[a] })
			want := []string{}
			for _, tenant := range busiest[:min(most, len(busiest))] {
				want = append(want, fmt.Sprintf("t%d", tenant))
			}
			named := []string{}
			for tenant := range all.mu.named {
				if strings.HasPrefix(tenant, "t") {
					named = append(named, tenant)
				}
			}
			slices.Sort(want)
			slices.Sort(named)
			// "next" opens the period, and may have been among the busiest of the last one by its single request.
			if len(all.mu.named) > most || len(named) < len(want)-1 || !subset(named, want) {
				r.Fatalf("%v have names, want %v", named, want)
			}
			for tenant, count := range totals(all) {
				if count < before[tenant] {
					r.Fatalf("the counter of %s goes from %g to %g", tenant, before[tenant], count)
				}
			}
		}
	})
}

// totals returns all counters.
func totals(all *tenants) map[string]float64 {
	counts := map[string]float64{other: all.mu.rest.admitted + all.mu.rest.refused}
	for tenant, of := range all.mu.named {
		counts[tenant] = of.admitted + of.refused
	}
	return counts
}

func subset(some, of []string) bool {
	return !slices.ContainsFunc(some, func(one string) bool { return !slices.Contains(of, one) })
}

func TestTheTenantsOfAPeriodAreBounded(t *testing.T) {
	t.Parallel()
	all, now := newTenants(1), time.Unix(1e9, 0)
	for n := range 3 * maxSeen {
		all.count(fmt.Sprintf("t%d", n), false, now)
	}
	if len(all.mu.seen) != maxSeen || all.mu.rest.admitted != 3*maxSeen-1 {
		t.Errorf("%d are remembered, %g counted together", len(all.mu.seen), all.mu.rest.admitted)
	}
}
