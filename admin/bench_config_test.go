package admin_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// What BenchmarkConfig does at a time, and for how long each kind of call.
const (
	configCallers = 8
	configTime    = 3 * time.Second
)

// BenchmarkConfig measures what the design papers ask of the configuration, with tenants that each have a limit of their own: 1,000
// reads of a limit a second, 100 changes of one, and 10,000 points of metrics. Callers ask as fast as they are answered, over loopback; an
// editor that somebody else was faster than reads again, as it has to.
func BenchmarkConfig(b *testing.B) {
	for _, tenants := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint("tenants=", tenants), func(b *testing.B) {
			c := newConfigBench(b, tenants)
			for b.Loop() {
				reads, took := c.run(configTime, func(caller, n int) bool { return c.read(caller*1000 + n) })
				b.ReportMetric(reads, "reads/s")
				b.ReportMetric(took, "read-p95-ms")
				updates, took := c.run(configTime, func(caller, n int) bool { return c.update(caller*1000+n, n+1) })
				b.ReportMetric(updates, "updates/s")
				b.ReportMetric(took, "update-p95-ms")
				points, _ := c.run(configTime, func(_, _ int) bool { return c.scrape() })
				b.ReportMetric(points*float64(c.points), "points/s")
			}
		})
	}
}

// TestTheConfigurationsBenchmarkCountsWhatWasDone: each update is a version, each read an answer, and a scrape has its points.
func TestTheConfigurationsBenchmarkCountsWhatWasDone(t *testing.T) {
	t.Parallel()
	c := newConfigBench(t, 10)
	for n := range 5 {
		if !c.read(n) || !c.update(n, n+1) || !c.scrape() {
			t.Errorf("call %d was not answered", n)
		}
	}
	version, err := strconv.Unquote(c.ask(http.MethodGet, "/api/v1/policy", "", "").tag)
	must(t, err)
	if version != "6" || c.points < 20 {
		t.Errorf("version %s, %d points", version, c.points)
	}
}

// configBench is a server whose policy names tenants.
type configBench struct {
	*plant

	address string
	client  *http.Client
	tenants int
	points  int // of a scrape
	// until is when the run under way is over: an editor that others are faster than gives up then.
	until time.Time
}

func newConfigBench(tb testing.TB, tenants int) *configBench {
	tb.Helper()
	p := newPlant(tb, nil)
	server := httptest.NewServer(p.server.Handler())
	tb.Cleanup(server.Close)
	c := &configBench{plant: p, address: server.URL, tenants: tenants}
	c.client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: configCallers}}
	tb.Cleanup(c.client.CloseIdleConnections)
	named := map[string]any{}
	for n := range tenants {
		named[fmt.Sprint("t", n)] = map[string]any{"limit": map[string]any{"tokens": 100, "per": "1s", "burst": 100}, "priority_weights": map[string]int{"high": 5}}
	}
	document, err := json.Marshal(map[string]any{"tenants": named})
	must(tb, err)
	p.put("admin", ask{op: "PUT /api/v1/policy", body: string(document)})
	for n := range 50 { // Queues, of which each has its points.
		p.want(http.StatusCreated, "operator", ask{op: "POST /api/v1/jobs", body: fmt.Sprintf(`{"tenant":"t%d","queue":"q%d","type":"t"}`, n%10, n)})
	}
	for line := range strings.Lines(c.ask(http.MethodGet, "/metrics", "", "").body) {
		if !strings.HasPrefix(line, "#") {
			c.points++
		}
	}
	return c
}

// run lets callers call for some time, and returns how many calls a second were answered and the 95th percentile of what they took, in
// milliseconds.
func (c *configBench) run(lasting time.Duration, call func(caller, n int) bool) (perSecond, p95 float64) {
	c.tb.Helper()
	began := time.Now()
	c.until = began.Add(lasting)
	var mu sync.Mutex
	var took []time.Duration
	var all sync.WaitGroup
	for caller := range configCallers {
		all.Go(func() {
			for n := 0; time.Now().Before(c.until); n++ {
				from := time.Now()
				if call(caller, n) {
					mu.Lock()
					took = append(took, time.Since(from))
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	if len(took) == 0 {
		return 0, 0
	}
	return float64(len(took)) / time.Since(began).Seconds(), float64(took[(len(took)-1)*95/100].Microseconds()) / 1e3
}

func (c *configBench) path(n int) string {
	return fmt.Sprint("/api/v1/rate-limit/config/t", n%c.tenants)
}

func (c *configBench) read(n int) bool {
	return c.ask(http.MethodGet, c.path(n), "", "").status == http.StatusOK
}

// update changes a limit, after each change of somebody else's anew.
func (c *configBench) update(n, tokens int) bool {
	for c.until.IsZero() || time.Now().Before(c.until) {
		seen := c.ask(http.MethodGet, c.path(n), "", "")
		if seen.status != http.StatusOK {
			return false
		}
		done := c.ask(http.MethodPut, c.path(n), fmt.Sprintf(`{"tokens":%d,"per":"1s","burst":100}`, tokens), seen.tag)
		if done.status != http.StatusPreconditionFailed {
			return done.status == http.StatusOK
		}
	}
	return false
}

func (c *configBench) scrape() bool {
	return c.ask(http.MethodGet, "/metrics", "", "").status == http.StatusOK
}

type configReply struct {
	status    int
	tag, body string
}

func (c *configBench) ask(method, path, body, match string) (got configReply) {
	r, err := http.NewRequestWithContext(c.tb.Context(), method, c.address+path, strings.NewReader(body))
	if err != nil {
		return got
	}
	r.Header.Set("Authorization", c.keys["admin"])
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("If-Match", match)
	}
	response, err := c.client.Do(r)
	if err != nil {
		return got
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return got
	}
	return configReply{response.StatusCode, response.Header.Get("Etag"), string(text)}
}
