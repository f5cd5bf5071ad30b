package worker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

var errDown = errors.New("connection refused")

// illness is a handler whose downstream "pay" is ill until it is healed.
type illness struct {
	healed atomic.Bool
	mu     sync.Mutex
	calls  []time.Time // of pay
	failed int
}

func (i *illness) handle(_ context.Context, job worker.Job[[]byte]) error {
	if job.Downstream != "pay" {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.calls = append(i.calls, time.Now())
	if i.healed.Load() {
		return nil
	}
	i.failed++
	return errDown
}

// failures counts the calls before it was healed.
func (i *illness) failures() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.failed
}

func to(downstream, id string) admission.Job {
	j := job("send", id)
	j.Downstream, j.MaxAttempts = downstream, 2
	return j
}

// gate returns the limit of the gate of "pay" in Redis, "" for none.
func (r *rig) gate() string {
	r.tb.Helper()
	all, err := r.client.HGetAll(r.tb.Context(), redisstore.Keys(r.store).Gates()).Result()
	if err != nil {
		r.tb.Fatal(err)
	}
	limit, _, _ := strings.Cut(all["b:pay"], "|")
	return limit
}

func TestAnOpenBreakerHoldsJobsBackUnharmed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var ill illness
	config := worker.Config{
		Concurrency: 2, Backoff: func(int) time.Duration { return 50 * time.Millisecond },
		Breaker: breaker.Config{
			FailureThreshold: 3, OpenBase: 400 * time.Millisecond, OpenMax: 400 * time.Millisecond, SuccessThreshold: 3, MaxProbes: 1,
		},
	}
	a := r.runWithTimers(r.store, config, on("send", ill.handle))
	const sick = 40
	for i := range sick {
		r.enqueue(to("pay", fmt.Sprint("pay-", i)))
	}
	r.await("the breaker to open", func() bool { return r.gate() == "0" })
	// In a moment nothing of it reaches a handler, and nobody else waits for it.
	for i := range 20 {
		r.enqueue(to("ship", fmt.Sprint("ship-", i)))
	}
	r.await("the other downstream's jobs", func() bool { return r.census().Left["completed"] == 20 })
	r.await("some probes", func() bool { return a.Breakers()[0].Opened >= 4 })
	burnt := 0
	for _, e := range a.ends("") {
		if e.Downstream == "pay" && (e.Outcome == worker.Retried || e.Outcome == worker.Dead) {
			burnt++
		}
	}
	// Three failures trip, and with two slots one more may have been under way.
	if burnt < 3 || burnt > 4 {
		t.Errorf("%d attempts were burnt", burnt)
	}
	status := a.Breakers()
	if len(status) != 2 || status[0].Downstream != "pay" || status[1].Downstream != "ship" || status[1].State != breaker.Closed || status[1].Opened != 0 {
		t.Errorf("got %+v", status)
	}
	ill.healed.Store(true)
	c := r.idle()
	if c.Left["completed"] != sick+20 || c.Dead != 0 {
		t.Errorf("got %+v", c)
	}
	r.await("the gate to go", func() bool { return r.gate() == "" && a.Breakers()[0].State == breaker.Closed })
	// Each opening after the first was one failed probe.
	if failed, opened := ill.failures(), a.Breakers()[0].Opened; failed > 4+opened {
		t.Errorf("%d calls failed in %d open periods", failed, opened)
	}
	for _, e := range a.ends("") {
		if e.Outcome == worker.Released && e.Reason != worker.ReasonBreaker && e.Reason != worker.ReasonProbe {
			t.Errorf("job %s went back for the reason %s", e.Key.ID, e.Reason)
		}
	}
}

func TestHangingCallsAreSlowBeforeTheyReturn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	config := worker.Config{Concurrency: 4, Breaker: breaker.Config{MinCalls: 4, SlowCallDuration: 100 * time.Millisecond, OpenBase: time.Minute}}
	a := r.runWithTimers(r.store, config, on("send", func(context.Context, worker.Job[[]byte]) error {
		<-release
		return nil
	}))
	for i := range 8 {
		r.enqueue(to("pay", fmt.Sprint("pay-", i)))
	}
	r.await("the gate to shut", func() bool { return r.gate() == "0" })
	if n := len(a.starts()); n != 4 {
		t.Errorf("%d jobs were started", n)
	}
	close(release)
	r.await("the four to end", func() bool { return r.census().Left["completed"] == 4 })
	if c := r.census(); c.Waiting+c.Later != 4 || len(a.starts()) != 4 {
		t.Errorf("got %d starts, %+v", len(a.starts()), c)
	}
}

func TestAHangingProbeEndsHalfOpenInItsTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	release := make(chan struct{})
	var opened atomic.Bool
	var calls atomic.Int32
	config := worker.Config{
		Concurrency: 2, Backoff: quick,
		Breaker: breaker.Config{
			FailureThreshold: 1, SuccessThreshold: 1, OpenBase: time.Second, OpenMax: time.Second, ProbeTimeout: 300 * time.Millisecond,
		},
	}
	var ended atomic.Value
	a := r.runWithTimers(r.store, config, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
		switch first := calls.CompareAndSwap(0, 1); {
		case first:
			return errDown
		case !opened.Load(): // Redis has not heard of the failure yet.
			return worker.Snooze(50 * time.Millisecond)
		case calls.Add(1) == 2: // The first probe hangs, whatever its ctx says.
			<-ctx.Done()
			ended.Store(context.Cause(ctx))
			<-release
			return errDown
		}
		return nil
	}))
	r.enqueue(to("pay", "pay-0"))
	r.await("the breaker to open", func() bool { return r.causes() != "" })
	opened.Store(true)
	for i := range 4 {
		r.enqueue(to("pay", fmt.Sprint("pay-", i+1)))
	}
	var causes string
	r.await("the breaker to close", func() bool {
		causes = r.causes()
		return strings.HasSuffix(causes, "probes passed")
	})
	if want := "failure streak, cooldown over, probe timeout, cooldown over, "; !strings.HasPrefix(causes, want) { // A later probe may be late, too.
		t.Errorf("got %s, want %s...", causes, want)
	}
	if cause, _ := ended.Load().(error); !errors.Is(cause, context.DeadlineExceeded) {
		t.Errorf("the probe's ctx ended with %v", cause)
	}
	close(release)
	if c := r.idle(); c.Left["completed"] != 5 {
		t.Errorf("got %+v", c)
	}
	burnt := 0
	for _, e := range a.ends("") {
		if e.Outcome == worker.Retried {
			burnt++
		}
	}
	if burnt != 1 {
		t.Errorf("%d attempts were burnt", burnt)
	}
}

