package limiter

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// limitedBoth is a policy without a global limit and with one each for the tenants acme and zeta.
func limitedBoth(acme, zeta admission.Limit) Config {
	p := limited(none, acme)
	p.Tenants["zeta"] = p.Tenants["acme"]
	zetas := p.Tenants["zeta"]
	zetas.Limit = &zeta
	p.Tenants["zeta"] = zetas
	return Config{Policy: p, Timeout: patient}
}

func together(tb testing.TB, l *Limiter, requests ...Request) Together {
	tb.Helper()
	made, err := l.CheckTogether(tb.Context(), requests)
	check(tb, err)
	return made
}

// leftOf is what Redis holds of a tenant.
func leftOf(tb testing.TB, l *Limiter, tenant string) admission.Tokens {
	tb.Helper()
	q, err := questionOf(l.policy.Load(), route{tenant: tenant}, 1)
	check(tb, err)
	_, answers, err := l.store.Check(tb.Context(), l.policy.Load().Version(), true, []store.Question{q})
	check(tb, err)
	return answers[0].Left[admission.LevelTenant].Tokens()
}

func TestWhatIsAskedTogetherIsTakenTogether(t *testing.T) {
	t.Parallel()
	day := func(burst admission.Tokens) admission.Limit {
		return admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: burst}
	}
	l := start(t, open(t, redistest.Shared(t).Client(t)), limitedBoth(day(10), day(5)))
	acme, zeta := Request{Tenant: "acme", Cost: 4}, Request{Tenant: "zeta", Cost: 4}
	made := together(t, l, acme, zeta)
	if !made.Admitted || made.Source != Exact || made.Answers[0].Left[admission.LevelTenant].Tokens() != 6 || made.Answers[1].Left[admission.LevelTenant].Tokens() != 1 {
		t.Fatalf("%+v", made)
	}
	made = together(t, l, acme, zeta)
	if made.Admitted || made.Answers[0].Verdict.Decision != admission.Admitted || made.Answers[1].Verdict.Scope != "zeta" || made.Answers[1].Verdict.RetryAfter == 0 {
		t.Errorf("%+v", made)
	}
	if left := leftOf(t, l, "acme"); left != 6 {
		t.Errorf("acme has %d tokens left of 6, after zeta's refusal", left)
	}
	if alone := together(t, l, zeta); alone.Admitted || alone.Source != Exact {
		t.Errorf("%+v", alone)
	}
	made = together(t, l, acme, zeta)
	if v := made.Answers[1].Verdict; made.Source != Cached || made.Admitted || v.Scope != "zeta" || v.TokensLeft != 1 || v.Burst != 5 || v.RetryAfter <= 0 {
		t.Errorf("a denial that is known: %+v", made)
	}
	for name, bad := range map[string][]Request{
		"none": nil, "too many": make([]Request, MaxTogether+1), "a name": {{Tenant: "a b"}}, "a class": {{Tenant: "acme", Queue: "q", Class: "no"}}, "a cost": {{Cost: -1}},
	} {
		if made, err := l.CheckTogether(t.Context(), bad); err == nil {
			t.Errorf("%s: %+v", name, made)
		}
	}
}

