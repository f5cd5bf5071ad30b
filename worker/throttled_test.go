package worker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker"
)

// metered is an HTTP server that takes so many requests a second, by a token bucket, and answers 429 to the others: nobody is told.
type metered struct {
	mu                sync.Mutex
	rate, level       float64
	last              time.Time
	accepted, refused int
}

func (m *metered) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.level = min(m.rate/4, m.level+m.rate*now.Sub(m.last).Seconds())
	m.last = now
	if m.level < 1 {
		m.refused++
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	m.level--
	m.accepted++
	w.WriteHeader(http.StatusNoContent)
}

func (m *metered) set(rate float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rate = rate
}

func (m *metered) look() (accepted, refused int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	accepted, refused = m.accepted, m.refused
	m.accepted, m.refused = 0, 0
	return accepted, refused
}

// post posts to a URL, says Throttled to a 429 and tells how much the receiver pushes back.
func post(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if err = closeAfter(err, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode == http.StatusTooManyRequests {
		return worker.Throttled(worker.Snooze(time.Second))
	}
	level, err := strconv.Atoi(answer.Header.Get("Level"))
	if err != nil {
		return nil //nolint:nilerr // It says nothing of that.
	}
	return worker.Pushback(ctx, admission.PressureLevel(level), 0)
}

// dispatchRig is three workers in processes of their own, which post to a server of the downstream "pay" whose dispatch, 1,000 a second by the policy,
// moves by itself.
func dispatchRig(t *testing.T, server http.Handler) *rig {
	t.Helper()
	listening := httptest.NewServer(server)
	t.Cleanup(listening.Close)
	r := newRig(t)
	p := policy.Unlimited()
	p.Downstreams = map[string]policy.Downstream{"pay": {Dispatch: new(admission.PerSecond(1000).WithBurst(20))}}
	p.Adaptive = map[string]policy.Adaptive{"pay-rate": {Of: "downstream pay", Moves: policy.MovesDispatch, Min: 2, Interval: 500 * time.Millisecond}}
	if _, err := rollout.Put(t.Context(), r.store, p, rollout.Edit{Author: "ada", Reason: "test", Expected: rollout.AnyVersion}); err != nil {
		t.Fatal(err)
	}
	follows, err := producer.New(r.store, producer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r.producer = follows
	for range 3 {
		r.process(roleURL + "=" + listening.URL)
	}
	return r
}

// keepBusy enqueues jobs of a type until ctx ends, so that there is always more to do than may run.
func (r *rig) keepBusy(ctx context.Context, jobType string) {
	r.tb.Helper()
	ended := func(err error) bool {
		if err != nil && ctx.Err() == nil {
			r.tb.Errorf("nobody is kept busy any more: %v", err)
		}
		return err != nil
	}
	for sent := 0; ctx.Err() == nil; {
		c, err := r.store.Census(ctx)
		if ended(err) {
			return
		}
		if c.Waiting > 200 {
			time.Sleep(50 * time.Millisecond) //nolint:forbidigo // the pace of who enqueues
			continue
		}
		jobs := make([]admission.Job, 64)
		for i := range jobs {
			jobs[i] = to("pay", fmt.Sprint("j", sent+i))
			jobs[i].Type = jobType
		}
		if _, err := r.producer.EnqueueBatch(ctx, jobs); ended(err) {
			return
		}
		sent += len(jobs)
	}
}

func (r *rig) adaptation() store.Adaptation {
	r.tb.Helper()
	all, err := r.store.Adaptations(r.tb.Context())
	if err != nil || len(all) != 1 {
		r.tb.Fatal(all, err)
	}
	return all[0]
}

// TestADispatchFindsTheRateOfItsReceiver: a server that takes 40 requests a second, of which nobody was told, is sent no more than that by three processes before long,
// from 1,000 a second on; and again when it takes 20: there is a second in which it refuses one of them at most. Its breaker stays closed all the while, and no attempt is burnt. By make dispatch-rate, on a
// machine that does nothing else: it gets at least 0.9 of its rate within ten seconds, and within 25 when it takes 40 again; and of what it gets once its
// rate is found it refuses at most 0.02.
func TestADispatchFindsTheRateOfItsReceiver(t *testing.T) {
	t.Parallel()
	server := &metered{last: time.Now()}
	server.set(40)
	r := dispatchRig(t, server)
	ctx, cancel := context.WithCancel(t.Context())
	busy := make(chan struct{})
	go func() {
		defer close(busy)
		r.keepBusy(ctx, "post")
	}()
	defer func() { cancel(); <-busy }()
	if os.Getenv("HEADGATE_DISPATCH_RATE") != "" {
		measureDispatch(t, r, server)
	} else {
		for _, rate := range []float64{40, 20} {
			server.set(rate)
			server.look()
			from := time.Now()
			r.await("no more than the receiver takes", func() bool { // The limit itself may be above that: a busy fleet does not use all of it.
				if time.Since(from) < time.Second {
					return false
				}
				accepted, refused := server.look()
				from = time.Now()
				return accepted >= 5 && refused <= 1 && float64(r.adaptation().Limit) <= 2*rate*store.RateUnit
			})
		}
	}
	b, err := r.store.Breaker(t.Context(), "pay")
	if err != nil || b.State != breaker.Closed || b.Life.Failures != 0 || b.Trips != 0 {
		t.Errorf("the breaker: %+v, %v", b, err)
	}
	if c, err := r.store.Census(t.Context()); err != nil || c.Dead != 0 {
		t.Errorf("%d dead letters, %v", c.Dead, err)
	}
}

// measureDispatch measures what gets through to a server whose rate changes, and what it refuses.
func measureDispatch(t *testing.T, r *rig, server *metered) {
	t.Helper()
	type phase struct {
		rate           float64
		within, onward time.Duration
	}
	came, turnedAway := 0, 0 // since a rate was found
	for _, phase := range []phase{{40, 10 * time.Second, 6 * time.Second}, {20, 10 * time.Second, 10 * time.Second}, {40, 25 * time.Second, 10 * time.Second}} {
		server.set(phase.rate)
		began := time.Now()
		for {
			server.look()
			from := time.Now()
			time.Sleep(2 * time.Second) //nolint:forbidigo // what is measured is requests over a time
			accepted, refused := server.look()
			through := float64(accepted) / (phase.rate * time.Since(from).Seconds())
			t.Logf("%g a second: after %s %.2f of it, %d of %d refused, %s", phase.rate, time.Since(began), through, refused, accepted+refused, shownOf(r.adaptation()))
			if through >= 0.9 && float64(refused) <= 0.02*float64(accepted+refused) {
				break
			}
			if time.Since(began) > phase.within {
				t.Fatalf("%g a second: after %s %.2f of it gets through, %d of %d are refused", phase.rate, time.Since(began), through, refused, accepted+refused)
			}
		}
		from := time.Now()
		time.Sleep(phase.onward) //nolint:forbidigo // as above
		accepted, refused := server.look()
		through := float64(accepted) / (phase.rate * time.Since(from).Seconds())
		t.Logf("from then on %.3f of it, %d of %d refused", through, refused, accepted+refused)
		came, turnedAway = came+accepted+refused, turnedAway+refused
		if through < 0.9 {
			t.Errorf("%g a second: from then on %.2f of it gets through", phase.rate, through)
		}
	}
	if float64(turnedAway) > 0.02*float64(came) {
		t.Errorf("%d of %d are refused once the rate is found", turnedAway, came)
	}
}

// TestAReceiverThatPushesBackIsHeededByTheFleet: within a second of its first CRITICAL three workers in processes of their own dispatch no more than what sees
// whether it has ended, where they did more than 100 a second; and when it says so no more, the rate comes back by its steps.
func TestAReceiverThatPushesBackIsHeededByTheFleet(t *testing.T) {
	t.Parallel()
	var calls, level atomic.Int64
	level.Store(int64(admission.PressureNone))
	r := dispatchRig(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		calls.Add(1)
		w.Header().Set("Level", strconv.FormatInt(level.Load(), 10))
	}))
	ctx, cancel := context.WithCancel(t.Context())
	busy := make(chan struct{})
	go func() {
		defer close(busy)
		r.keepBusy(ctx, "post")
	}()
	defer func() { cancel(); <-busy }()
	quick := func() bool {
		before := calls.Load()
		time.Sleep(500 * time.Millisecond) //nolint:forbidigo // what is measured is calls over a time
		return calls.Load()-before > 50
	}
	r.await("more than 100 a second", quick)
	level.Store(int64(admission.PressureCritical))
	time.Sleep(time.Second) //nolint:forbidigo // by then it is heeded
	before, from := calls.Load(), time.Now()
	time.Sleep(3 * time.Second) //nolint:forbidigo // as above
	// One a second, one that the bucket held, and one that was on its way.
	if n, most := calls.Load()-before, int64(time.Since(from).Seconds())+2; n > most || n == 0 {
		t.Errorf("%d calls in %s, want 1 to %d", n, time.Since(from), most)
	}
	if a := r.adaptation(); a.Push != admission.PressureCritical || a.InForce() != store.RateUnit || a.Limit != a.Own {
		t.Errorf("%+v", a)
	}
	level.Store(int64(admission.PressureNone))
	steps := []admission.PressureLevel{r.adaptation().Push}
	r.await("its end", func() bool {
		if push := r.adaptation().Push; push != steps[len(steps)-1] {
			steps = append(steps, push)
		}
		return steps[len(steps)-1] == 0
	})
	if len(steps) != 5 {
		t.Errorf("it came back by %v", steps)
	}
	r.await("more than 100 a second again", quick)
}

