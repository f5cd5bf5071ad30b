package admin_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admin"
	"github.com/headgate/headgate/internal/guard"
	"github.com/headgate/headgate/internal/redistest"
)

// gauge is a sampler whose memory a test sets, in bytes.
type gauge struct{ memory, asked atomic.Int64 }

func (g *gauge) Sample(time.Time) (guard.Sample, error) {
	g.asked.Add(1)
	return guard.Sample{Memory: g.memory.Load()}, nil
}

// safe is a log that may be read while it is written.
type safe struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *safe) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(line)
}

func (s *safe) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.text.String(), what)
}

// serve has a plant's server listen until the test ends, which is when its guard looks. It returns the address.
func (p *plant) serve(t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.server.Serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		must(t, <-done)
	})
	return listener.Addr().String()
}

// TestAServerThatUsesTooMuchTakesNoNewCalls: they get a problem as it is described, with a time to come back. Health, metrics and the
// description are answered, and a worker over HTTP keeps what it has in hand and tells how that ended.
func TestAServerThatUsesTooMuchTakesNoNewCalls(t *testing.T) {
	t.Parallel()
	memory, log := &gauge{}, &safe{}
	var changes atomic.Int64
	p := newPlant(t, func(c *admin.Config) {
		c.Logger = zerolog.New(log)
		c.Guard = admin.GuardConfig{MaxMemory: 100 << 20, Interval: 100 * time.Millisecond}
		c.Guarded = func(c guard.Change) {
			if c.Kind == guard.Memory && c.From != c.To {
				changes.Add(1)
			}
		}
		*c = c.MeasuredBy(memory)
	})
	p.serve(t)
	p.enqueue("acme", "a", "b")
	session := p.want(http.StatusCreated, "operator", ask{op: "POST /api/v1/workers", body: `{"queues":[{"queue":"mail"}],"slots":2,"lease":"1m"}`}).object(t)
	worker, _ := session["worker"].(string)
	of := func(op, body string) ask {
		return ask{op: op + " /api/v1/workers/{worker}", path: map[string]string{"worker": worker}, body: body}
	}
	at := func(verb, body string) ask {
		a := of("POST", body)
		a.op += "/" + verb
		return a
	}
	leased, _ := p.want(http.StatusOK, "operator", at("leases", `{"max":1}`)).object(t)["jobs"].([]any)
	if len(leased) != 1 {
		t.Fatalf("%d leases", len(leased))
	}
	held, _ := leased[0].(map[string]any)

	memory.memory.Store(110 << 20)
	redistest.Await(t, "the guard", func() bool { return log.count("no new work is taken") == 1 })
	for _, a := range []ask{
		{op: "POST /api/v1/jobs", body: `{"tenant":"acme","queue":"mail","type":"welcome","payload":{}}`},
		{op: "GET /api/v1/census"},
		{op: "POST /api/v1/rate-limit/check", body: `{"tenant":"acme","queue":"mail"}`},
		at("leases", `{"max":1}`),
		{op: "POST /api/v1/workers", body: `{"queues":[{"queue":"mail"}],"slots":2,"lease":"1m"}`},
	} {
		got := p.want(http.StatusServiceUnavailable, "operator", a)
		if got.header.Get("Retry-After") != "1" || got.header.Get("Content-Type") != "application/problem+json" || got.object(t)["type"] != "urn:headgate:problem:busy" {
			t.Errorf("%s: %v %s", a.op, got.header, got.body)
		}
	}
	for _, op := range []string{"GET /api/v1/health/live", "GET /api/v1/health/ready", "GET /metrics", "GET /api/v1/openapi.json"} {
		p.want(http.StatusOK, "viewer", ask{op: op})
	}
	p.want(http.StatusUnauthorized, "nobody", ask{op: "GET /api/v1/census"})
	p.want(http.StatusOK, "operator", at("extend", ""))
	p.want(http.StatusOK, "operator", at("complete", fmt.Sprintf(`{"tenant":"acme","id":%q,"token":%q}`, held["id"], held["token"])))
	metrics := p.raw(http.MethodGet, "/metrics", p.keys["viewer"], "", nil)
	if !bytes.Contains(metrics.body, []byte(`headgate_http_refused_total{cause="guard"} 5`)) {
		t.Error("the metrics do not count 5 refusals")
	}

	memory.memory.Store(10 << 20)
	redistest.Await(t, "its end", func() bool { return log.count("new work is taken again") == 1 })
	p.enqueue("acme", "c")
	if changes.Load() != 2 {
		t.Errorf("%d changes were told, want 2", changes.Load())
	}
}

