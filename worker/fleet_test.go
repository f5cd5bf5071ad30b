package worker_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// call asks a downstream and fails unless it answers well.
func call(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("got %s", response.Status)
	}
	return nil
}

// downstream is an HTTP server that is well until it is broken.
type downstream struct {
	url    string
	broken atomic.Bool
	mu     sync.Mutex
	// failed are the times of the calls that it failed.
	failed []time.Time
	well   int
}

func newDownstream(tb testing.TB) *downstream {
	tb.Helper()
	d := &downstream{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.broken.Load() {
			d.failed = append(d.failed, time.Now())
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		d.well++
	}))
	tb.Cleanup(server.Close)
	d.url = server.URL
	return d
}

func (d *downstream) counts() (well int, failed []time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.well, append([]time.Time(nil), d.failed...)
}

// calls returns jobs that call "pay".
func calls(n int) []admission.Job {
	jobs := make([]admission.Job, n)
	for i := range jobs {
		jobs[i] = to("pay", fmt.Sprint("pay-", i))
		jobs[i].Type, jobs[i].MaxAttempts = "call", 25
	}
	return jobs
}

// TestAFailingDownstreamIsOpenEverywhereWithinASecond runs four workers as processes, and one that never calls the
// downstream.
func TestAFailingDownstreamIsOpenEverywhereWithinASecond(t *testing.T) {
	t.Parallel()
	const workers, minCalls = 4, 10
	r := newRig(t)
	d := newDownstream(t)
	for range workers {
		r.process(roleURL + "=" + d.url)
	}
	bystander := r.runWithTimers(r.store, worker.Config{Queues: []store.QueueWeight{{Queue: "other"}}}, on("send", nothing))
	r.await("the registrations", func() bool { return len(r.registrations()) == workers+1 })
	jobs := calls(30_000)
	for len(jobs) > 0 {
		r.enqueue(jobs[:64]...)
		jobs = jobs[min(64, len(jobs)):]
		if well, _ := d.counts(); len(jobs) < 26_000 && well > 1000 {
			break
		}
	}
	d.broken.Store(true)
	r.await("the bystander to know", func() bool {
		status := bystander.Breakers()
		return len(status) == 1 && status[0].Downstream == "pay" && status[0].State == breaker.Open
	})
	// What was in hands by then ends, and no more is handed out while the same workers do other work.
	r.await("calls under way to end", func() bool { return r.census().Ready == 0 })
	_, before := d.counts()
	const others = 200
	done := r.census().Left["completed"]
	for i := range others {
		r.enqueue(job("send", fmt.Sprint("other-", i)))
	}
	r.await("other work", func() bool { return r.census().Left["completed"] >= done+others })
	_, failed := d.counts()
	if len(failed) != len(before) {
		t.Errorf("%d calls reached it after all knew", len(failed)-len(before))
	}
	if most := workers * (minCalls + roleSlots); len(failed) > most {
		t.Errorf("%d attempts were burnt, at most %d may be", len(failed), most)
	}
	t.Logf("%d attempts burnt, the last %s after the first", len(failed), failed[len(failed)-1].Sub(failed[0]))
	state, err := r.store.Breaker(t.Context(), "pay")
	if err != nil || state.State != breaker.Open || len(state.Voters) < 2 {
		t.Errorf("got %+v, %v", state, err)
	}
}

// TestOneWorkerWithACutNetworkOpensNothing runs three workers as processes that reach the downstream, and one that does
// not: it fails fast, so it takes more jobs than any other. It comes as soon as anybody else is known to have called the
// downstream, or when they have done so for a while. Until then it would be all that anybody knows, and decide alone.
func TestOneWorkerWithACutNetworkOpensNothing(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]int{"early": roleSlots, "a newcomer": 500} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testCutNetwork(t, before)
		})
	}
}

// testCutNetwork starts the worker that is cut off when so many jobs have been run.
func testCutNetwork(t *testing.T, before int) {
	t.Helper()
	const jobs = 3000
	r := newRig(t)
	d := newDownstream(t)
	for range 3 {
		r.process(roleURL + "=" + d.url)
	}
	r.await("the registrations", func() bool { return len(r.registrations()) == 3 })
	all := calls(jobs)
	send := func(n int) {
		for part := range slices.Chunk(all[:n], 64) {
			r.enqueue(part...)
		}
		all = all[n:]
	}
	send(before)
	r.await("the others to have called it", func() bool {
		well, _ := d.counts()
		state, err := r.store.Breaker(t.Context(), "pay")
		return well >= before && err == nil && len(state.Callers) > 0
	})
	var failures atomic.Int32
	cut := r.runWithTimers(r.store, worker.Config{Concurrency: roleSlots, Backoff: quick},
		on("call", func(context.Context, worker.Job[[]byte]) error {
			failures.Add(1)
			return errDown
		}))
	r.await("its registration", func() bool { return len(r.registrations()) == 4 })
	send(len(all))
	r.await("the lonely worker to say so", func() bool { return strings.Contains(cut.logs.String(), "its jobs are left to others") })
	if c := r.idle(); c.Left["completed"] != jobs {
		t.Errorf("got %+v", c)
	}
	if causes := r.causes(); causes != "" {
		t.Errorf("the breaker of all changed: %s", causes)
	}
	// Its own breaker lets it burn what one worker may: the calls that trip it, and those that are under way by then.
	if n := failures.Load(); n > 10+roleSlots {
		t.Errorf("it called %d times", n)
	}
	state, err := r.store.Breaker(t.Context(), "pay")
	if err != nil || state.State != breaker.Closed || state.Trips != 0 {
		t.Errorf("got %+v, %v", state, err)
	}
}
