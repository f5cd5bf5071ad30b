package headgate_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// TestAWholePolicyIsSet: what it does not name is gone, tiers too.
func TestAWholePolicyIsSet(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	ctx := t.Context()
	check(t, hg.Policy().Change(ctx, headgate.Edit{}, func(p *headgate.Policy) { p.Tenant("acme").MaxRunning = 2 }))
	whole := policy.Policy{Tiers: map[string]policy.Tier{policy.StandardTier: {Limit: headgate.PerSecond(5)}, "gold": {Limit: headgate.PerSecond(50)}}}
	check(t, hg.Policy().Set(ctx, whole, headgate.Edit{Author: "ada", Reason: "two plans"}))
	now, err := hg.Policy().Current(ctx)
	if err != nil || now.Version != 2 || len(now.Tenants) != 0 || len(now.Tiers) != 2 || now.Tiers["gold"].Limit != headgate.PerSecond(50) {
		t.Errorf("%+v, %v", now, err)
	}
	check(t, hg.Policy().Apply(ctx, []byte(`{"$schema": "./policy.schema.json"}`), headgate.Edit{Replace: true})) // As editors have it.
	whole.Tiers = map[string]policy.Tier{"gold": {}}
	if err := hg.Policy().Set(ctx, whole, headgate.Edit{}); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("without the standard tier: %v", err)
	}
}

// TestEnqueueWaitWaitsForWhatPasses and returns at once what does not.
func TestEnqueueWaitWaitsForWhatPasses(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	ctx := t.Context()
	check(t, hg.Policy().Change(ctx, headgate.Edit{}, func(p *headgate.Policy) {
		p.Tenant("acme").Limit = &headgate.Limit{Tokens: 1, Per: 50 * time.Millisecond, Burst: 1}
	}))
	job := func(id string) headgate.Job {
		return headgate.Job{Tenant: "acme", Queue: "mail", Args: welcome{}, ID: id, Unique: headgate.Unique{Key: id[:1]}}
	}
	for _, id := range []string{"a1", "b1", "c1"} {
		if receipt, err := hg.EnqueueWait(ctx, job(id)); err != nil || receipt.ID != id || receipt.Burst != 1 {
			t.Errorf("%+v, %v", receipt, err)
		}
	}
	dear := job("d1")
	dear.Cost = 2
	for reason, job := range map[headgate.Reason]headgate.Job{headgate.ReasonUnique: job("a2"), headgate.ReasonTooCostly: dear} {
		_, err := hg.EnqueueWait(ctx, job)
		if no, ok := errors.AsType[*headgate.Refusal](err); !ok || no.Reason != reason {
			t.Errorf("%v, want %s", err, reason)
		}
	}
	if _, err := hg.EnqueueWait(ctx, headgate.Job{Tenant: "a b"}); !errors.Is(err, headgate.ErrInvalid) {
		t.Errorf("bad fields: %v", err)
	}
}

// TestAClosedClientSaysSo at once, and that nothing was sent.
func TestAClosedClientSaysSo(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	check(t, hg.Close())
	job := headgate.Job{Tenant: "acme", Queue: "mail", Args: welcome{}, ID: "a"}
	receipt, err := hg.Enqueue(t.Context(), job)
	results, many := hg.EnqueueBatch(t.Context(), []headgate.Job{job})
	_, waited := hg.EnqueueWait(t.Context(), job)
	for _, err := range []error{err, many, results[0].Err, waited} {
		if !errors.Is(err, headgate.ErrClosed) || !errors.Is(err, headgate.ErrUnavailable) || errors.Is(err, headgate.ErrOutcomeUnknown) {
			t.Errorf("%v", err)
		}
	}
	if receipt.ID != "a" || results[0].Receipt.ID != "a" {
		t.Errorf("%+v, %+v", receipt, results)
	}
}

// TestAWorkerWithoutHandlersDoesNotRun: it would hand back every job.
func TestAWorkerWithoutHandlersDoesNotRun(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	if err := hg.Worker(headgate.WorkerConfig{Queues: headgate.Weights{"mail": 1}}).Run(t.Context()); !errors.Is(err, headgate.ErrInvalid) || !strings.Contains(err.Error(), "handler") {
		t.Errorf("%v", err)
	}
}
