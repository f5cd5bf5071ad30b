package peers

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-chi/httprate"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/goredisstore.v9"
	ulule "github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/httplimit"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
)

// middleware is what is measured: it lets every request pass, and sends the headers that it has.
type middleware = func(http.Handler) http.Handler

// clientField has the key by which clients are told apart.
const clientField = "X-Api-Key"

func keyOf(r *http.Request) string { return r.Header.Get(clientField) }

// middlewares are those of limits that processes share through a Redis, and httprate's, which counts in the process.
var middlewares = []struct {
	name string
	open func(*testing.B) middleware
}{{"headgate", newMiddleware}, {"ulule", newUlule}, {"throttled", newThrottled}, {"httprate-local", newHTTPRate}}

func newMiddleware(b *testing.B) middleware {
	b.Helper()
	store := openHeadgate(b, redistest.Start(b, redistest.Options{})).(*headgateQueue).store
	limits := policy.Unlimited()
	limits.Global = admission.PerSecond(100_000_000)
	limits.Tiers[policy.StandardTier] = policy.Tier{Limit: admission.PerSecond(1_000_000)}
	l, err := limiter.New(store, limiter.Config{Policy: &limits, Timeout: 5 * time.Second})
	check(b, err)
	b.Cleanup(func() { check(b, l.Close(context.WithoutCancel(b.Context()))) })
	m, err := httplimit.New(l, httplimit.Config{Tenant: httplimit.FromHeader(clientField)})
	check(b, err)
	return m.Wrap
}

// wideClient is one of a Redis of its own, with connections enough.
func wideClient(b *testing.B) *redis.Client {
	b.Helper()
	options := redistest.Start(b, redistest.Options{}).Options()
	options.PoolSize = 100
	return newClient(b, options)
}

func newUlule(b *testing.B) middleware {
	b.Helper()
	store, err := ululeredis.NewStore(wideClient(b))
	check(b, err)
	return stdlib.NewMiddleware(ulule.New(store, ulule.Rate{Period: time.Second, Limit: 1_000_000}), stdlib.WithKeyGetter(keyOf)).Handler
}

func newThrottled(b *testing.B) middleware {
	b.Helper()
	store, err := goredisstore.NewCtx(wideClient(b), "")
	check(b, err)
	rate, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{MaxRate: throttled.PerSec(1_000_000), MaxBurst: 1_000_000})
	check(b, err)
	return (&throttled.HTTPRateLimiterCtx{RateLimiter: rate, VaryBy: &throttled.VaryBy{Headers: []string{clientField}}}).RateLimit
}

func newHTTPRate(*testing.B) middleware {
	return httprate.LimitBy(1_000_000, time.Second, func(r *http.Request) (string, error) { return keyOf(r), nil })
}

// BenchmarkHTTP: what a middleware adds to requests of 100 clients, 10,000 a second, whose handler does nothing. Those that get an error
// (throttled gives a key up after ten tries), or are not sent since 1,000 are under way, are counted and not timed.
func BenchmarkHTTP(b *testing.B) {
	for _, row := range middlewares {
		b.Run(row.name, func(b *testing.B) {
			h := row.open(b)(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			for b.Loop() {
				paced(b, h, time.Second) // Until connections are open, and leases.
				took := paced(b, h, 2*time.Second)
				b.ReportMetric(1e6*took[len(took)/2], "p50-us")
				b.ReportMetric(1e6*took[len(took)*99/100], "p99-us")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// paced sends ten requests each millisecond, whatever becomes of those before, and returns what each took, in seconds, in order.
func paced(b *testing.B, h http.Handler, span time.Duration) []float64 {
	b.Helper()
	const each, most = 10, 1000
	var mu sync.Mutex
	var took []float64
	var sent sync.WaitGroup
	var underWay, unserved atomic.Int64
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	begin, n := time.Now(), 0
	for due := 0; due < int(span/time.Millisecond)*each; {
		<-ticks.C
		due = int(time.Since(begin)/time.Millisecond) * each // A tick may be late; none is left out.
		for ; n < due; n++ {
			if underWay.Load() >= most {
				unserved.Add(1)
				continue
			}
			r := httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/", http.NoBody)
			r.Header.Set(clientField, fmt.Sprintf("client-%d", n%100))
			underWay.Add(1)
			sent.Go(func() {
				defer underWay.Add(-1)
				w := httptest.NewRecorder()
				asked := time.Now()
				h.ServeHTTP(w, r)
				passed := time.Since(asked).Seconds()
				if w.Code != http.StatusOK {
					unserved.Add(1)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, passed)
			})
		}
	}
	sent.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(unserved.Load())/float64(n), "unserved/op")
	return took
}
