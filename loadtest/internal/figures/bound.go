package figures

import (
	"cmp"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
)

// Bound is a scope's limit and how much of it was used.
type Bound struct {
	Scope    admission.Scope  `json:"scope"`
	Rate     float64          `json:"rate_per_s"`
	Burst    admission.Tokens `json:"burst"`
	Admitted int64            `json:"admitted"`
	// Used is the largest part of the burst that was taken at a time.
	Used     float64 `json:"used"`
	Exceeded bool    `json:"exceeded"`
}

// admitted is one job's, by the clock of Redis.
type admitted struct {
	micros int64
	cost   admission.Tokens
}

// rounding is by how much a bucket's float may be below zero, in tokens: a micro-token a million times.
const rounding = 1e-3

// check runs a virtual bucket over admissions in order of time.
func check(scope admission.Scope, limit admission.Limit, admissions []admitted) Bound {
	slices.SortFunc(admissions, func(a, b admitted) int { return cmp.Compare(a.micros, b.micros) })
	b := Bound{Scope: scope, Rate: float64(limit.Rate()), Burst: limit.Burst}
	burst := float64(limit.Burst)
	level, least := burst, burst
	for i, a := range admissions {
		if i > 0 {
			elapsed := time.Duration(a.micros-admissions[i-1].micros) * time.Microsecond
			level = min(burst, level+elapsed.Seconds()*b.Rate)
		}
		level -= float64(a.cost)
		least = min(least, level)
		b.Admitted += int64(a.cost)
	}
	b.Used, b.Exceeded = (burst-least)/burst, least < -rounding
	return b
}

// boundsOf returns the bound of the global scope and that of the tenant which used most of its own. A system that knows
// no limits has none.
func boundsOf(r *Run) []Bound {
	var all []admitted
	byTenant := map[int][]admitted{}
	entries := r.Book.Entries()
	for i := range entries {
		if micros := entries[i].AdmittedMicros(); micros > 0 {
			a := &r.Plan.Arrivals[i]
			one := admitted{micros, a.Cost}
			all = append(all, one)
			byTenant[a.Tenant] = append(byTenant[a.Tenant], one)
		}
	}
	if len(all) == 0 {
		return nil
	}
	bounds := []Bound{check(admission.Global, r.Plan.Policy.Global, all)}
	var tightest Bound
	for tenant, admissions := range byTenant {
		b := check(admission.Scope(r.Plan.Tenants[tenant]), r.Plan.TenantLimit(), admissions)
		if b.Used > tightest.Used {
			tightest = b
		}
	}
	return append(bounds, tightest)
}
