package producer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
)

// openPressed returns a store with a queue whose pressure press sets, as the holder of the timer lease does: low jobs are shed at HIGH.
func openPressed(tb testing.TB) (s store.Deployment, press func(level admission.PressureLevel)) {
	tb.Helper()
	return openPressedBy(tb, policy.Policy{
		Tiers:   map[string]policy.Tier{policy.StandardTier: {Limit: admission.Limit{Disabled: true}}},
		Tenants: map[string]policy.Tenant{"tight": {Limit: &admission.Limit{Tokens: 20, Per: time.Second, Burst: 1}}},
		Queues:  map[string]policy.Queue{"mail": {Pressure: &policy.PressureRules{MaxDepth: 9}}},
		Shedding: &policy.Shedding{
			Order: []admission.Priority{"low", "medium"}, Reserve: []admission.Priority{"high"}, At: map[string][]string{"HIGH": {"low"}, "CRITICAL": {"low", "medium"}},
		},
	})
}

func openPressedBy(tb testing.TB, document policy.Policy) (s store.Deployment, press func(level admission.PressureLevel)) {
	tb.Helper()
	s = open(tb, redistest.Shared(tb).Client(tb))
	_, err := rollout.Put(tb.Context(), s, document, rollout.Edit{Author: "ada", Expected: rollout.AnyVersion})
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := newProducer(tb, s, producer.Config{}).Enqueue(tb.Context(), job("acme")); err != nil {
		tb.Fatal(err)
	}
	if _, err := s.Partitions()[0].Promote(tb.Context(), "s", time.Minute); err != nil {
		tb.Fatal(err)
	}
	version, err := s.PolicyInForce(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return s, func(level admission.PressureLevel) {
		tb.Helper()
		_, err := s.Press(tb.Context(), store.Press{
			Owner: "s", Version: version, Queue: "mail", Pressure: admission.Pressure{Level: level, Score: 0.9, RetryAfter: time.Second}, Life: time.Hour,
		})
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// TestWhoCanWaitSlowsDownWhereItsQueueIsPressed: for as long as the level says where that is longer than what its limit says, from HIGH on.
func TestWhoCanWaitSlowsDownWhereItsQueueIsPressed(t *testing.T) {
	t.Parallel()
	s, press := openPressed(t)
	p := newProducer(t, s, producer.Config{})
	for _, c := range []struct {
		level admission.PressureLevel
		waits bool
	}{{admission.PressureMedium, false}, {admission.PressureHigh, true}} {
		press(c.level)
		waited := false
		for !waited { // A machine may halt for longer than the limit's token takes to come.
			if _, err := p.Enqueue(t.Context(), job("tight")); errors.Is(err, admission.ErrLimited) {
				began := time.Now()
				if v, err := p.EnqueueWait(t.Context(), job("tight")); err != nil || v.Pressure.Level != c.level {
					t.Fatalf("%+v, %v", v, err)
				}
				took := time.Since(began)
				waited = took >= time.Second == c.waits
				if c.waits && took < time.Second && took > 10*time.Millisecond {
					t.Fatalf("at %v it waited for %v, want a second", c.level, took)
				}
			}
		}
	}
}

func low(id string) admission.Job {
	j := job("acme")
	j.ID, j.Priority = id, admission.Low
	return j
}

// TestAPressedQueueShedsWithoutACall: what Redis would shed by the level that it has just told is refused here, each way of enqueueing; other classes,
// and jobs that may be in already, go to Redis.
func TestAPressedQueueShedsWithoutACall(t *testing.T) {
	t.Parallel()
	s, press := openPressed(t)
	told := 0
	p := newProducer(t, s, producer.Config{Observer: producer.Observer{Decided: func(admission.Job, admission.Verdict, error) { told++ }}})
	press(admission.PressureHigh)
	first, err := p.Enqueue(t.Context(), low(""))
	if !errors.Is(err, admission.ErrShed) || first.Local {
		t.Fatalf("nothing was heard yet: %+v, %v", first, err)
	}
	asked := 1
	second, err := first, error(nil)
	for !second.Local { // Within a second after an answer, but a machine may halt.
		asked++
		second, err = p.Enqueue(t.Context(), low(""))
	}
	if !errors.Is(err, admission.ErrShed) || !second.Local || second.ID == "" || second.Detail != first.Detail || second.Pressure.Level != first.Pressure.Level ||
		second.RetryAfter < time.Second || second.RetryAfter > 1500*time.Millisecond {
		t.Errorf("a moment later: %+v, %v; Redis said %+v", second, err, first)
	}
	if v, err := p.Enqueue(t.Context(), low("mine")); !errors.Is(err, admission.ErrShed) || v.Local {
		t.Errorf("a job that may be in: %+v, %v", v, err)
	}
	asked++
	medium := job("acme")
	medium.Priority = admission.Medium
	var results []producer.Result
	for len(results) == 0 || !results[0].Verdict.Local || !results[2].Verdict.Local {
		asked += 3
		results, err = p.EnqueueBatch(t.Context(), []admission.Job{low(""), medium, low("")})
		if err == nil || !errors.Is(results[0].Err, admission.ErrShed) || results[1].Err != nil || !errors.Is(results[2].Err, admission.ErrShed) {
			t.Fatalf("a batch: %+v, %v", results, err)
		}
	}
	if told != asked {
		t.Errorf("the observer heard of %d answers, want %d", told, asked)
	}
	press(admission.PressureNone)
	if v, err := p.EnqueueWait(t.Context(), low("")); err != nil || v.Local {
		t.Errorf("once the queue is pressed no more: %+v, %v", v, err)
	}
}

// TestATierOfARecordIsNotShedWithoutACall: a producer that has heard how pressed a queue is does not shed by a tier that is no more its tenant's; what is shed
// of each tier it does.
func TestATierOfARecordIsNotShedWithoutACall(t *testing.T) {
	t.Parallel()
	off := policy.Tier{Limit: admission.Limit{Disabled: true}}
	s, press := openPressedBy(t, policy.Policy{
		TenantRecords: true,
		Tiers:         map[string]policy.Tier{policy.StandardTier: off, "premium": off},
		Queues:        map[string]policy.Queue{"mail": {Pressure: &policy.PressureRules{MaxDepth: 9}}},
		Shedding: &policy.Shedding{
			Order: []admission.Priority{"low"}, Reserve: []admission.Priority{"high", "medium"}, Tiers: []string{policy.StandardTier, "premium"},
			At: map[string][]string{"HIGH": {"low:standard"}, "CRITICAL": {"low"}},
		},
	})
	p := newProducer(t, s, producer.Config{})
	press(admission.PressureHigh)
	if v, err := p.Enqueue(t.Context(), low("")); !errors.Is(err, admission.ErrShed) || v.Detail != policy.StandardTier {
		t.Fatalf("%+v, %v", v, err)
	}
	read := func(ctx context.Context) (rollout.Rules, error) { return rollout.ReadRules(ctx, s) }
	_, err := rollout.EditRecord(t.Context(), s, read, "acme", rollout.Edit{Expected: rollout.AnyVersion}, func(policy.OwnLimits) (policy.OwnLimits, error) {
		return policy.OwnLimits{Tier: "premium"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := p.Enqueue(t.Context(), low("")); err != nil {
		t.Errorf("once its record names tier premium: %+v, %v", v, err)
	}
	press(admission.PressureCritical)
	for tries := 0; ; tries++ {
		v, err := p.Enqueue(t.Context(), low(""))
		if !errors.Is(err, admission.ErrShed) || v.Detail != "premium" {
			t.Fatalf("of each tier: %+v, %v", v, err)
		}
		if v.Local {
			break
		}
	}
}
