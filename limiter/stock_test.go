package limiter

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// stocked is a limiter whose time a test lets pass, and of whose tenants all have one limit.
type stocked struct {
	*Limiter
	t    *testing.T
	time *virtual
}

func newStocked(t *testing.T, v *virtual, s store.Deployment) *stocked {
	t.Helper()
	l := start(t, s, Config{Timeout: patient})
	l.clock.set = &v.process
	return &stocked{l, t, v}
}

// eachTenant is a policy of one limit of each tenant.
func eachTenant(version int64, limit admission.Limit) *policy.Policy {
	p := policy.Unlimited()
	p.Tiers, p.Version = map[string]policy.Tier{policy.StandardTier: {Limit: limit}}, version
	return &p
}

// check asks for a tenant, and waits for what is fetched.
func (s *stocked) check(tenant string) Verdict {
	s.t.Helper()
	v := ask(s.t, s.Limiter, Request{Tenant: tenant})
	s.line.flying.Wait()
	return v
}

// pass lets time pass in which somebody else asks, so that the limiter hears of the limits.
func (s *stocked) pass(d time.Duration) {
	s.t.Helper()
	for ; d > 0; d -= heardLife / 2 {
		s.time.pass(min(d, heardLife/2))
		s.check("somebody-else")
	}
}

// have has a limiter take a stock of a tenant, who is asked for the second time within a minute.
func (s *stocked) have(tenant string) {
	s.t.Helper()
	for range 2 {
		if v := s.check(tenant); !v.Admitted || v.Source != Exact {
			s.t.Errorf("before there is a stock: %+v", v)
		}
		s.pass(5 * time.Second)
	}
}

func TestWhoIsAskedForAgainHasAStock(t *testing.T) {
	t.Parallel()
	v := newVirtual()
	d := open(t, v.client(t))
	put(t, d, eachTenant(1, admission.PerSecond(1000)))
	l := newStocked(t, v, d)
	l.have("seldom")
	for i := range 20 {
		if v := l.check("seldom"); !v.Admitted || v.Source != Leased {
			t.Fatalf("check %d by its stock: %+v", i, v)
		}
		l.pass(5 * time.Second)
	}
	if n := l.Stats().Grants; n > 60 {
		t.Errorf("%d grants in two minutes", n)
	}
}

// TestAStockIsOfTheLimitsInForce: what an operator does is in force within a second, where others ask and where nobody does.
func TestAStockIsOfTheLimitsInForce(t *testing.T) {
	t.Parallel()
	nothing := admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 1}
	const ofRecord = "a tenant's record"
	for name, change := range map[string]func(store.Deployment){
		"another policy": func(d store.Deployment) { put(t, d, eachTenant(2, nothing)) },
		"a scale": func(d store.Deployment) {
			_, err := d.ScaleLimits(t.Context(), store.ScaleAll, 0.01, time.Hour, store.Intervention{})
			check(t, err)
		},
		ofRecord: func(d store.Deployment) {
			_, err := d.PutRecord(t.Context(), store.RecordEdit{Tenant: "seldom", Policy: 1, Text: []byte(`{"limit":{"tokens":1,"per":"24h"}}`), LongestFill: 24 * time.Hour})
			check(t, err)
		},
	} {
		for _, others := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, others ask %t", name, others), func(t *testing.T) {
				t.Parallel()
				v := newVirtual()
				d := open(t, v.client(t))
				p := eachTenant(1, admission.PerSecond(1000))
				p.TenantRecords = name == ofRecord
				put(t, d, p)
				l := newStocked(t, v, d)
				l.have("seldom")
				if v := l.check("seldom"); v.Source != Leased {
					t.Fatalf("%+v", v)
				}
				change(d)
				if others {
					l.pass(heardLife)
				} else {
					v.pass(heardLife)
				}
				if v := l.check("seldom"); v.Source == Leased {
					t.Errorf("a second later: %+v", v)
				}
			})
		}
	}
}

// TestADenialIsOfTheLimitsInForce: who was refused by limits that have changed is heard with the next word of Redis, where others ask. What
// comes late counts for nothing, a stock neither.
func TestADenialIsOfTheLimitsInForce(t *testing.T) {
	t.Parallel()
	v := newVirtual()
	d := open(t, v.client(t))
	p := eachTenant(1, admission.PerSecond(1000))
	p.TenantRecords = true
	put(t, d, p)
	record := func(text string) {
		_, err := d.PutRecord(t.Context(), store.RecordEdit{Tenant: "acme", Policy: 1, Text: []byte(text), LongestFill: 24 * time.Hour})
		check(t, err)
	}
	record(`{"limit":{"tokens":1,"per":"24h"}}`)
	l := newStocked(t, v, d)
	l.pass(2 * beatEvery) // It hears of limits for the first time.
	for i, source := range []Source{Exact, Exact, Cached} {
		if v := l.check("acme"); v.Source != source || v.Admitted != (i == 0) {
			t.Errorf("check %d: %+v", i, v)
		}
	}
	l.pass(beatEvery / 5)
	if v := l.check("acme"); v.Source != Cached {
		t.Errorf("while nothing has changed: %+v", v)
	}
	record(`{"limit":{"tokens":1000,"per":"1s"}}`)
	l.pass(beatEvery)
	if v := l.check("acme"); v.Source != Exact || !v.Admitted {
		t.Errorf("after the next word of Redis: %+v", v)
	}
	late := l.ways.find(&Request{Tenant: "acme"})
	cuts := l.cuts.Load()
	l.cut()
	l.denied(late.deny(l.clock.now(), 1, &admission.Verdict{Scope: "acme", Reason: admission.ReasonLimited}), cuts)
	if late.scopes[0].denial.Load() != nil {
		t.Error("what Redis said before a change and comes after it is remembered")
	}
	now := l.clock.now()
	late.scopes[0].lease(now, store.Leased{Tokens: 5}, true)
	l.stocked(late.scopes[0], now, cuts)
	if late.scopes[0].has(now, 1) {
		t.Error("a stock that Redis gave before a change and comes after it is spent")
	}
}

