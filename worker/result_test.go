package worker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

func TestAResultIsThereOnceTheJobHasCompleted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	large := bytes.Repeat([]byte("x"), worker.MaxResult)
	r.runWithTimers(r.store, worker.Config{Backoff: quick}, on("send", func(ctx context.Context, job worker.Job[[]byte]) error {
		data := fmt.Appendf(nil, "%s, attempt %d", job.ID, job.Attempt)
		if strings.HasPrefix(job.ID, "large") {
			data = bytes.Clone(large)
		}
		if err := worker.SetResult(ctx, []byte("not the last word"), time.Hour); err != nil {
			t.Error(err)
		}
		if err := worker.SetResult(ctx, data, time.Hour); err != nil {
			t.Error(err)
		}
		clear(data[:min(len(data), 4)]) // The result is a copy.
		if job.ID == "dead" || job.Attempt == 1 && job.ID == "retried" {
			return errDown
		}
		return nil
	}))
	for _, id := range []string{"plain", "retried", "large", "dead"} {
		j := job("send", id)
		j.MaxAttempts = 2
		r.enqueue(j)
	}
	for i := range 20 { // More than fits one call to Redis.
		r.enqueue(job("send", fmt.Sprint("large-", i)))
	}
	if c := r.idle(); c.Left["completed"] != 23 || c.Dead != 1 {
		t.Errorf("got %+v", c)
	}
	for id, want := range map[string]string{"plain": "plain, attempt 1", "retried": "retried, attempt 2", "large": string(large)} {
		got, err := r.producer.Result(t.Context(), "acme", id)
		if err != nil || string(got) != want {
			t.Errorf("%s: %d bytes %.40q, %v", id, len(got), got, err)
		}
		if left := r.client.PTTL(t.Context(), redisstore.Keys(r.store).Result("acme:"+id)).Val(); left <= 59*time.Minute || left > time.Hour {
			t.Errorf("%s is kept for %s", id, left)
		}
	}
	for _, id := range []string{"dead", "stranger"} {
		if _, err := r.producer.Result(t.Context(), "acme", id); !errors.Is(err, admission.ErrUnknownJob) || err.Error() != "read result of acme:"+id+": unknown job" {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := r.producer.Result(t.Context(), "", "a b"); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("got %v", err)
	}
}

func TestABadResultIsOneClearError(t *testing.T) {
	t.Parallel()
	if err := worker.SetResult(t.Context(), nil, time.Hour); !errors.Is(err, worker.ErrNoJob) || err.Error() != "not the ctx of a handler" {
		t.Errorf("got %v", err)
	}
	r := newRig(t)
	got := make(chan []error, 1)
	r.run(r.store, worker.Config{}, on("send", func(ctx context.Context, _ worker.Job[[]byte]) error {
		got <- []error{
			worker.SetResult(ctx, make([]byte, worker.MaxResult+1), time.Hour), worker.SetResult(ctx, nil, time.Millisecond),
			worker.SetResult(ctx, nil, worker.MaxKeepResult+1),
		}
		return nil
	}))
	r.enqueue(job("send", "a"))
	for i, err := range <-got {
		want := []string{
			"invalid result 65537 bytes: allowed is 0 to 65536 bytes", "invalid keep 1ms: allowed is 1s to 720h",
			"invalid keep 720h0m0.000000001s: allowed is 1s to 720h",
		}[i]
		if !errors.Is(err, admission.ErrInvalid) || err.Error() != want {
			t.Errorf("got %v", err)
		}
	}
	r.idle()
	if _, err := r.producer.Result(t.Context(), "acme", "a"); !errors.Is(err, admission.ErrUnknownJob) {
		t.Errorf("got %v", err)
	}
}
