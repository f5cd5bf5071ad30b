package laws_test

import (
	"fmt"
	"math"
	"testing"
)

// accounts is the oracle of L7 in one class: what each tenant was served, cost over weight, and for each tenant k that
// is runnable and any other tenant i the least of Wi/wi - Wk/wk since k became runnable. That difference never rises by
// more than the bound. Between two that are both runnable, that is the law, over every interval, in both directions. It
// holds as well for an i that is not runnable all the time: who drains, parks or is capped gains nothing on return.
type accounts struct {
	class   string
	tenants []account
	leads   []lead // of i over k at i·n + k
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

// lead holds the least of served[i] - served[k] since k became runnable.
type lead struct {
	since int
	least float64
}

func newAccounts(class string, n int) *accounts {
	return &accounts{class: class, tenants: make([]account, n), leads: make([]lead, n*n)}
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
	for i := range a.tenants {
		if i == tenant {
			continue
		}
		o := &a.tenants[i]
		if o.since > 0 {
			l := a.lead(tenant, i, before-o.served)
			if rise, bound := t.served-o.served-l.least, t.largest+o.largest; rise > bound*(1+1e-9) {
				return fmt.Errorf("law L7: class %s, tenant %d got %g more than tenant %d, which was runnable all the time; bound %g",
					a.class, tenant, rise, i, bound)
			}
		}
		if t.since > 0 {
			l := a.lead(i, tenant, o.served-before)
			l.least = min(l.least, o.served-t.served)
		}
	}
	return nil
}

// lead returns that of i over k, begun anew when k has become runnable since.
func (a *accounts) lead(i, k int, now float64) *lead {
	l := &a.leads[i*len(a.tenants)+k]
	if l.since != a.tenants[k].since {
		*l = lead{a.tenants[k].since, now}
	}
	return l
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
	if err := serve(2, 0, 1, 0, 1, 0, 1, 0, 1); err != nil {
		t.Errorf("a tenant that is not runnable has a claim: %v", err)
	}
	if err := serve(0, 2, 1, 2, 0, 2, 2, 1); err == nil {
		t.Error("a tenant that comes and goes gets more than one that is runnable all the time")
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