// TestCallsOfAMinute: one more than may be is refused at once, whether the guard has looked or not; calls without a credential
// use up nobody's.
func TestCallsOfAMinute(t *testing.T) {
	t.Parallel()
	p := newPlant(t, func(c *admin.Config) {
		c.Guard = admin.GuardConfig{MaxRequestsPerMinute: 10, Interval: time.Minute, Delays: admin.GuardDelays{Violation: 7 * time.Second}}
		*c = c.MeasuredBy(&gauge{})
	})
	for range 20 {
		p.want(http.StatusUnauthorized, "nobody", ask{op: "GET /api/v1/census"})
		p.want(http.StatusOK, "", ask{op: "GET /api/v1/health/live"})
	}
	for range 10 {
		p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/census"})
	}
	if got := p.want(http.StatusServiceUnavailable, "viewer", ask{op: "GET /api/v1/census"}); got.header.Get("Retry-After") != "7" {
		t.Errorf("Retry-After: %s", got.header.Get("Retry-After"))
	}
}

// TestBoundsOfAServerAreWatched: what the server bounds itself is told before it is full.
func TestBoundsOfAServerAreWatched(t *testing.T) {
	t.Parallel()
	log := &safe{}
	p := newPlant(t, func(c *admin.Config) {
		c.Logger, c.MaxConnections = zerolog.New(log), 5
		c.Guard = admin.GuardConfig{MaxMemory: 1 << 30, Interval: 100 * time.Millisecond}
		*c = c.MeasuredBy(&gauge{})
	})
	address := p.serve(t)
	for range 4 {
		dial(t, address)
	}
	redistest.Await(t, "the warning", func() bool { return log.count("connections 4 approaches limit 5") == 1 })
	dial(t, address)
	redistest.Await(t, "the limit", func() bool { return log.count("connections 5 is at limit 5") == 1 })
	p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/census"})
}

func TestABadGuardOfAServerIsToldAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlant(t, nil)
	_, err := admin.New(admin.Config{Store: p.store, Open: true, Guard: admin.GuardConfig{Interval: time.Hour, MaxCPU: -1}})
	for _, want := range []string{"guard: invalid MaxCPU -1: allowed is 0 to 4096 cores", "invalid Interval 1h0m0s: allowed is 100ms to 1m"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("nothing says %q: %v", want, err)
		}
	}
}

// TestCallsWaitAtAWarning, those that begin something, if a delay says so, and as many at a time as come.
func TestCallsWaitAtAWarning(t *testing.T) {
	t.Parallel()
	memory, log := &gauge{}, &safe{}
	p := newPlant(t, func(c *admin.Config) {
		c.Logger = zerolog.New(log)
		c.Guard = admin.GuardConfig{MaxMemory: 100 << 20, Interval: 100 * time.Millisecond, Delays: admin.GuardDelays{Warn: 200 * time.Millisecond}}
		*c = c.MeasuredBy(memory)
	})
	p.serve(t)
	memory.memory.Store(85 << 20)
	redistest.Await(t, "the warning", func() bool { return log.count("approaches limit") == 1 })
	began := time.Now()
	p.want(http.StatusOK, "viewer", ask{op: "GET /api/v1/census"})
	if took := time.Since(began); took < 180*time.Millisecond {
		t.Errorf("a call took %s", took)
	}
}
