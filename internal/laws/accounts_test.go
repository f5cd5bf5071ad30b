package laws_test

import (
	"fmt"
	"math"
	"testing"
)

// accounts is the oracle of L7 in one class: what each tenant was served, cost over weight, and of each pair of
// tenants the extremes of the difference since both became runnable. If the highest and the lowest difference are
// within the bound of each other, the law holds over every interval between.
type accounts struct {
	class   string
	tenants []account
	pairs   []pair // of i < k at i·n + k
	// clock counts the times at which a tenant became runnable.
	clock int
}

type account struct {
	// served is W/w.
	served float64
	// largest is c/w of the largest cost dispatched since the weights were set, and of the one before: a tag holds it.
	largest, latest float64
	// since is the clock when the tenant became runnable, 0 while it is not.
	since int
}

// pair holds extremes of served[i] - served[k].
type pair struct {
	since     int
	low, high float64
}

func newAccounts(class string, n int) *accounts {
	return &accounts{class: class, tenants: make([]account, n), pairs: make([]pair, n*n)}
}

// runnable says whether a tenant is, from now on. Nothing changes for one that was already, or was not.
func (a *accounts) runnable(tenant int, is bool) {
	t := &a.tenants[tenant]
	if !is {
		t.since = 0
	} else if t.since == 0 {
		a.clock++
		t.since = a.clock
	}
}

// reweigh begins every interval anew: the bound is stated for one set of weights.
func (a *accounts) reweigh() {
	a.clock++
	for i := range a.tenants {
		t := &a.tenants[i]
		t.largest = t.latest
		if t.since > 0 {
			t.since = a.clock
		}
	}
}

// dispatched adds a job's c/w to its tenant and compares the tenant with all others that are runnable.
func (a *accounts) dispatched(tenant int, share float64) error {
	t := &a.tenants[tenant]
	before := t.served
	t.served += share
	t.latest, t.largest = share, max(t.largest, share)
	if t.since == 0 {
		return nil
	}
	for i := range a.tenants {
		o := &a.tenants[i]
		if i == tenant || o.since == 0 {
			continue
		}
		p, sign := &a.pairs[tenant*len(a.tenants)+i], 1.0
		if i < tenant {
			p, sign = &a.pairs[i*len(a.tenants)+tenant], -1
		}
		if both := max(t.since, o.since); p.since != both {
			at := sign * (before - o.served)
			*p = pair{both, at, at}
		}
		at := sign * (t.served - o.served)
		p.low, p.high = min(p.low, at), max(p.high, at)
		if bound := t.largest + o.largest; p.high-p.low > bound*(1+1e-9) {
			return fmt.Errorf("law L7: class %s, tenants %d and %d are %g apart in an interval, bound %g",
				a.class, tenant, i, p.high-p.low, bound)
		}
	}
	return nil
}

func TestAccountsTellFairFromUnfair(t *testing.T) {
	t.Parallel()
	serve := func(order ...int) error {
		a := newAccounts("high", 3)
		a.runnable(0, true)
		a.runnable(1, true)
		for _, tenant := range order {
			if err := a.dispatched(tenant, 1); err != nil {
				return err
			}
		}
		return nil
	}
	if err := serve(0, 1, 0, 1, 1, 0, 0, 1); err != nil {
		t.Error(err)
	}
	if err := serve(0, 2, 1, 2, 2, 2, 0); err != nil {
		t.Errorf("a tenant that is not runnable counts: %v", err)
	}
	if err := serve(0, 1, 0, 0, 0); err == nil {
		t.Error("three in a row pass")
	}
	if err := serve(0, 0, 1, 1, 1); err == nil {
		t.Error("three in a row pass when they end even")
	}
	a := newAccounts("high", 2)
	a.runnable(0, true)
	a.runnable(1, true)
	for range 4 {
		if err := a.dispatched(0, math.Pi); err != nil {
			return
		}
		a.runnable(1, true) // Nothing changes.
	}
	t.Error("four in a row pass when their weight hides it")
}
