package admin_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/limiter"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// pace is how many calls a second the benchmark makes, whatever the answers take: a late call counts from when it was due.
const pace = 5000

// BenchmarkCheckAtAPace asks for tokens of tenants' scopes over loopback, by a call of Redis each and by leases. Of 1,000 tenants each makes
// 5 checks a second, too few for a lease; of 20 each makes 250.
func BenchmarkCheckAtAPace(b *testing.B) {
	for _, tenants := range []int{20, 1000} {
		b.Run(fmt.Sprintf("redis/%d", tenants), func(b *testing.B) { checkAtAPace(b, tenants, func(c *admin.Config) { c.Limiter = nil }) })
		b.Run(fmt.Sprintf("leased/%d", tenants), func(b *testing.B) { checkAtAPace(b, tenants, nil) })
	}
}

func checkAtAPace(b *testing.B, tenants int, change func(*admin.Config)) {
	b.Helper()
	p := newPlant(b, change)
	unlimited := policy.Default()
	unlimited.Version = 1
	unlimited.Tiers = map[string]policy.Tier{policy.StandardTier: {Limit: admission.PerSecond(1000)}}
	text, err := policy.Marshal(unlimited)
	must(b, err)
	must(b, p.store.PutPolicy(b.Context(), store.PolicyUpdate{Version: 1, Text: text, Window: policy.DefaultDedupWindow}))
	address, _ := p.listen(b.Context())
	const clients = 64
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	ask := func(n int) error {
		body := fmt.Sprintf(`{"scope":"tenant-%d:mail:high"}`, n%tenants)
		r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://"+address+"/api/v1/rate-limit/check", strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", p.keys["operator"])
		r.Header.Set("Content-Type", "application/json")
		response, err := client.Do(r)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d", response.StatusCode)
		}
		return err
	}
	var all sync.WaitGroup
	var next atomic.Int64
	b.ResetTimer()
	took := make([]time.Duration, b.N)
	began := time.Now()
	for range clients {
		all.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= b.N {
					return
				}
				due := began.Add(time.Duration(n) * time.Second / pace)
				<-time.After(time.Until(due))
				if err := ask(n); err != nil {
					b.Error(err)
					return
				}
				took[n] = time.Since(due)
			}
		})
	}
	all.Wait()
	b.StopTimer()
	slices.Sort(took)
	for _, percent := range []int{50, 95, 99} {
		b.ReportMetric(float64(took[(b.N-1)*percent/100].Microseconds())/1e3, fmt.Sprintf("p%d-ms", percent))
	}
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "calls/s")
	local, answered := uint64(0), uint64(0)
	for _, c := range p.limits.Stats().Checks {
		answered += c.N
		if c.Source == limiter.Leased || c.Source == limiter.Cached {
			local += c.N
		}
	}
	b.ReportMetric(100*float64(local)/float64(max(answered, 1)), "%local")
}