// TestPushbackRefusesBadArguments, and says so outside of a handler.
func TestPushbackRefusesBadArguments(t *testing.T) {
	t.Parallel()
	if err := worker.Pushback(t.Context(), admission.PressureHigh, 0); !errors.Is(err, worker.ErrNoJob) {
		t.Errorf("got %v", err)
	}
	err := worker.ValidatePushback(6, 2*time.Hour)
	if !errors.Is(err, admission.ErrInvalid) || err.Error() != "invalid level 6: allowed is PressureNone to PressureCritical, 1 to 5\ninvalid pushback 2h0m0s: allowed is 0 to 1h" {
		t.Errorf("got %v", err)
	}
	if err := worker.ValidatePushback(admission.PressureNone, 0); err != nil {
		t.Error(err)
	}
}

func shownOf(a store.Adaptation) string {
	return fmt.Sprintf("%.2f/s, %s, raised %d lowered %d", float64(a.Limit)/1e6, a.Cause, a.Raised, a.Lowered)
}

// TestThrottledGoesTheWayOfItsError, and says nothing to a breaker, which a single failure opens here.
func TestThrottledGoesTheWayOfItsError(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	ran := make(chan int, 10)
	rules := breaker.Config{FailureThreshold: 1}
	r.runWithTimers(r.store, worker.Config{Concurrency: 1, Breaker: rules}, on("send", func(_ context.Context, j worker.Job[[]byte]) error {
		ran <- j.Attempt
		switch len(ran) {
		case 1:
			return worker.Throttled(worker.Snooze(time.Millisecond))
		case 2:
			return worker.Throttled(worker.RetryAfter(time.Millisecond, errors.New("429")))
		}
		return nil
	}))
	r.enqueue(to("pay", "j"))
	r.await("the job", func() bool { return r.census().Left["completed"] == 1 })
	if first, second, third := <-ran, <-ran, <-ran; first != 1 || second != 1 || third != 2 {
		t.Errorf("attempts %d, %d, %d", first, second, third)
	}
	r.await("its last call to be reported", func() bool {
		b, err := r.store.Breaker(t.Context(), "pay")
		return err == nil && b.Life.Calls == 1
	})
	if b, err := r.store.Breaker(t.Context(), "pay"); err != nil || b.State != breaker.Closed || b.Life.Failures != 0 {
		t.Errorf("%+v, %v", b.Life, err)
	}
}
