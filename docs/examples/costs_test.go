package examples_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/headgatetest"
	"github.com/headgate/headgate/policy"
)

// Completion asks a model.
type Completion struct{ Prompt string }

func (Completion) Kind() string { return "completion" }

// answer is what a model says, and what it has counted.
type answer struct {
	Text  string
	Usage struct{ Total headgate.Tokens }
}

// model answers with as many tokens as it is told.
type model headgate.Tokens

func (m model) Complete(_ context.Context, prompt string) (a answer, err error) {
	a.Text, a.Usage.Total = "answer to "+prompt, headgate.Tokens(m)
	return a, nil
}

// perMinute gives each tenant 10,000 tokens a minute.
func perMinute(t *testing.T, hg *headgate.Client) {
	t.Helper()
	//snippet:begin limit
	err := hg.Policy().Change(t.Context(), headgate.Edit{Author: "ada", Reason: "tokens of the model"}, func(p *headgate.Policy) {
		p.Tier("standard").Limit = headgate.PerMinute(10_000).WithBurst(10_000)
	})
	//snippet:end
	check(t, err)
}

func TestAJobTellsWhatItHasCost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hg := headgatetest.New(t)
		ctx := t.Context()
		perMinute(t, hg.Client)
		w := hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"llm": 1}})
		llm := model(12_500)
		//snippet:begin job
		headgate.Handle(w, func(ctx context.Context, job *headgate.Run[Completion]) error {
			said, err := llm.Complete(ctx, job.Args.Prompt)
			if err != nil {
				return err // it comes back; its reservation stands
			}
			return job.SetCost(said.Usage.Total)
		})

		_, err := hg.Enqueue(ctx, headgate.Job{Tenant: "acme", Queue: "llm", Cost: 800, Args: Completion{"why?"}})
		//snippet:end
		check(t, err)
		hg.Drain()
		_, err = hg.Enqueue(ctx, headgate.Job{Tenant: "acme", Queue: "llm", Cost: 800, Args: Completion{"and?"}})
		no, refused := errors.AsType[*headgate.Refusal](err)
		if !refused || no.Remaining != -2500 || no.RetryAfter > 19800*time.Millisecond || no.RetryAfter < 19790*time.Millisecond {
			t.Errorf("2,500 below zero, for 800 more: %+v", no)
		}
		hg.Advance(no.RetryAfter)
		_, err = hg.Enqueue(ctx, headgate.Job{Tenant: "acme", Queue: "llm", Cost: 800, Args: Completion{"and?"}})
		check(t, err)
	})
}

func TestACallTellsWhatItHasCost(t *testing.T) {
	t.Parallel()
	hg := open(t)
	perMinute(t, hg)
	limiter, err := hg.Limiter(headgate.LimiterConfig{Timeout: time.Second})
	check(t, err)
	t.Cleanup(func() { check(t, limiter.Close(context.WithoutCancel(t.Context()))) })
	text, err := complete(t.Context(), limiter, model(700), "why?")
	if err != nil || text != "answer to why?" {
		t.Errorf("%s, %v", text, err)
	}
}

//snippet:begin reserve

func complete(ctx context.Context, limiter *headgate.Limiter, llm model, prompt string) (string, error) {
	reserved, err := limiter.Reserve(ctx, headgate.Request{Tenant: "acme", Queue: "llm", Cost: 800})
	if err != nil {
		return "", err // a *headgate.Refusal says when to come again
	}
	said, err := llm.Complete(ctx, prompt)
	if err != nil {
		return "", errors.Join(err, reserved.Cancel(ctx))
	}
	return said.Text, reserved.Commit(ctx, said.Usage.Total)
}

//snippet:end

// TestUsageIsTold of a job and of a call without one.
func TestUsageIsTold(t *testing.T) {
	t.Parallel()
	for _, where := range []func(testing.TB) *headgate.Client{open, func(tb testing.TB) *headgate.Client {
		tb.Helper()
		hg, err := headgate.Open(tb.Context(), "memory:", headgate.Config{})
		check(tb, err)
		tb.Cleanup(func() { check(tb, hg.Close()) })
		return hg
	}} {
		hg := where(t)
		//snippet:begin usage
		err := hg.Policy().Change(t.Context(), headgate.Edit{Author: "ada", Reason: "bills"}, func(p *headgate.Policy) {
			p.Document.Usage = &policy.UsageRules{}
		})
		//snippet:end
		check(t, err)
		perMinute(t, hg)
		limiter, err := hg.Limiter(headgate.LimiterConfig{Timeout: 5 * time.Second})
		check(t, err)
		t.Cleanup(func() { check(t, limiter.Close(context.WithoutCancel(t.Context()))) })
		_, err = complete(t.Context(), limiter, model(700), "why?")
		check(t, err)
		_, err = hg.Enqueue(t.Context(), headgate.Job{Tenant: "acme", Queue: "llm", Cost: 300, Args: Completion{"and?"}})
		check(t, err)
		bill, err := billOf(t.Context(), hg, "acme", time.Now().Add(-24*time.Hour))
		check(t, err)
		if bill != 1000 {
			t.Errorf("%d tokens, want 700 and 300", bill)
		}
	}
}

//snippet:begin bill

func billOf(ctx context.Context, hg *headgate.Client, tenant string, from time.Time) (tokens headgate.Tokens, err error) {
	for u, err := range hg.Inspect().Usage(ctx, headgate.UsageFilter{Tenant: tenant, From: from}) {
		if err != nil {
			return 0, err
		}
		tokens += u.Committed
	}
	return tokens, nil
}

//snippet:end