// TestAKilledProbeDoesNotWedgeItsBreaker kills the process that holds the only probe. If its lease ends first, the probe
// runs again elsewhere; if its own time does, half-open is over, and another probe closes the breaker.
func TestAKilledProbeDoesNotWedgeItsBreaker(t *testing.T) {
	t.Parallel()
	for timeout, lost := range map[string]string{"1m": "", "2s": "probe timeout, cooldown over, "} {
		t.Run(timeout, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			send := func(id string) {
				j := to("pay", id)
				j.Type, j.MaxAttempts = "probe", 2
				r.enqueue(j)
			}
			send("a")
			if signal := r.process(roleProbe + "=" + timeout).end(t); signal != syscall.SIGKILL {
				t.Fatalf("the worker ended by %v", signal)
			}
			dead := r.registrations()
			if lost == "" {
				r.expire(dead)
			}
			r.process(roleProbe + "=" + timeout)
			if lost != "" {
				r.await("the probe's time to be over", func() bool { return strings.Contains(r.causes(), strings.TrimSuffix(lost, ", ")) })
				r.expire(dead)
			}
			if c := r.idle(); c.Left["completed"] != 1 {
				t.Errorf("got %+v", c) // A probe that is lost burns no attempt, and the second was the last.
			}
			more := 0
			r.await("the breaker to close", func() bool {
				if r.census().Live == 0 && !strings.HasSuffix(r.causes(), "probes passed") { // The probe was slower than its time.
					more++
					send(fmt.Sprint("more-", more))
				}
				return strings.HasSuffix(r.causes(), "probes passed")
			})
			if causes, want := r.causes(), "failure streak, cooldown over, "+lost; !strings.HasPrefix(causes, want) {
				t.Errorf("got %s, want %s...", causes, want)
			}
			r.await("the slow start to end", func() bool { return r.gate() == "" })
		})
	}
}

func TestAProbeThatNoHandlerSawGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	config := worker.Config{
		Backoff: quick, Breaker: breaker.Config{FailureThreshold: 1, SuccessThreshold: 1, OpenBase: 50 * time.Millisecond, OpenMax: 50 * time.Millisecond},
	}
	var calls atomic.Int32
	a := r.runWithTimers(r.store, config, on("send", func(context.Context, worker.Job[[]byte]) error {
		if calls.Add(1) == 1 {
			return errDown
		}
		return nil
	}))
	r.enqueue(to("pay", "first"))
	r.await("the breaker to open", func() bool { return strings.HasPrefix(r.causes(), "failure streak") })
	stranger := to("pay", "stranger") // It goes back for want of a handler, as often as it is tried.
	stranger.Type = "unheard"
	r.enqueue(stranger)
	r.await("a probe to go back", func() bool { return strings.Contains(a.said("stranger"), "released(unknown_type)") })
	r.enqueue(to("pay", "second"))
	r.await("the breaker to close", func() bool { return strings.HasSuffix(r.causes(), "probes passed") })
	if strings.Contains(r.causes(), "probe failed") || strings.Contains(r.causes(), "probe timeout") {
		t.Errorf("got %s", r.causes())
	}
}

// causes returns the causes of the transitions of "pay", by commas.
func (r *rig) causes() string {
	r.tb.Helper()
	entries, err := r.client.XRange(context.WithoutCancel(r.tb.Context()), redisstore.Keys(r.store).Events(), "-", "+").Result()
	if err != nil {
		r.tb.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if cause, _ := e.Values["cause"].(string); e.Values["downstream"] == "pay" {
			all = append(all, cause)
		}
	}
	return strings.Join(all, ", ")
}

func TestSomeAnswersSayNothingAboutTheDownstream(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	config := worker.Config{Backoff: quick, Breaker: breaker.Config{FailureThreshold: 1, OpenBase: time.Minute}}
	a := r.runWithTimers(r.store, config, on("send", func(_ context.Context, job worker.Job[[]byte]) error {
		switch job.ID {
		case "ignored":
			return worker.Ignore(errDown)
		case "discarded":
			return worker.Discard(errDown)
		case "snoozed":
			if redistest.Now().Sub(job.Admitted) < 50*time.Millisecond {
				return worker.Snooze(100 * time.Millisecond)
			}
		}
		return nil
	}))
	r.enqueue(to("pay", "ignored"), to("pay", "discarded"), to("pay", "snoozed"))
	if c := r.idle(); c.Left["completed"] != 1 || c.Dead != 2 {
		t.Errorf("got %+v", c)
	}
	if status := a.Breakers(); len(status) != 1 || status[0].Opened != 0 || status[0].HeldBack != 0 {
		t.Errorf("got %+v", status)
	}
}
