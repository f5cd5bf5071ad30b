package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/telemetry"
)

// letter is a job of the tests of a client.
type letter struct{ To string }

func (letter) Kind() string { return "letter" }

// open returns a client of a deployment in Redis, or in memory, in which each tenant has three tokens that do not come back.
func open(t *testing.T, url string) *headgate.Client {
	t.Helper()
	hg, err := headgate.Open(t.Context(), url, headgate.Config{Prefix: redistest.Prefix(t)})
	must(t, err)
	t.Cleanup(func() { must(t, hg.Close()) })
	must(t, hg.Policy().Change(t.Context(), headgate.Edit{}, func(p *headgate.Policy) {
		p.Tier("standard").Limit = headgate.Limit{Tokens: 1, Per: time.Hour, Burst: 3}
	}))
	return hg
}

// TestACollectorShowsWhatAClientDoes: by jobs, workers, limiters and breakers, by those made before the collector too.
func TestACollectorShowsWhatAClientDoes(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"redis": redistest.Shared(t).URL(), "memory": "memory:"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hg := open(t, url)
			before := serving(t, hg, "mail")
			early, err := hg.Limiter(headgate.LimiterConfig{Timeout: 5 * time.Second})
			must(t, err)
			registry := prometheus.NewPedanticRegistry()
			must(t, registry.Register(telemetry.Collector(hg)))
			after := serving(t, hg, "post")
			late, err := hg.Limiter(headgate.LimiterConfig{Timeout: 5 * time.Second})
			must(t, err)

			enqueueFive(t, hg)
			runUntilDone(t, registry, before, after)
			ask(t, early, "bolt", 1, nil)
			ask(t, late, "crow", 1, nil)
			ask(t, late, "crow", 4, headgate.ErrTooCostly)
			must(t, early.Close(t.Context())) // What it has counted stays.
			must(t, hg.Operate("ada").OpenBreaker(t.Context(), "smtp", headgate.For(time.Hour, "migration")))
			shows(t, registry)
			must(t, late.Close(t.Context()))
			if n := value(t, registry, "headgate_limiter_checks_total", map[string]string{"result": "admitted"}); n != 2 {
				t.Errorf("with both limiters closed %g checks were admitted, want 2", n)
			}
			for _, name := range []string{"headgate_limiter_held_tokens", "headgate_limiter_guarantee_burst_tokens"} {
				if n := value(t, registry, name, nil); n != 0 {
					t.Errorf("with both limiters closed %s is %g", name, n)
				}
			}
		})
	}
}

// serving returns a worker of one queue, whose first run of the job "a" fails.
func serving(t *testing.T, hg *headgate.Client, queue string) *headgate.Worker {
	t.Helper()
	w := hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{queue: 1}, Backoff: func(int) time.Duration { return time.Millisecond }})
	headgate.Handle(w, func(_ context.Context, job *headgate.Run[letter]) error {
		if job.ID == "a" && job.Attempt == 1 {
			return errors.New("once")
		}
		return nil
	})
	return w
}

// enqueueFive asks for two jobs of a queue, one of another, one again and one that is refused.
func enqueueFive(t *testing.T, hg *headgate.Client) {
	t.Helper()
	for _, job := range []headgate.Job{{ID: "a", Queue: "mail"}, {ID: "b", Queue: "mail"}, {ID: "c", Queue: "post"}, {ID: "a", Queue: "mail"}} {
		job.Tenant, job.Args = "acme", letter{}
		_, err := hg.Enqueue(t.Context(), job)
		must(t, err)
	}
	_, err := hg.EnqueueBatch(t.Context(), []headgate.Job{{ID: "d", Tenant: "acme", Queue: "mail", Args: letter{}}})
	if !errors.Is(err, headgate.ErrLimited) {
		t.Fatalf("a fourth job of three tokens: %v", err)
	}
}

// runUntilDone runs workers until three jobs have completed.
func runUntilDone(t *testing.T, registry prometheus.Gatherer, workers ...*headgate.Worker) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, len(workers))
	for _, w := range workers {
		go func() { ended <- w.Run(ctx) }()
	}
	until(t, func() bool {
		return value(t, registry, "headgate_worker_jobs_total", map[string]string{"outcome": "completed"}) == 3
	})
	stop()
	for range workers {
		must(t, <-ended)
	}
}

// ask asks a limiter.
func ask(t *testing.T, l *headgate.Limiter, tenant string, cost headgate.Tokens, want error) {
	t.Helper()
	if _, err := l.Check(t.Context(), headgate.Request{Tenant: tenant, Queue: "search", Cost: cost}); !errors.Is(err, want) {
		t.Fatalf("check of %s: %v, want %v", tenant, err, want)
	}
}