// TestALeaseEndsWithTheRecordThatItIsOf, and those of nobody else.
func TestALeaseEndsWithTheRecordThatItIsOf(t *testing.T) {
	t.Parallel()
	config := Config{}.withDefaults()
	m := newWays(&config, 1)
	p := eachTenant(1, admission.PerSecond(1000))
	p.TenantRecords, p.Global = true, admission.PerSecond(1000)
	inForce, err := p.Prepare()
	check(t, err)
	now := breaker.Instant(time.Hour)
	open := func() *way {
		w, err := m.open(now, route{tenant: "acme"}, inForce)
		check(t, err)
		return w
	}
	for _, s := range open().scopes {
		s.lease(now, store.Leased{Tokens: 30, Holders: 1}, false)
	}
	now = now.Add(leaseLife / 2)
	if w := open(); !w.scopes[1].has(now, 30) {
		t.Error("what is on lease has ended though the record is the same")
	}
	check(t, inForce.Learn("acme", 2, []byte(`{"limit":{"tokens":1,"per":"24h"}}`)))
	if w := open(); w.scopes[1].has(now, 1) || !w.scopes[0].has(now, 30) {
		t.Error("after another record the tenant's tokens are held still, or those of all are not")
	}
}

// TestStocksAreDividedAmongThoseThatLive, and are none where the limit gains little, or holds little.
func TestStocksAreDividedAmongThoseThatLive(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit    admission.Limit
		limiters int
		first    admission.Tokens
	}{
		{admission.PerSecond(10_000), 1, 60},
		{admission.PerSecond(10_000).WithBurst(960), 1, 30},
		{admission.PerSecond(10_000).WithBurst(960), 4, 30},
		{admission.Limit{Tokens: 5, Per: time.Second, Burst: 10_000}, 1, 30},
		{admission.Limit{Tokens: 1000, Per: time.Hour, Burst: 10_000}, 1, 0},
		{admission.PerSecond(10_000).WithBurst(60), 1, 0},
	} {
		v := newVirtual()
		d := open(t, v.client(t))
		put(t, d, eachTenant(1, c.limit))
		held, lived := admission.Tokens(0), []*stocked{}
		for i := range c.limiters {
			l := newStocked(t, v, d)
			for range 3 { // Once a second.
				l.check("acme")
				l.pass(time.Second)
				for _, other := range lived {
					other.check("somebody-else")
				}
			}
			lived = append(lived, l)
			s, _ := l.ways.scopes.Load("acme")
			mine, most := s.held.tokens(), c.first/admission.Tokens(i+1)
			if held += mine; mine > most || most > 0 && mine < most-4 || mine > 0 != (most > 0) {
				t.Errorf("of %+v limiter %d has a stock of %d, and may have %d", c.limit, i+1, mine, most)
			}
		}
		if most := leasable(&c.limit, &Config{}, 1); held > most-onLease(most) {
			t.Errorf("of %+v stocks are %d, beside leases of %d where %d may be held", c.limit, held, onLease(most), most)
		}
	}
}

// TestStocksAndLeasesAreWhatMayBeHeld: the one after the other that join take less and less.
func TestStocksAndLeasesAreWhatMayBeHeld(t *testing.T) {
	t.Parallel()
	for leasable := range admission.Tokens(20_000) {
		stocks := admission.Tokens(0)
		for members := range admission.Tokens(mostStocks) {
			stocks += leasable / stockPart / (members + 1)
		}
		if stocks+onLease(leasable) > leasable {
			t.Fatalf("of %d that may be held %d are on lease and %d in stock", leasable, onLease(leasable), stocks)
		}
	}
}

// TestAStockThatIsNotUsedIsForgotten, and its way with it, while what is used of its stock alone stays.
func TestAStockThatIsNotUsedIsForgotten(t *testing.T) {
	t.Parallel()
	config := Config{}.withDefaults()
	m := newWays(&config, 1)
	inForce := fixed(t, admission.PerSecond(1000))
	now := breaker.Instant(time.Hour)
	open := func(tenant string) *way {
		w, err := m.open(now, route{tenant: tenant}, inForce)
		check(t, err)
		w.scopes[0].lease(now, store.Leased{Tokens: 30}, true)
		return w
	}
	used, unused := open("used"), open("unused")
	var at epochs
	for range 5 {
		now = now.Add(idleAfter + 1)
		used.scopes.take(now, 1, &at)
		m.sweep(now)
	}
	if used.isGone() || m.find(&Request{Tenant: "used"}) != used || used.scopes[0].held.tokens() != 25 {
		t.Errorf("what is used is forgotten, or holds %d", used.scopes[0].held.tokens())
	}
	if !unused.isGone() || m.find(&Request{Tenant: "unused"}) != nil || m.scopes.Size() != 1 {
		t.Error("what is not used is not forgotten")
	}
	unused.scopes[0].lease(now, store.Leased{Tokens: 30}, true)
	if _, ok := unused.scopes.take(now, 1, &at); ok {
		t.Error("what was fetched for a scope that is forgotten is spent")
	}
}