// TestWhatIsOnLeaseIsTakenTogether: whatever goes on at a time, what was admitted, what Redis holds when the leases are back, and what is told as lost are a burst.
// In the test's own time, in which a call takes 0.2 ms on any machine, no lease ends: what is on one that does is lost to its bucket.
func TestWhatIsOnLeaseIsTakenTogether(t *testing.T) {
	t.Parallel()
	const burst = 4000
	slow := admission.Limit{Tokens: 12, Per: 24 * time.Hour, Burst: burst}
	config := limitedBoth(slow, admission.Limit{Tokens: 12, Per: 24 * time.Hour, Burst: burst / 2})
	config.Count = true
	const colds = 50 // tenants of whom nothing is on lease when they are asked for
	for n := range colds {
		config.Policy.Tenants[fmt.Sprint("cold-", n)] = config.Policy.Tenants["zeta"]
	}
	v := newVirtual()
	v.scopes = []admission.Scope{"acme", "zeta"}
	l := start(t, open(t, v.client(t)), config)
	l.clock.set = &v.process
	ask := func(requests ...Request) Together {
		v.pass(200 * time.Microsecond)
		return together(t, l, requests...)
	}
	var alone admission.Tokens // what acme spends beside nobody, or beside a cold tenant
	for leased := false; !leased; {
		made := ask(Request{Tenant: "acme"})
		if leased = made.Source == Leased; !made.Admitted {
			t.Fatalf("%+v", made)
		}
		alone++
	}
	for n := range colds {
		if made := ask(Request{Tenant: "acme"}, Request{Tenant: fmt.Sprint("cold-", n)}); !made.Admitted {
			t.Fatalf("%+v", made)
		}
		alone++
	}
	before := uint64(alone) + colds
	var admitted atomic.Int64
	var callers sync.WaitGroup
	for range 8 {
		callers.Go(func() {
			for range 300 {
				if made := ask(Request{Tenant: "acme", Cost: 2}, Request{Tenant: "zeta"}); made.Admitted {
					admitted.Add(1)
				}
			}
		})
	}
	callers.Wait()
	sources := map[Source]uint64{}
	stats := l.Stats()
	for _, c := range stats.Checks {
		sources[c.Source] += c.N
	}
	if sources[Leased] == 0 || sources[Exact] == 0 || sources[Leased]+sources[Exact]+sources[Cached] != before+8*300*2 {
		t.Errorf("%v", sources)
	}
	check(t, l.Close(t.Context()))
	acme, zeta := leftOf(t, l, "acme"), leftOf(t, l, "zeta")
	lost := admission.Tokens(0)
	for _, level := range stats.Levels {
		lost += level.Lost
	}
	n := admission.Tokens(admitted.Load())
	ofAcme, ofZeta := burst-(acme+alone+2*n), burst/2-(zeta+n)
	if n < burst/4 || ofAcme < 0 || ofZeta < 0 || ofAcme+ofZeta != lost {
		t.Errorf("%d and %d were admitted, %d of %d and %d of %d are left, and %d are lost", alone, n, acme, burst, zeta, burst/2, lost)
	}
	if _, err := l.CheckTogether(t.Context(), []Request{{Tenant: "acme", Queue: "new"}}); err == nil {
		t.Error("a closed limiter answers")
	}
}

// TestWithoutRedisAllOrNone: law L13, and that what one scope's mode refuses costs the others nothing, neither of their shares nor as a debt.
func TestWithoutRedisAllOrNone(t *testing.T) {
	t.Parallel()
	day := admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 10}
	config := limitedBoth(day, day)
	config.Timeout, config.OutageAt = patient, map[admission.Scope]Outage{"zeta": OutageClosed} // A refused connection takes none of it.
	o := newOutage(t, config)
	l := o.limiter
	acme, zeta := Request{Tenant: "acme"}, Request{Tenant: "zeta"}
	if made := together(t, l, acme, zeta); !made.Admitted || made.Source != Exact {
		t.Fatalf("%+v", made)
	}
	o.server.Kill(t)
	for range 20 {
		made := together(t, l, acme, zeta)
		if v := made.Answers[1].Verdict; made.Admitted || made.Source != Blind || v.Reason != admission.ReasonUnavailable || v.Scope != "zeta" || v.RetryAfter <= 0 {
			t.Fatalf("%+v", made)
		}
	}
	admitted := 0
	for range 20 {
		made := together(t, l, acme, Request{Tenant: "acme", Queue: "mail"})
		if made.Admitted {
			admitted++
		} else if v := made.Answers[1].Verdict; v.Reason != admission.ReasonLimited && made.Answers[0].Verdict.Reason != admission.ReasonLimited {
			t.Errorf("%+v", made)
		}
	}
	if admitted != 5 {
		t.Errorf("%d pairs were admitted of a share of 10", admitted)
	}
	o.server.Restart(t)
	late := admission.Tokens(0) // Questions that had no answer in time, which Redis may have charged all the same.
	for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		asked := time.Now()
		if made := together(t, l, Request{Tenant: "zeta"}); made.Source == Exact {
			break
		}
		if time.Since(asked) >= 100*time.Millisecond { // A refused connection is known at once.
			late++
		}
		if time.Now().After(deadline) {
			t.Fatal("redis did not answer within a minute")
		}
	}
	l.line.flying.Wait()
	if left := leftOf(t, l, "acme"); left != 0 {
		t.Errorf("acme, which has had 1 and then 10 without redis, has %d tokens left", left)
	}
	if left := leftOf(t, l, "zeta"); left > 8 || left < 8-late {
		t.Errorf("zeta, which has had 2, perhaps %d more, and owes nothing, has %d tokens left", late, left)
	}
}

