package producer

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/admission"
)

func refusedFor(reason admission.Reason) error {
	return (&admission.RefusedError{Verdict: admission.Verdict{Reason: reason, Scope: "acme:mail", RetryAfter: time.Second}})
}

func TestALineOfARefusalSaysWhoAndWhy(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := &Producer{config: Config{Logger: zerolog.New(&out)}}
	job := admission.NewJob("acme", "mail", "send", []byte("secret"))
	job.ID = "a"
	p.decided(&job, admission.Verdict{}, refusedFor(admission.ReasonLimited))
	p.decided(&job, admission.Verdict{}, refusedFor(admission.ReasonLimited))
	p.decided(&job, admission.Verdict{}, admission.ErrUnavailable)
	var line map[string]any
	if err := json.Unmarshal([]byte(out.String()), &line); err != nil {
		t.Fatalf("%v in %s", err, out.String())
	}
	for key, want := range map[string]any{
		"level": "info", "tenant": "acme", "queue": "mail", "job": "a", "type": "send", "reason": "limited", "scope": "acme:mail",
		"refused": 1.0, "retry_after_ms": 1000.0, "message": "job refused",
	} {
		if line[key] != want {
			t.Errorf("%s is %v, want %v", key, line[key], want)
		}
	}
}

func TestAnObserverAndALogThatAreOffCostNothing(t *testing.T) { // Alone: others' allocations would count.
	refused := refusedFor(admission.ReasonLimited)
	for name, logger := range map[string]zerolog.Logger{"no log": {}, "a quiet log": zerolog.New(&strings.Builder{}).Level(zerolog.WarnLevel)} {
		p, ctx, job := &Producer{config: Config{Logger: logger}}, t.Context(), admission.NewJob("acme", "mail", "send", nil)
		cost := testing.AllocsPerRun(100, func() {
			if ended := p.enqueuing(ctx, &job); ended != nil {
				t.Error("somebody wants to hear the end")
			}
			p.decided(&job, admission.Verdict{}, nil)
			p.decided(&job, admission.Verdict{}, refused)
		})
		if cost != 0 {
			t.Errorf("%s: %v allocations", name, cost)
		}
		p.config.Observer.Enqueuing = func(context.Context, admission.Job) (map[string]string, func(admission.Verdict, error)) {
			return nil, func(admission.Verdict, error) {}
		}
		if p.enqueuing(ctx, &job) == nil {
			t.Error("the observer is not asked")
		}
	}
}
