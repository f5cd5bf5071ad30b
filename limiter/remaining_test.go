package limiter

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
)

// TestAVerdictTellsWhatIsLeftWhereThatIsAsked, of the scope with the least, by each source.
func TestAVerdictTellsWhatIsLeftWhereThatIsAsked(t *testing.T) {
	t.Parallel()
	tenant := admission.Limit{Tokens: 1, Per: time.Hour, Burst: 10}
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Policy: fourLevels(admission.PerSecond(1000).WithBurst(2000), tenant), Timeout: patient, Exact: true})
	r := Request{Tenant: "acme", Queue: "mail", Cost: 3}
	ask := func() Verdict {
		t.Helper()
		v, err := l.Check(t.Context(), r)
		check(t, err)
		v.RetryAfter = v.RetryAfter.Round(time.Hour)
		return v
	}
	if v := ask(); v != (Verdict{Admitted: true}) {
		t.Errorf("unasked: %+v", v)
	}
	r.Remaining = true
	of := Verdict{Admitted: true, Scope: "acme", TokensLeft: 4, Burst: 10, Rate: tenant.Rate()}
	if v := ask(); v != of {
		t.Errorf("asked: %+v", v)
	}
	r.Cost = 5
	of.Admitted, of.Reason, of.RetryAfter = false, admission.ReasonLimited, time.Hour
	if v := ask(); v != of {
		t.Errorf("refused: %+v", v)
	}
	of.Source = Cached
	if v := ask(); v != of {
		t.Errorf("refused again: %+v", v)
	}
	if v, err := l.Check(t.Context(), Request{Tenant: "nobody", Remaining: true}); err != nil || v.Scope != admission.Global || v.Burst != 2000 || v.TokensLeft < 1990 {
		t.Errorf("of no limit but the global one: %+v, %v", v, err)
	}
}

// TestAVerdictByLeaseTellsALowerBound: what is on lease at the scope with the smallest burst, never more than the bucket had.
func TestAVerdictByLeaseTellsALowerBound(t *testing.T) {
	t.Parallel()
	limit := admission.Limit{Tokens: 60, Per: time.Hour, Burst: 10_000}
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Policy: limited(admission.PerSecond(1e9), limit), Timeout: patient})
	r := Request{Tenant: "acme", Remaining: true}
	leased := 0
	for spent := admission.Tokens(1); spent <= 5000; spent++ {
		v, err := l.Check(t.Context(), r)
		check(t, err)
		if !v.Admitted || v.Burst != 10_000 || v.Rate != limit.Rate() || v.Scope != "acme" || v.TokensLeft > 10_000-spent+1 {
			t.Fatalf("after %d: %+v", spent, v)
		}
		if v.Source == Leased {
			leased++
		}
	}
	if leased == 0 {
		t.Error("nothing came by lease")
	}
}
