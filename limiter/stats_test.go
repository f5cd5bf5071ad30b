package limiter

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
)

func TestStatsSayHowChecksWereAnswered(t *testing.T) {
	t.Parallel()
	v, proxy := newVirtual(), redistest.NewProxy(t, redistest.Shared(t).Addr())
	client := proxy.Client(t)
	client.AddHook(hook{v, client})
	day := admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 1}
	l := start(t, open(t, client), Config{
		Policy: limited(admission.PerSecond(1000), day), Timeout: patient, Count: true, OutageAt: map[admission.Scope]Outage{admission.Global: OutageOpen, "acme": OutageClosed},
	})
	l.clock.set = &v.process
	got := map[Source]uint64{}
	count := func(tenant string) {
		v := ask(t, l, Request{Tenant: tenant})
		l.line.flying.Wait()
		got[v.Source]++
	}
	for range 3 { // Granted, denied, and known to be.
		count("acme")
	}
	for range 200 {
		v.pass(time.Millisecond)
		count("")
	}
	want := []CheckCount{{Exact, true, got[Exact] - 1}, {Exact, false, 1}, {Leased, true, got[Leased]}, {Cached, false, 1}}
	if found := l.Stats().Checks; !slices.Equal(found, want) {
		t.Errorf("%v, want %v", found, want)
	}
	if got[Cached] != 1 || got[Leased] == 0 {
		t.Fatalf("%v", got)
	}
	l.ways.scopes.Range(func(_ admission.Scope, s *scope) bool { s.count(l.clock.now()); return true })
	held := heldOf(l)
	bound, err := l.Guarantee(t.Context(), admission.Global)
	check(t, err)
	levels := []LevelStats{
		{admission.LevelGlobal, held, 0, Guarantee{Burst: bound.Burst, Rate: bound.Rate, Leased: bound.Leased}},
		{admission.LevelTenant, 0, 0, Guarantee{Burst: 1, Rate: day.Rate()}},
	}
	if found := l.Stats().Levels; !slices.Equal(found, levels) {
		t.Errorf("%v\nwant %v", found, levels)
	}
	check(t, l.Close(t.Context()))
	if s := l.Stats(); held == 0 || s.Returned != held || s.Returns != 1 {
		t.Errorf("%d tokens counted as given back of %d", s.Returned, held)
	}
}

// blindOf is how many checks a mode has answered in one way.
func blindOf(l *Limiter, mode Outage, admitted bool) (n uint64) {
	for _, c := range l.Stats().Blind {
		if c.Mode == mode && c.Admitted == admitted {
			n += c.N
		}
	}
	return n
}

// TestBlindAnswersAreCountedByTheModeThatDecided: the one that refuses, else the one that lets the most through.
func TestBlindAnswersAreCountedByTheModeThatDecided(t *testing.T) {
	t.Parallel()
	proxy := redistest.NewProxy(t, redistest.Shared(t).Addr())
	limit := admission.PerSecond(10).WithBurst(100)
	l := start(t, open(t, proxy.Client(t)), Config{
		Policy: limited(limit, limit), OutageAt: map[admission.Scope]Outage{admission.Global: OutageOpen, "acme": OutageClosed},
	})
	cut(t, nil, proxy)
	for range 3 {
		ask(t, l, Request{})
		ask(t, l, Request{Tenant: "acme"})
	}
	for mode, admitted := range map[Outage]bool{OutageOpen: true, OutageClosed: false} {
		if n := blindOf(l, mode, admitted); n != 3 {
			t.Errorf("%d blind checks by mode %s, want 3", n, mode)
		}
	}
	if kinds := len(l.Stats().Blind); kinds != 2 {
		t.Errorf("%d kinds of blind answers of two modes", kinds)
	}
}

// TestStatsStaySmall: with thousands of scopes.
func TestStatsStaySmall(t *testing.T) {
	t.Parallel()
	p := policy.Unlimited()
	p.Tiers = map[string]policy.Tier{policy.StandardTier: {Limit: admission.PerSecond(10)}}
	l := start(t, open(t, redistest.Shared(t).Client(t)), Config{Policy: &p, Timeout: patient})
	ask(t, l, Request{Tenant: "acme"})
	for i := range 5000 {
		_, err := l.ways.open(l.clock.now(), route{tenant: fmt.Sprintf("tenant-%d", i)}, l.policy.Load())
		check(t, err)
	}
	if s := l.Stats(); len(s.Levels) != 1 || len(s.Checks) != 2 || l.ways.scopes.Size() != 5001 {
		t.Errorf("%v of 5000 tenants", s)
	}
}

// TestStatsOfTwoLimitersAddUp: but for the bounds, of which the larger is in force; neither changes.
func TestStatsOfTwoLimitersAddUp(t *testing.T) {
	t.Parallel()
	one := Stats{
		Calls: 1, Grants: 2, Leased: 3, Returns: 4, Returned: 5, BlindTokens: 6,
		Checks: []CheckCount{{Source: Exact, Admitted: true, N: 7}},
		Blind:  []BlindCount{{Mode: OutageOpen, Admitted: true, N: 8}},
		Levels: []LevelStats{{Level: admission.LevelTenant, Held: 9, Bound: Guarantee{Burst: 10, Rate: 1, Leased: 2}}},
	}
	two := Stats{
		Calls: 10, Grants: 20, Leased: 30, Returns: 40, Returned: 50, BlindTokens: 60,
		Checks: []CheckCount{{Source: Exact, N: 1}, {Source: Exact, Admitted: true, N: 70}},
		Blind:  []BlindCount{{Mode: OutageOpen, N: 1}, {Mode: OutageOpen, Admitted: true, N: 80}},
		Levels: []LevelStats{
			{Level: admission.LevelGlobal, Held: 1},
			{Level: admission.LevelTenant, Held: 90, Bound: Guarantee{Burst: 5, Rate: 3, Leased: 1}},
		},
	}
	want := Stats{
		Calls: 11, Grants: 22, Leased: 33, Returns: 44, Returned: 55, BlindTokens: 66,
		Checks: []CheckCount{{Source: Exact, Admitted: true, N: 77}, {Source: Exact, N: 1}},
		Blind:  []BlindCount{{Mode: OutageOpen, Admitted: true, N: 88}, {Mode: OutageOpen, N: 1}},
		Levels: []LevelStats{
			{Level: admission.LevelTenant, Held: 99, Bound: Guarantee{Burst: 10, Rate: 3, Leased: 2}},
			{Level: admission.LevelGlobal, Held: 1},
		},
	}
	for range 2 {
		if got := one.Plus(two); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
