package headgate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/policy"
)

// Estimates that nobody gives are learned. What went wrong with them elsewhere is in cost_test.go's list, and here by its number.

// TestTheFirstCallPassesALimitBelowTheFirstEstimate: 1,024 tokens refused every first call of a limit of 100 (BerriAI/litellm#29191).
func TestTheFirstCallPassesALimitBelowTheFirstEstimate(t *testing.T) {
	t.Parallel()
	perMinute(t, func(t *testing.T, _ *headgate.Client, limiter *headgate.Limiter) {
		t.Helper()
		none, err := limiter.Reserve(t.Context(), headgate.Request{Tenant: "acme", Queue: "llm"})
		check(t, err)
		check(t, none.Cancel(t.Context())) // It did not begin, so nothing is learned of it.
		first, err := limiter.Reserve(t.Context(), headgate.Request{Tenant: "acme", Queue: "llm"})
		check(t, err)
		if first.Reserved() != 100 {
			t.Errorf("the first reserves %d tokens of a burst of 100", first.Reserved())
		}
		check(t, first.Commit(t.Context(), 20))
		second, err := limiter.Reserve(t.Context(), headgate.Request{Tenant: "acme", Queue: "llm"})
		check(t, err)
		if second.Reserved() != 20 {
			t.Errorf("after one of 20 the next reserves %d", second.Reserved())
		}
		other, err := limiter.Reserve(t.Context(), headgate.Request{Tenant: "zeta", Queue: "llm"})
		check(t, err)
		if other.Reserved() != 100 {
			t.Errorf("another tenant's first reserves %d", other.Reserved())
		}
		if got := (headgate.Reservation{}).Reserved(); got != 0 {
			t.Errorf("none has reserved %d", got)
		}
	})
}

// TestFiveCallsWithoutACostSpendNoMoreThanTheLimitAndOneDebt: of five calls at once that nobody can estimate one passes, and once it has told that
// it cost 133 of 100 so much is owed (BerriAI/litellm#18730: 663 of 100).
func TestFiveCallsWithoutACostSpendNoMoreThanTheLimitAndOneDebt(t *testing.T) {
	t.Parallel()
	perMinute(t, func(t *testing.T, _ *headgate.Client, limiter *headgate.Limiter) {
		t.Helper()
		going := oneOfFive(t, limiter, headgate.Request{Tenant: "acme"})
		check(t, going.Commit(t.Context(), 133))
		_, err := limiter.Reserve(t.Context(), headgate.Request{Tenant: "acme"})
		no, refused := errors.AsType[*headgate.Refusal](err)
		if want := 133 * time.Minute / 100; !refused || no.Reason != headgate.ReasonLimited || no.RetryAfter > want || no.RetryAfter < want-10*time.Second {
			t.Errorf("33 below zero, of one that is guessed to cost the burst: %+v, want to wait %s", no, want)
		}
	})
}

// TestAnEstimateOfNothingIsChecked: an increment of zero passed unchecked (BerriAI/litellm#35422).
func TestAnEstimateOfNothingIsChecked(t *testing.T) {
	t.Parallel()
	perMinute(t, func(t *testing.T, _ *headgate.Client, limiter *headgate.Limiter) {
		t.Helper()
		for range 3 {
			r, err := limiter.Reserve(t.Context(), headgate.Request{Tenant: "acme"})
			check(t, err)
			check(t, r.Commit(t.Context(), 0))
		}
		spent, err := limiter.Reserve(t.Context(), headgate.Request{Tenant: "acme", Cost: 100})
		check(t, err)
		if _, err = limiter.Reserve(t.Context(), headgate.Request{Tenant: "acme"}); !errors.Is(err, headgate.ErrLimited) {
			t.Errorf("one that is guessed to cost nothing, of nothing: %v", err)
		}
		check(t, spent.Commit(t.Context(), 100))
	})
}

// TestAJobsCostIsLearned from what workers of the same client are told, and is cut to a burst that a record of the tenant's alone has.
func TestAJobsCostIsLearned(t *testing.T) {
	t.Parallel()
	perMinute(t, func(t *testing.T, hg *headgate.Client, _ *headgate.Limiter) {
		t.Helper()
		check(t, hg.Policy().Change(t.Context(), headgate.Edit{}, func(p *headgate.Policy) {
			p.Tier("standard").Limit = headgate.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 100}
		}))
		check(t, hg.Policy().ChangeRecord(t.Context(), "small", headgate.Edit{}, func(r *policy.OwnLimits) {
			r.Limit = &headgate.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 7}
		}))
		enqueue := func(tenant string, burst, left headgate.Tokens) {
			t.Helper()
			results, err := hg.EnqueueBatch(t.Context(), []headgate.Job{{Tenant: tenant, Queue: "llm", Cost: headgate.LearnedCost, Args: completion{"why"}}})
			check(t, err)
			if got := results[0].Receipt; got.Burst != burst || got.Remaining != left {
				t.Errorf("%s: %d of %d are left, want %d of %d", tenant, got.Remaining, got.Burst, left, burst)
			}
		}
		enqueue("acme", 100, 0)
		enqueue("small", 7, 0)   // Its record is not known here before the first job.
		workOff(t, hg, 3)        // Then it has learned.
		enqueue("acme", 100, 94) // 97 came back.
	})
}
