package worker_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/worker"
)

// counter is an HTTP server that serves so many requests at a time in a base time, and takes longer the more there are beyond that.
type counter struct {
	base time.Duration

	mu       sync.Mutex
	capacity int
	running  int
	// Since the last look: requests, the sum of how much of the capacity was in use when each came, and of how many ran then.
	requests   int
	used, load float64
	took       []time.Duration
}

func (c *counter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	c.running++
	load := float64(c.running) / float64(c.capacity)
	c.requests, c.used, c.load = c.requests+1, c.used+min(load, 1), c.load+load
	c.mu.Unlock()
	work := time.Duration(float64(c.base) * max(load, 1))
	time.Sleep(work) //nolint:forbidigo // how long it works
	c.mu.Lock()
	c.running--
	c.took = append(c.took, work)
	c.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// halve halves the capacity.
func (c *counter) halve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.capacity /= 2
}

// look returns how much of the capacity was in use since the last look, and how many ran for each that fits.
func (c *counter) look() (used, load float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := float64(max(c.requests, 1))
	used, load = c.used/n, c.load/n
	c.requests, c.used, c.load, c.took = 0, 0, 0, nil
	return used, load
}

// did returns, of the time since the last look, how much of what the server can do it did, and the 95th percentile of how long that took, in base times.
func (c *counter) did(length time.Duration) (part, p95 float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.Sort(c.took)
	part = float64(len(c.took)) * c.base.Seconds() / (float64(c.capacity) * length.Seconds())
	if n := len(c.took); n > 0 {
		p95 = c.took[n*95/100].Seconds() / c.base.Seconds()
	}
	return part, p95
}

// TestALimitFindsTheCapacityOfItsDownstream, of 10 requests at a time where the policy allows 40, and finds it again when it halves. It
// counts requests at the server, and waits for as long as a machine that does much else may need.
func TestALimitFindsTheCapacityOfItsDownstream(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	server := &counter{base: 100 * time.Millisecond, capacity: 10}
	run := r.full(server, 40, &policy.Adaptive{Min: 2, Interval: 400 * time.Millisecond, MaxRunTime: 160 * time.Millisecond})
	for _, change := range []func(){func() {}, server.halve} {
		change()
		for patience := time.Now().Add(time.Minute); ; {
			server.look()
			run(2 * time.Second)
			used, load := server.look()
			all, err := r.store.Adaptations(t.Context())
			if err != nil || len(all) != 1 {
				t.Fatal(all, err)
			}
			t.Logf("capacity %d: %.2f of it in use, load %.2f, %+v", server.capacity, used, load, all[0])
			if used >= 0.9 && load <= 1.7 {
				break
			}
			if time.Now().After(patience) {
				t.Fatalf("capacity %d: %.2f of it is in use, %.2f requests run for each that fits", server.capacity, used, load)
			}
		}
	}
}

// full puts a server behind a downstream with such a cap, which moves by adaptive unless that is nil, and returns what has more to do than may run
// for so long.
func (r *rig) full(server *counter, most int, adaptive *policy.Adaptive) (run func(time.Duration)) {
	r.tb.Helper()
	p := policy.Unlimited()
	p.Downstreams = map[string]policy.Downstream{"pay": {MaxRunning: most}}
	if adaptive != nil {
		moving := *adaptive
		moving.Of = "downstream pay"
		p.Adaptive = map[string]policy.Adaptive{"pay-out": moving}
	}
	if _, err := rollout.Put(r.tb.Context(), r.store, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		r.tb.Fatal(err)
	}
	follows, err := producer.New(r.store, producer.Config{})
	if err != nil {
		r.tb.Fatal(err)
	}
	r.producer = follows
	listening := httptest.NewServer(server)
	r.tb.Cleanup(listening.Close)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: most + 20}}
	r.tb.Cleanup(client.CloseIdleConnections)
	r.runWithTimers(r.store, worker.Config{Concurrency: most + 20}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, listening.URL, nil)
		if err != nil {
			return err
		}
		answer, err := client.Do(req)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, answer.Body)
		return closeAfter(err, answer.Body)
	}))
	sent := 0
	return func(length time.Duration) {
		for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(100 * time.Millisecond) { //nolint:forbidigo // the pace of jobs that come
			for ; ; sent += 64 {
				c, err := r.store.Census(r.tb.Context())
				if err != nil {
					r.tb.Fatal(err)
				}
				if c.Waiting > 100 {
					break
				}
				jobs := make([]admission.Job, 64)
				for i := range jobs {
					jobs[i] = to("pay", fmt.Sprint("j", sent+i))
				}
				r.enqueue(jobs...)
			}
		}
	}
}

// BenchmarkALimitOfARealDownstream reports what a server of 40 requests at a time does, and how long they take, where 100 may run and a controller says how many
// do, beside a fixed limit of 100; then its capacity halves.
func BenchmarkALimitOfARealDownstream(b *testing.B) {
	const base, settles, measured = 100 * time.Millisecond, 6 * time.Second, 6 * time.Second
	for _, c := range []struct {
		name string
		by   *policy.Adaptive
	}{
		{"gradient", &policy.Adaptive{Controller: policy.Gradient, Min: 2, Interval: 400 * time.Millisecond}},
		{"aimd", &policy.Adaptive{Controller: policy.AIMD, Min: 2, Interval: 400 * time.Millisecond, MaxRunTime: 15 * base / 10}},
		{"fixed", nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				server := &counter{base: base, capacity: 40}
				run := newRig(b).full(server, 100, c.by)
				for _, phase := range []struct {
					name   string
					change func()
				}{{"", func() {}}, {"-halved", server.halve}} {
					phase.change()
					run(settles)
					server.look()
					run(measured)
					part, p95 := server.did(measured)
					b.ReportMetric(part, "of-capacity"+phase.name)
					b.ReportMetric(p95, "p95-of-base"+phase.name)
				}
			}
		})
	}
}

func closeAfter(err error, body io.Closer) error {
	if closed := body.Close(); err == nil {
		return closed
	}
	return err
}
