package worker_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
}

func (c *counter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	c.mu.Lock()
	c.running++
	load := float64(c.running) / float64(c.capacity)
	c.requests, c.used, c.load = c.requests+1, c.used+min(load, 1), c.load+load
	c.mu.Unlock()
	time.Sleep(time.Duration(float64(c.base) * max(load, 1))) //nolint:forbidigo // how long it works
	c.mu.Lock()
	c.running--
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
	c.requests, c.used, c.load = 0, 0, 0
	return used, load
}

// TestALimitFindsTheCapacityOfItsDownstream, of 10 requests at a time where the policy allows 40, and finds it again when it halves. It
// counts requests at the server, and waits for as long as a machine that does much else may need.
func TestALimitFindsTheCapacityOfItsDownstream(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := policy.Unlimited()
	p.Downstreams = map[string]policy.Downstream{"pay": {MaxRunning: 40}}
	p.Adaptive = map[string]policy.Adaptive{"pay-out": {Of: "downstream pay", Min: 2, Interval: 400 * time.Millisecond, MaxRunTime: 160 * time.Millisecond}}
	if _, err := rollout.Put(t.Context(), r.store, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	follows, err := producer.New(r.store, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r.producer = follows
	server := &counter{base: 100 * time.Millisecond, capacity: 10}
	listening := httptest.NewServer(server)
	t.Cleanup(listening.Close)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 60}}
	t.Cleanup(client.CloseIdleConnections)
	r.runWithTimers(r.store, worker.Config{Concurrency: 60}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
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
	refill := func() { // There is always more to do than may run.
		for ; ; sent += 64 {
			c, err := r.store.Census(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if c.Waiting > 100 {
				return
			}
			jobs := make([]admission.Job, 64)
			for i := range jobs {
				jobs[i] = to("pay", fmt.Sprint("j", sent+i))
			}
			r.enqueue(jobs...)
		}
	}
	run := func(length time.Duration) {
		for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(100 * time.Millisecond) { //nolint:forbidigo // the pace of jobs that come
			refill()
		}
	}
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

func closeAfter(err error, body io.Closer) error {
	if closed := body.Close(); err == nil {
		return closed
	}
	return err
}
