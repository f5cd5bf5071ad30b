package telemetry

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// tenantsPeriod is how long a tenant that gave way to busier ones waits to be among them again.
	tenantsPeriod = time.Minute
	// maxSeen bounds the tenants that are counted in a period; later ones of it wait for the next.
	maxSeen = 10_000
)

var tenantsDesc = prometheus.NewDesc("headgate_tenant_requests_total",
	"Jobs that this process asked to enqueue, admitted (duplicates too) and refused, for its busiest tenants and all others.", []string{"tenant", "result"}, nil)

// tenants counts requests of the busiest tenants by name. Once a period the busiest of that get the names, so a series may
// end, and one that comes back begins at zero: rates are right, while a tenant has a name. What the others asked for is
// counted together and never goes back.
type tenants struct {
	most int

	mu struct {
		sync.Mutex

		named map[string]*requests // at most `most`
		rest  requests
		seen  map[string]int // requests of this period, at most maxSeen names
		next  time.Time      // when it ends
	}
}

// requests are a tenant's.
type requests struct{ admitted, refused float64 }

func newTenants(most int) *tenants {
	t := &tenants{most: most}
	t.mu.named, t.mu.seen = map[string]*requests{}, map[string]int{}
	return t
}

// count counts one request.
func (t *tenants) count(tenant string, refused bool, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.After(t.mu.next) {
		t.renameLocked()
		t.mu.next = now.Add(tenantsPeriod)
	}
	if _, known := t.mu.seen[tenant]; known || len(t.mu.seen) < maxSeen {
		t.mu.seen[tenant]++
	}
	of := t.mu.named[tenant]
	if of == nil && len(t.mu.named) < t.most {
		of = &requests{}
		t.mu.named[tenant] = of
	}
	if of == nil {
		of = &t.mu.rest
	}
	if refused {
		of.refused++
	} else {
		of.admitted++
	}
}

// renameLocked gives the names to the busiest of the period that has ended.
func (t *tenants) renameLocked() {
	busiest := slices.SortedFunc(maps.Keys(t.mu.seen), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.mu.seen[b], t.mu.seen[a]), cmp.Compare(a, b))
	})
	named := map[string]*requests{}
	for _, tenant := range busiest[:min(t.most, len(busiest))] {
		named[tenant] = cmp.Or(t.mu.named[tenant], &requests{})
	}
	t.mu.named = named
	clear(t.mu.seen)
}

// Describe says which metric it is.
func (t *tenants) Describe(to chan<- *prometheus.Desc) { to <- tenantsDesc }

// Collect sends what was counted.
func (t *tenants) Collect(to chan<- prometheus.Metric) {
	t.mu.Lock()
	all := map[string]requests{other: t.mu.rest}
	for tenant, of := range t.mu.named {
		if tenant == other { // A tenant may have that name.
			of = &requests{of.admitted + t.mu.rest.admitted, of.refused + t.mu.rest.refused}
		}
		all[tenant] = *of
	}
	t.mu.Unlock()
	for tenant, of := range all {
		to <- prometheus.MustNewConstMetric(tenantsDesc, prometheus.CounterValue, of.admitted, tenant, "admitted")
		to <- prometheus.MustNewConstMetric(tenantsDesc, prometheus.CounterValue, of.refused, tenant, "refused")
	}
}
