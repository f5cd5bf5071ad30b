package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/worker"
)

// lines returns what the log says with a message that begins so, as fields.
func (l *logs) lines(tb testing.TB, message string) (found []map[string]any) {
	tb.Helper()
	for line := range strings.Lines(l.String()) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			tb.Fatalf("%s: %v", line, err)
		}
		if text, _ := fields["message"].(string); strings.HasPrefix(text, message) {
			found = append(found, fields)
		}
	}
	return found
}

// TestTheLogSaysHowHandlersFail: a warning while the job comes back, an error where it does not, who, why, and nothing of a payload.
func TestTheLogSaysHowHandlersFail(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const secret = "41111111"
	a := r.runWithTimers(r.store, worker.Config{Backoff: quick}, func(w *worker.Worker) {
		worker.Register(w, "fail", func(_ context.Context, job worker.Job[letter]) error {
			return fmt.Errorf("no answer to attempt %d", job.Attempt)
		})
		worker.Register(w, "burst", func(context.Context, worker.Job[[]byte]) error { panic("too much") })
		worker.Register(w, "decode", func(context.Context, worker.Job[struct{ Card int8 }]) error { return nil })
	})
	for _, jobType := range []string{"fail", "burst", "decode"} {
		j := job(jobType, jobType)
		j.Payload, j.MaxAttempts = fmt.Appendf(nil, `{"to":%q}`, secret), 2
		if jobType == "decode" {
			j.Payload = fmt.Appendf(nil, `{"card":%s}`, secret)
		}
		if jobType == "burst" {
			j.MaxAttempts = 1
		}
		r.enqueue(j)
	}
	if c := r.idle(); c.Dead != 3 {
		t.Errorf("got %+v", c)
	}
	r.await("the events", func() bool { return len(a.ends("")) == 4 })
	warned := a.logs.lines(t, "job failed: it is retried")
	if len(warned) != 1 || warned[0]["level"] != "warn" || warned[0]["error"] != "no answer to attempt 1" || warned[0]["comes_back_in"] != "10ms" {
		t.Errorf("got %v", warned)
	}
	dead := map[string]map[string]any{}
	for _, line := range a.logs.lines(t, "job failed: it is a dead letter") {
		dead[fmt.Sprint(line["job"])] = line
	}
	for id, reason := range map[string]string{"fail": "max_attempts", "burst": "max_attempts", "decode": "bad_payload"} {
		line := dead[id]
		if line["level"] != "error" || line["tenant"] != "acme" || line["queue"] != "mail" || line["type"] != id || line["reason"] != reason || line["attempt"] == nil {
			t.Errorf("%s: got %v", id, line)
		}
	}
	if line := dead["burst"]; line["error"] != "panic: too much" || !strings.Contains(fmt.Sprint(line["stack"]), "failures_test.go") {
		t.Errorf("got %v", line)
	}
	if strings.Contains(a.logs.String(), secret) {
		t.Errorf("the log has a payload:\n%s", a.logs)
	}
}

// TestFailuresOfOneCauseDoNotFloodTheLog has jobs fail by hundreds, with an error that names each.
func TestFailuresOfOneCauseDoNotFloodTheLog(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.run(r.store, worker.Config{Concurrency: 16}, on("send", func(_ context.Context, job worker.Job[[]byte]) error {
		return fmt.Errorf("order %s: connection refused", strings.TrimPrefix(job.ID, "job-"))
	}))
	const jobs = 400
	for from := 0; from < jobs; from += 100 {
		batch := make([]admission.Job, 100)
		for i := range batch {
			batch[i] = job("send", fmt.Sprint("job-", from+i))
			batch[i].MaxAttempts = 1
		}
		r.enqueue(batch...)
	}
	if c := r.idle(); c.Dead != jobs {
		t.Errorf("got %+v", c)
	}
	r.await("the events", func() bool { return len(a.ends("")) == jobs })
	// One line at once and one in ten seconds: this takes less than a minute.
	if n := len(a.logs.lines(t, "job failed")); n < 1 || n > 8 {
		t.Errorf("%d lines", n)
	}
}

// quoting is an error whose text quotes a payload.
type quoting struct{}

func (quoting) Error() string { return "answered 422: no such card 41111111" }
func (quoting) Brief() string { return "answered 422" }

// burstingError is one whose Brief panics.
type burstingError struct{ quoting }

func (burstingError) Brief() string { panic("too much") }

func TestABriefThatPanicsTellsNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.run(r.store, worker.Config{}, on("send", func(context.Context, worker.Job[[]byte]) error { return worker.Discard(burstingError{}) }))
	r.enqueue(job("send", "a"))
	r.await("the event", func() bool { return a.said("a") == "dead(discarded)" })
	if lines := a.logs.lines(t, "job failed"); len(lines) != 1 || lines[0]["error"] != "an error whose Brief panicked" {
		t.Errorf("got %v", lines)
	}
}

func TestAnErrorMaySayWhatOfItIsLogged(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.run(r.store, worker.Config{}, on("send", func(context.Context, worker.Job[[]byte]) error { return worker.Discard(quoting{}) }))
	r.enqueue(job("send", "a"))
	r.await("the event", func() bool { return a.said("a") == "dead(discarded)" })
	if lines := a.logs.lines(t, "job failed"); len(lines) != 1 || lines[0]["error"] != "answered 422" {
		t.Errorf("got %v", lines)
	}
	if got := r.why(); got != "discarded|answered 422: no such card 41111111" {
		t.Errorf("got %s", got)
	}
}

// TestAFailedProbeSaysWhy: the breaker tells that it is open again, the log of the worker what the error was.
func TestAFailedProbeSaysWhy(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.runWithTimers(r.store, worker.Config{}, on("send", func(context.Context, worker.Job[[]byte]) error { return errDown }))
	r.halfOpen("pay")
	r.enqueue(to("pay", "probe"))
	r.await("the probe to fail", func() bool { return strings.HasPrefix(a.said("probe"), "released(probe_failed)") })
	lines := a.logs.lines(t, "probe of a downstream failed")
	if len(lines) != 1 || lines[0]["level"] != "warn" || lines[0]["downstream"] != "pay" || lines[0]["error"] != errDown.Error() {
		t.Errorf("got %v", lines)
	}
}

func TestAWorkerThatLogsErrorsAloneDoesNotWarn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var said logs
	logger := zerolog.New(&said).Level(zerolog.ErrorLevel)
	a := r.runLogging(logger, worker.Config{Backoff: quick}, on("send", func(context.Context, worker.Job[[]byte]) error { return errDown }))
	j := job("send", "a")
	j.MaxAttempts = 2
	r.enqueue(j)
	r.await("the events", func() bool { return a.said("a") == "retried,dead" })
	if lines := said.lines(t, "job failed"); len(lines) != 1 || lines[0]["outcome"] != "dead" {
		t.Errorf("got %v", lines)
	}
}

// TestAnEmptyPayloadIsTheZeroValue, as is none at all.
func TestAnEmptyPayloadIsTheZeroValue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := r.runWithTimers(r.store, worker.Config{}, func(w *worker.Worker) {
		worker.Register(w, "invoices", func(_ context.Context, job worker.Job[letter]) error {
			if job.Args != (letter{}) {
				return fmt.Errorf("got %+v", job.Args)
			}
			return nil
		})
		worker.Register(w, "count", func(_ context.Context, job worker.Job[*int]) error {
			if job.Args != nil {
				return fmt.Errorf("got %d", *job.Args)
			}
			return nil
		})
	})
	j := job("count", "empty")
	j.Payload = []byte{}
	r.enqueue(admission.NewJob("acme", "mail", "invoices", nil), j)
	r.await("both", func() bool { return len(a.ends("")) == 2 })
	for _, e := range a.ends("") {
		if e.Outcome != worker.Completed {
			t.Errorf("%s is %s: %v", e.Key, e.Outcome, e.Err)
		}
	}
}

// TestAHandlerThatIsCutSaysByWhat, whatever error it makes of it.
func TestAHandlerThatIsCutSaysByWhat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, downstream, want string }{
		{"by the job", "own", "max_attempts|cut after 20ms by the time-out of the job: context deadline exceeded"},
		{"by what it calls", "slow", "max_attempts|cut after 30ms by call_timeout of downstream slow: context deadline exceeded"},
		{"by any call", "fast", "max_attempts|cut after 40ms by call_timeout of any downstream, here fast: context deadline exceeded"},
		{"by the worker", "", "max_attempts|cut after 50ms by the worker's time-out: context deadline exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.run(r.store, worker.Config{
				DefaultTimeout: 50 * time.Millisecond, CallTimeout: 40 * time.Millisecond, CallTimeouts: map[string]time.Duration{"slow": 30 * time.Millisecond},
			}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
				<-ctx.Done()
				return ctx.Err()
			}))
			j := to(c.downstream, "a")
			j.MaxAttempts = 1
			if c.downstream == "own" {
				j.Timeout = 20 * time.Millisecond
			}
			r.enqueue(j)
			r.idle()
			if got := r.why(); got != c.want {
				t.Errorf("got %s", got)
			}
		})
	}
}
