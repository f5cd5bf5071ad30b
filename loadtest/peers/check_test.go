package peers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// BenchmarkCheck: exact checks that pass, of 1,000 tenants, without a job: four levels here, one with redis_rate.
func BenchmarkCheck(b *testing.B) {
	for _, callers := range []int{1, 64} {
		for _, row := range []struct {
			name string
			open func(*testing.B) func(ctx context.Context, tenant string) error
		}{{"headgate", newChecks}, {"redis_rate", newRates}} {
			b.Run(fmt.Sprintf("callers=%d/%s", callers, row.name), func(b *testing.B) {
				for b.Loop() {
					checks(b, row.open(b), callers, 20_000*min(callers, 4))
				}
			})
		}
	}
}

func newChecks(b *testing.B) func(ctx context.Context, tenant string) error {
	b.Helper()
	return checksOf(b, openHeadgate(b, redistest.Start(b, redistest.Options{})).(*headgateQueue).store)
}

// checksOf returns a check of four levels of a deployment.
func checksOf(b *testing.B, s store.Deployment) func(ctx context.Context, tenant string) error {
	b.Helper()
	plenty := admission.PerSecond(100_000_000)
	limits := policy.Unlimited()
	limits.Global = plenty
	limits.Tiers[policy.StandardTier] = policy.Tier{Limit: plenty}
	limits.QueueLimits, limits.PriorityLimits = map[admission.Scope]admission.Limit{}, map[admission.Scope]admission.Limit{}
	for n := range 1000 {
		queue := admission.Scope(fmt.Sprintf("tenant-%d:bench", n))
		limits.QueueLimits[queue], limits.PriorityLimits[queue+":high"] = plenty, plenty
	}
	l, err := limiter.New(s, limiter.Config{Policy: &limits, Exact: true, Timeout: 5 * time.Second})
	check(b, err)
	b.Cleanup(func() { check(b, l.Close(context.WithoutCancel(b.Context()))) })
	return func(ctx context.Context, tenant string) error {
		_, err := l.Check(ctx, limiter.Request{Tenant: tenant, Queue: "bench", Class: admission.High, Cost: 1})
		return err
	}
}

func newRates(b *testing.B) func(ctx context.Context, tenant string) error {
	b.Helper()
	options := redistest.Start(b, redistest.Options{}).Options()
	options.PoolSize = 100
	rates, limit := redis_rate.NewLimiter(newClient(b, options)), redis_rate.PerSecond(100_000_000)
	return func(ctx context.Context, tenant string) error {
		_, err := rates.Allow(ctx, tenant, limit)
		return err
	}
}

// checks reports how many checks a second callers get, and how long one takes.
func checks(b *testing.B, ask func(ctx context.Context, tenant string) error, callers, n int) {
	b.Helper()
	took := make([][]float64, callers)
	var wg sync.WaitGroup
	begin := time.Now()
	for k := range callers {
		wg.Go(func() {
			for i := k; i < n; i += callers {
				asked := time.Now()
				if err := ask(b.Context(), tenantOf(i)); err != nil {
					b.Error(err)
					return
				}
				took[k] = append(took[k], time.Since(asked).Seconds())
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(n)/time.Since(begin).Seconds(), "checks/s")
	all := slices.Sorted(slices.Values(slices.Concat(took...)))
	b.ReportMetric(1000*all[len(all)/2], "p50-ms")
	b.ReportMetric(0, "ns/op")
}
