package limiter

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// newScope is one of a level, with nothing on lease.
func newScope(level admission.Level, mode Outage) *scope {
	return &scope{name: admission.ScopeAt(level, "acme", "mail", "high"), level: level, mode: mode, lent: &lent{}}
}

// TestTokensGoBackIntoTheirEpochAlone: what was told to Redis in between never grows.
func TestTokensGoBackIntoTheirEpochAlone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		between func(*held)
		want    admission.Tokens
	}{
		"nothing happens":   {func(*held) {}, 10},
		"they are counted":  {func(h *held) { h.count() }, 7},
		"they are taken":    {func(h *held) { h.drain() }, 0},
		"there is a refill": {func(h *held) { h.add(5) }, 15},
	} {
		var h held
		h.add(10)
		_, epoch, ok := h.take(3)
		c.between(&h)
		h.putBack(3, epoch)
		if got := h.tokens(); !ok || got != c.want {
			t.Errorf("%s: %d tokens are on lease, want %d", name, got, c.want)
		}
	}
}

// TestALeaseEndsASecondAfterItWasAskedFor: Redis counts from when it grants, which is later than sending and earlier than the answer.
// What has ended is neither spent nor told as held.
func TestALeaseEndsASecondAfterItWasAskedFor(t *testing.T) {
	t.Parallel()
	s, sent := newScope(admission.LevelTenant, OutageShare), breaker.Instant(1_000_000)
	s.lease(sent, store.Leased{Tokens: 10, Holders: 1}, false)
	w := &way{scopes: []*scope{s}}
	var at epochs
	last, end := sent.Add(leaseLife-1), sent.Add(leaseLife)
	if _, ok := w.scopes.take(last, 1, &at); !ok || s.count(last) != 9 {
		t.Errorf("at its last moment %d tokens are held", s.count(last))
	}
	if _, ok := w.scopes.take(end, 1, &at); ok || s.has(end, 1) || s.count(end) != 0 {
		t.Errorf("after its end a lease is spent, %t, or told as held, %d", ok, s.count(end))
	}
}

