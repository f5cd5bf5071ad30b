package memory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// accountPair has ten jobs of an account of shopify, under a cap or a rate that each account has and that moves by itself. look moves it to a
// limit, and dispatched is how many jobs have been.
func accountPair(t *testing.T, of store.Cap) (p *pair, look func(limit int), dispatched func() int) {
	t.Helper()
	p = newPair(t)
	of.Loop = "each"
	u := store.PolicyUpdate{Version: 1, Text: []byte("{}"), Caps: []store.Cap{of}, Edit: "each"}
	p.same("policy", func(s store.Partition) any { return replied(true, s.PutPolicy(p.ctx, u)) })
	p.version = 1
	p.same("promote", func(s store.Partition) any { return replied(s.Promote(p.ctx, "s1", time.Hour)) })
	look = func(limit int) {
		t.Helper()
		p.same("look", func(s store.Partition) any {
			return replied(s.Adapt(p.ctx, store.Adapt{Owner: "s1", Version: 1, Gate: of.Gate, Limit: limit, Cause: "trigger"}))
		})
	}
	look(of.Least)
	p.register("w1", mailPool, 10)
	for i := range 10 {
		j := mail("acme", fmt.Sprint("job-", i))
		j.Downstream = "shopify+a"
		p.admit(j)
	}
	all := 0
	return p, look, func() int {
		t.Helper()
		all += len(p.take("w1", mailPool, 10)[0])
		return all
	}
}

// TestAccountsWakeAsTheCapOfEachGrows: jobs of an account that wait by the cap which each account has are dispatched as soon as that grows by itself again,
// though nothing of the account has ended.
func TestAccountsWakeAsTheCapOfEachGrows(t *testing.T) {
	t.Parallel()
	_, look, dispatched := accountPair(t, store.Cap{Gate: "d:shopify+*", Limit: 4, Least: 1, Most: 4})
	if n := dispatched(); n != 1 {
		t.Fatalf("%d run where one may", n)
	}
	look(4)
	if n := dispatched(); n != 4 {
		t.Errorf("%d run where four may again", n)
	}
}

// TestAccountsWakeAsTheRateOfEachGrows: jobs of an account that wait by the rate which each account has do not wait any more for what the lower rate would have
// let come.
func TestAccountsWakeAsTheRateOfEachGrows(t *testing.T) {
	t.Parallel()
	const unit = store.RateUnit
	p, look, dispatched := accountPair(t, store.Cap{Gate: "s:shopify+*", Rate: admission.PerSecond(1).WithBurst(1), Limit: unit, Least: unit / 100, Most: unit})
	if n := dispatched(); n != 1 {
		t.Fatalf("%d were dispatched where one may be", n)
	}
	look(unit)
	p.move(2 * time.Second)
	p.same("promote", func(s store.Partition) any { return replied(s.Promote(p.ctx, "s1", time.Hour)) })
	if n := dispatched(); n != 2 {
		t.Errorf("%d were dispatched, two seconds after it may be one a second again", n)
	}
}
