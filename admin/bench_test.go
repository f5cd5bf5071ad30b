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

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// pace is how many calls a second the benchmark makes, whatever the answers take: a late call counts from when it was due.
const pace = 5000

// BenchmarkCheckAtAPace asks for tokens of 1,000 tenants' scopes over loopback.
func BenchmarkCheckAtAPace(b *testing.B) {
	p := newPlant(b, nil)
	unlimited := policy.Default()
	unlimited.Version = 1
	text, err := policy.Marshal(unlimited)
	must(b, err)
	must(b, p.store.PutPolicy(b.Context(), store.PolicyUpdate{Version: 1, Text: text, Window: policy.DefaultDedupWindow}))
	address, _ := p.listen(b.Context())
	const clients = 64
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}}
	defer client.CloseIdleConnections()
	ask := func(n int) error {
		body := fmt.Sprintf(`{"scope":"tenant-%d:mail:high"}`, n%1000)
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
}