func shows(t *testing.T, registry prometheus.Gatherer) {
	t.Helper()
	want := `
# HELP circuit_breaker_state Downstreams whose circuit breaker is in a state: 1 or 0 for one with a name of its own.
# TYPE circuit_breaker_state gauge
circuit_breaker_state{service_id="smtp",state="closed"} 0
circuit_breaker_state{service_id="smtp",state="half_open"} 0
circuit_breaker_state{service_id="smtp",state="open"} 1
# HELP headgate_tenant_requests_total Jobs that this process asked to enqueue, admitted (duplicates too) and refused, for its busiest tenants and all others.
# TYPE headgate_tenant_requests_total counter
headgate_tenant_requests_total{result="admitted",tenant="acme"} 4
headgate_tenant_requests_total{result="admitted",tenant="other"} 0
headgate_tenant_requests_total{result="refused",tenant="acme"} 1
headgate_tenant_requests_total{result="refused",tenant="other"} 0
# HELP headgate_worker_jobs_total Jobs that left the hand of this worker, by how.
# TYPE headgate_worker_jobs_total counter
headgate_worker_jobs_total{outcome="completed",queue_id="mail"} 2
headgate_worker_jobs_total{outcome="completed",queue_id="post"} 1
headgate_worker_jobs_total{outcome="retried",queue_id="mail"} 1
# HELP throttle_rejected_requests_total Jobs of this process that were refused, by reason.
# TYPE throttle_rejected_requests_total counter
throttle_rejected_requests_total{reason="limited"} 1
# HELP throttle_requests_total Jobs that this process asked to enqueue, by what became of that.
# TYPE throttle_requests_total counter
throttle_requests_total{result="admitted"} 3
throttle_requests_total{result="duplicate"} 1
throttle_requests_total{result="refused"} 1
`
	must(t, testutil.GatherAndCompare(registry, strings.NewReader(want), "circuit_breaker_state", "headgate_tenant_requests_total",
		"headgate_worker_jobs_total", "throttle_rejected_requests_total", "throttle_requests_total"))
	for _, c := range []struct {
		name   string
		labels map[string]string
		want   float64
	}{
		{"throttle_queue_wait_time_seconds", map[string]string{"queue_id": "mail", "priority": "medium"}, 3},
		{"headgate_run_time_seconds", map[string]string{"queue_id": "mail"}, 3},
		{"headgate_run_time_seconds", map[string]string{"queue_id": "post"}, 1},
		{"headgate_limiter_checks_total", map[string]string{"result": "admitted"}, 2},
		{"headgate_limiter_checks_total", map[string]string{"result": "refused"}, 1},
		{"headgate_limiter_guarantee_burst_tokens", map[string]string{"level": "tenant"}, 3},
	} {
		if got := value(t, registry, c.name, c.labels); got != c.want {
			t.Errorf("%s%v is %g, want %g", c.name, c.labels, got, c.want)
		}
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
}

// value returns the sum of the series of a metric that have some labels; of a histogram it is of how often something was observed.
func value(t *testing.T, registry prometheus.Gatherer, name string, labels map[string]string) (sum float64) {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			has := 0
			for _, label := range metric.GetLabel() {
				if want, asked := labels[label.GetName()]; asked && want == label.GetValue() {
					has++
				}
			}
			if family.GetName() == name && has == len(labels) {
				sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// until waits until something is so.
func until(t *testing.T, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); !is(); <-tick.C {
		if time.Now().After(end) {
			t.Fatal("it does not come to that")
		}
	}
}

// TestACollectorKnowsWhatAGuardFoundBefore: a collector that comes after a worker shows how things stand, not only what changes.
func TestACollectorKnowsWhatAGuardFoundBefore(t *testing.T) {
	t.Parallel()
	hg := open(t, "memory:")
	first, second := prometheus.NewPedanticRegistry(), prometheus.NewPedanticRegistry()
	must(t, first.Register(telemetry.Collector(hg)))
	w := hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"mail": 1}, Guard: headgate.GuardConfig{MaxGoroutines: 1}})
	headgate.Handle(w, func(context.Context, *headgate.Run[letter]) error { return nil })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	violated := func(registry prometheus.Gatherer) bool {
		return value(t, registry, "headgate_guard_state", map[string]string{"kind": "goroutines"}) == 2
	}
	until(t, func() bool { return violated(first) })
	must(t, second.Register(telemetry.Collector(hg)))
	if !violated(second) {
		t.Error("a violation that was found before is not shown")
	}
	stop()
	must(t, <-ended)
}

// TestACollectorWithoutRedisShowsTheRest: and says nothing of breakers that it does not know.
func TestACollectorWithoutRedisShowsTheRest(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	hg := open(t, server.URL())
	registry := prometheus.NewPedanticRegistry()
	must(t, registry.Register(telemetry.Collector(hg)))
	must(t, hg.Operate("ada").OpenBreaker(t.Context(), "smtp", headgate.For(time.Hour, "migration")))
	if n := testutil.CollectAndCount(telemetry.Collector(hg), "circuit_breaker_state"); n != 3 {
		t.Fatalf("%d states of a breaker, want 3", n)
	}
	server.Kill(t)
	if _, err := hg.Enqueue(t.Context(), headgate.Job{Tenant: "acme", Queue: "mail", Args: letter{}}); err == nil {
		t.Fatal("a job entered without Redis")
	}
	if n := value(t, registry, "throttle_requests_total", nil); n != 1 {
		t.Errorf("%g requests, want the one without Redis", n)
	}
	if n := value(t, registry, "circuit_breaker_state", nil); n != 0 {
		t.Errorf("%g breakers are in a state that nobody told", n)
	}
}
