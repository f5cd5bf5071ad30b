package admin_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// mostBytes is how large /metrics may be.
const mostBytes = 2 << 20

// bigPlant has 10,000 tenants with a job and some scopes each, 600 queues and 300 downstreams with breakers.
func bigPlant(tb testing.TB, scopes int) *plant {
	tb.Helper()
	const tenants, queues, downstreams = 10_000, 600, 300
	client := redistest.Start(tb, redistest.Options{}).Client(tb)
	s, err := redisstore.Open(tb.Context(), client, redisstore.Config{})
	must(tb, err)
	tenant := func(n int) string { return fmt.Sprintf("tenant-%05d", n) }
	for from := 0; from < tenants; from += store.MaxBatchJobs {
		var batch []store.Candidate
		for n := from; n < min(from+store.MaxBatchJobs, tenants); n++ {
			job := admission.NewJob(tenant(n), fmt.Sprintf("queue-with-a-long-name-%03d", n%queues), "t", nil)
			job.ID = "j"
			batch = append(batch, store.Candidate{Job: &job, Class: n % 3, Limits: &[admission.Levels]admission.Limit{}})
		}
		_, err := s.Partitions()[0].Admit(tb.Context(), 0, batch)
		must(tb, err)
	}
	addScopes(tb, client, scopes, tenants, func(n int) string { return redisstore.Keys(s).Buckets(tenant(n)) })
	for n := range downstreams {
		_, err := s.ForceBreaker(tb.Context(), fmt.Sprintf("downstream-with-a-long-name-%03d", n), breaker.Open, 0, store.Intervention{Reason: "test"})
		must(tb, err)
	}
	return newPlantOn(tb, s, nil)
}

// addScopes writes buckets as the scripts do, so many in all.
func addScopes(tb testing.TB, client *redis.Client, scopes, tenants int, key func(tenant int) string) {
	tb.Helper()
	pipe := client.Pipeline()
	for n := range tenants {
		fields := make([]any, 0, 2*scopes/tenants)
		for scope := range scopes / tenants {
			fields = append(fields, fmt.Sprintf("queue-%d:high", scope), "5000000:1700000000000000:1700000001000000:5")
		}
		pipe.HSet(tb.Context(), key(n), fields...)
		if pipe.Len() == 100 || n == tenants-1 {
			_, err := pipe.Exec(tb.Context())
			must(tb, err)
		}
	}
}

// metrics scrapes.
func (p *plant) metrics() string {
	p.tb.Helper()
	answer := p.raw(http.MethodGet, "/metrics", p.keys["viewer"], "", nil)
	if answer.status != http.StatusOK {
		p.tb.Fatalf("%d %s", answer.status, answer.body)
	}
	return string(answer.body)
}

// TestMetricsAreSmall: whatever there is of tenants, scopes, queues and downstreams. BenchmarkMetrics has the time.
func TestMetricsAreSmall(t *testing.T) {
	t.Parallel()
	text := bigPlant(t, 100_000).metrics()
	t.Logf("%d bytes, %d lines", len(text), strings.Count(text, "\n"))
	if len(text) > mostBytes || strings.Contains(text, "tenant-") {
		t.Errorf("%d bytes, of which some name tenants: %t", len(text), strings.Contains(text, "tenant-"))
	}
	for _, want := range []string{
		"headgate_jobs_accepted_total 10000\n", "headgate_redis_up 1\n", `circuit_breaker_state{service_id="other",state="open"} 100` + "\n",
		`circuit_breaker_state{service_id="downstream-with-a-long-name-000",state="open"} 1` + "\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
}

// BenchmarkMetrics scrapes a million scopes of 10,000 tenants: p50-ms is to stay below 200 on two quiet cores.
func BenchmarkMetrics(b *testing.B) {
	p := bigPlant(b, 1_000_000)
	var bytes int
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		bytes = len(p.metrics())
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(bytes), "bytes")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
}