// fixed is a policy with a limit of each tenant.
func fixed(t *testing.T, limit admission.Limit) *policy.Compiled {
	t.Helper()
	p := policy.Policy{Tiers: map[string]policy.Tier{policy.StandardTier: {Limit: limit}}}
	compiled, err := p.Prepare()
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// TestAScopeThatIsNotKeptIsNotLeased: another of its name may be made, and both would hold tokens.
func TestAScopeThatIsNotKeptIsNotLeased(t *testing.T) {
	t.Parallel()
	inForce := fixed(t, admission.PerSecond(1000))
	config := Config{MaxScopes: 1000}.withDefaults()
	m := newWays(&config, 1)
	kept, err := m.open(0, route{tenant: "kept"}, inForce)
	if err != nil || kept.most[0] == 0 {
		t.Fatalf("all holders of a scope that is kept may have %d; %v", kept.most[0], err)
	}
	config.MaxScopes = m.scopes.Size()
	beyond, err := m.open(0, route{tenant: "beyond"}, inForce)
	if err != nil || beyond.most[0] != 0 {
		t.Errorf("all holders of a scope that is not kept may have %d; %v", beyond.most[0], err)
	}
	if again, err := m.open(0, route{tenant: "kept"}, inForce); err != nil || again.most[0] == 0 || again.scopes[0] != kept.scopes[0] {
		t.Errorf("where there is no more room a scope that was kept is another; %v", err)
	}
}

// TestWhatIsOwedIsABurstAtMost, under the policy by which it was admitted, and once.
func TestWhatIsOwedIsABurstAtMost(t *testing.T) {
	t.Parallel()
	s := newScope(admission.LevelTenant, OutageOpen)
	_, first := s.owe(6, 10)
	if _, again := s.owe(6, 10); !first || again {
		t.Error("a scope stands among the debts twice, or not at all")
	}
	if owed := s.owes(); owed != 10 {
		t.Errorf("%d tokens are owed of a burst of 10", owed)
	}
	old, inForce := fixed(t, admission.PerSecond(10)), fixed(t, admission.PerSecond(20))
	for _, c := range []struct {
		name string
		by   *policy.Compiled
		want int
	}{{"the policy in force", inForce, 1}, {"an older one", old, 0}} {
		var b blind
		s := newScope(admission.LevelTenant, OutageOpen)
		s.owe(6, 10)
		b.mu.debts = []debt{{&way{policy: c.by, route: route{tenant: "acme"}}, s}}
		f := &flight{grant: store.Grant{}}
		b.collect(f, inForce)
		if len(f.owed) != c.want || len(f.grant.Accounts) != c.want || len(b.mu.debts) != c.want || (s.owes() > 0) != (c.want > 0) {
			t.Errorf("of a debt under %s %d are paid, %d are kept, %d tokens are owed", c.name, len(f.owed), len(b.mu.debts), s.owes())
		}
	}
}

// TestARefusedShareCostsNoLease: what the outer scope has on lease stays where an inner one's share refuses.
func TestARefusedShareCostsNoLease(t *testing.T) {
	t.Parallel()
	outer, inner := newScope(admission.LevelGlobal, OutageShare), newScope(admission.LevelTenant, OutageShare)
	now := breaker.Instant(1_000_000)
	outer.lease(now, store.Leased{Tokens: 10, Holders: 1}, false)
	w := &way{scopes: []*scope{outer, inner}, global: admission.PerSecond(100)}
	w.limits[admission.LevelTenant] = admission.Limit{Tokens: 1, Per: time.Hour, Burst: 1}
	var b blind
	if v, _ := b.answer(w, 1, now, 1, 100); !v.Admitted || outer.held.tokens() != 9 {
		t.Fatalf("the first: %+v, %d on lease", v, outer.held.tokens())
	}
	if v, _ := b.answer(w, 1, now, 1, 100); v.Admitted || outer.held.tokens() != 9 {
		t.Errorf("the second: %+v, %d on lease, want 9", v, outer.held.tokens())
	}
}

// TestOnlyLiveLeasesAreGivenBack, and those of a Close that failed by the next one.
func TestOnlyLiveLeasesAreGivenBack(t *testing.T) {
	t.Parallel()
	config := Config{MaxScopes: 1000}.withDefaults()
	m := newWays(&config, 1)
	inForce := fixed(t, admission.PerSecond(1000))
	sent := breaker.Instant(1_000_000)
	for tenant, at := range map[string]breaker.Instant{"live": sent.Add(leaseLife / 2), "ended": sent} {
		w, err := m.open(0, route{tenant: tenant}, inForce)
		if err != nil {
			t.Fatal(err)
		}
		w.scopes[0].lease(at, store.Leased{Tokens: 10, Holders: 1}, false)
	}
	now := sent.Add(leaseLife)
	all := m.returns(now)
	if len(all) != 1 || all[0].scope.name != "live" || all[0].tokens != 10 {
		t.Fatalf("given back are %+v", all)
	}
	if again := m.returns(now); len(again) != 0 {
		t.Errorf("given back twice: %+v", again)
	}
	m.keep(all)
	if again := m.returns(now); len(again) != 1 || again[0].tokens != 10 {
		t.Errorf("after a failure given back are %+v", again)
	}
}

// TestWhatCannotBePutBackIsTold: Redis was told meanwhile what was left.
func TestWhatCannotBePutBackIsTold(t *testing.T) {
	t.Parallel()
	s := newScope(admission.LevelTenant, OutageShare)
	s.until.Store(int64(time.Hour))
	s.held.add(10)
	w := &way{scopes: []*scope{s}}
	var at epochs
	for _, counted := range []bool{false, true} {
		if _, ok := w.scopes.take(0, 3, &at); !ok {
			t.Fatal("nothing was taken")
		}
		if counted {
			s.held.count()
		}
		w.scopes.putBack(3, 0, &at)
	}
	if left, lost := s.held.tokens(), s.lent.lost.Load(); left != 7 || lost != 3 {
		t.Errorf("%d are left and %d lost, want 7 and 3", left, lost)
	}
}
