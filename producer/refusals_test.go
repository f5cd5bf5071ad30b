package producer

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"github.com/headgate/headgate"
)

func refusedFor(reason headgate.Reason) error {
	return (&headgate.RefusedError{Verdict: headgate.Verdict{Reason: reason, Scope: "acme:mail", RetryAfter: time.Second}})
}

// TestTheNumbersOfRefusalsAddUp: whatever comes when, a line a second at most for each reason, and none is forgotten.
func TestTheNumbersOfRefusalsAddUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		var all refusals
		now := time.Unix(1e9, 0)
		came, said, last := map[headgate.Reason]int64{}, map[headgate.Reason]int64{}, map[headgate.Reason]time.Time{}
		note := func(reason headgate.Reason) {
			came[reason]++
			count, due := all.count(reason, now)
			if !due {
				return
			}
			said[reason] += count
			if now.Sub(last[reason]) < refusalsEvery {
				r.Fatalf("%s is logged again after %s", reason, now.Sub(last[reason]))
			}
			last[reason] = now
		}
		for range rapid.IntRange(1, 100).Draw(r, "refusals") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(2*refusalsEvery)).Draw(r, "pause")))
			note(rapid.SampledFrom([]headgate.Reason{headgate.ReasonLimited, headgate.ReasonPaused}).Draw(r, "reason"))
		}
		now = now.Add(refusalsEvery)
		for reason := range came {
			if note(reason); came[reason] != said[reason] {
				r.Fatalf("%d of %d are logged as %s", said[reason], came[reason], reason)
			}
		}
	})
}

func TestALineOfARefusalSaysWhoAndWhy(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	p := &Producer{config: Config{Logger: zerolog.New(&out)}}
	job := headgate.NewJob("acme", "mail", "send", []byte("secret"))
	job.ID = "a"
	p.decided(&job, headgate.Verdict{}, refusedFor(headgate.ReasonLimited))
	p.decided(&job, headgate.Verdict{}, refusedFor(headgate.ReasonLimited))
	p.decided(&job, headgate.Verdict{}, headgate.ErrUnavailable)
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
	refused := refusedFor(headgate.ReasonLimited)
	for name, logger := range map[string]zerolog.Logger{"no log": {}, "a quiet log": zerolog.New(&strings.Builder{}).Level(zerolog.WarnLevel)} {
		p, ctx, job := &Producer{config: Config{Logger: logger}}, t.Context(), headgate.NewJob("acme", "mail", "send", nil)
		cost := testing.AllocsPerRun(100, func() {
			if ended := p.enqueuing(ctx, &job); ended != nil {
				t.Error("somebody wants to hear the end")
			}
			p.decided(&job, headgate.Verdict{}, nil)
			p.decided(&job, headgate.Verdict{}, refused)
		})
		if cost != 0 {
			t.Errorf("%s: %v allocations", name, cost)
		}
		p.config.Observer.Enqueuing = func(context.Context, headgate.Job) (map[string]string, func(headgate.Verdict, error)) {
			return nil, func(headgate.Verdict, error) {}
		}
		if p.enqueuing(ctx, &job) == nil {
			t.Error("the observer is not asked")
		}
	}
}