func TestTogetherIsOfOnePartition(t *testing.T) {
	t.Parallel()
	s := openParts(t)
	tenants := tenantsOf(s)
	l := start(t, s, Config{Timeout: patient})
	if made := together(t, l, Request{Tenant: tenants[1]}, Request{Tenant: tenants[1], Queue: "mail"}, Request{}); !made.Admitted {
		t.Errorf("%+v", made)
	}
	if made := together(t, l, Request{}); !made.Admitted {
		t.Errorf("%+v", made)
	}
	if made, err := l.CheckTogether(t.Context(), []Request{{Tenant: tenants[0]}, {Tenant: tenants[1]}}); err == nil {
		t.Errorf("%+v", made)
	}
}

// TestPressureIsToldOfTokensOnLease: what Redis told of a queue is told again while its tokens are on lease, and asked anew after a second;
// nothing is told where the policy has it not measured, or blind.
func TestPressureIsToldOfTokensOnLease(t *testing.T) {
	t.Parallel()
	config := limitedBoth(admission.Limit{Tokens: 1000, Per: time.Second, Burst: 5000}, none)
	config.Policy.Queues = map[string]policy.Queue{"mail": {Pressure: &policy.PressureRules{MaxDepth: 10}}}
	s := open(t, redistest.Shared(t).Client(t))
	config.Policy.Version = 1
	put(t, s, config.Policy)
	l := start(t, s, Config{Timeout: patient})
	press := func(level admission.PressureLevel) {
		t.Helper()
		const owner = "the test"
		version, err := s.PolicyInForce(t.Context())
		check(t, err)
		_, err = s.Partitions()[0].Promote(t.Context(), owner, time.Hour)
		check(t, err)
		_, err = s.Press(t.Context(), store.Press{Owner: owner, Version: version, Queue: "mail", Pressure: admission.Pressure{Level: level, RetryAfter: time.Second}, Life: time.Hour})
		check(t, err)
	}
	mail := Request{Tenant: "acme", Queue: "mail"}
	await := func(want Source, level admission.PressureLevel) {
		t.Helper()
		for until := time.Now().Add(20 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) { //nolint:forbidigo // the pace of checks
			if made := together(t, l, mail); made.Source == want && made.Answers[0].Verdict.Pressure.Level == level {
				return
			}
		}
		t.Fatalf("no answer that is %v tells %v", want, level)
	}
	press(admission.PressureHigh)
	if made := together(t, l, mail); made.Source != Exact || made.Answers[0].Verdict.Pressure.Level != admission.PressureHigh {
		t.Fatalf("the first answer: %+v", made)
	}
	await(Leased, admission.PressureHigh)
	press(admission.PressureLow)
	await(Leased, admission.PressureLow)
	for range 3 {
		if made := together(t, l, Request{Tenant: "acme"}); made.Answers[0].Verdict.Pressure.Level != 0 {
			t.Fatalf("a tenant is told the pressure of a queue: %+v", made.Answers[0])
		}
	}
}
