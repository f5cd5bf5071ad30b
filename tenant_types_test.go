package headgate_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
)

// ofType enqueues a job of a type and returns the scope that refused it; empty for none.
func ofType(t *testing.T, hg *headgate.Client, tenant, jobType string) headgate.Scope {
	t.Helper()
	_, err := hg.Enqueue(t.Context(), headgate.Job{Tenant: tenant, Queue: "mail", Args: headgate.Raw{Type: jobType}})
	no, refused := errors.AsType[*headgate.Refusal](err)
	if !refused {
		check(t, err)
		return ""
	}
	return no.Scope
}

// ownTypes gives a tenant limits by type in its record, in the place of those that it has there.
func ownTypes(t *testing.T, hg *headgate.Client, tenant string, limits map[string]headgate.Limit) {
	t.Helper()
	check(t, hg.Policy().ChangeRecord(t.Context(), tenant, headgate.Edit{Author: "ada"}, func(r *policy.OwnLimits) {
		if delete(r.Queues, "mail"); len(limits) > 0 {
			r.Queues = map[string]policy.EachTenant{"mail": {TypeLimits: limits}}
		}
	}))
}

// TestATenantsOwnLimitOfATypeIsInForceFromTheNextJobOn: that of its entry in the policy before what each tenant has, that of its record before both, for it alone; a
// lowered burst leaves no more than itself, and a raised one gives nothing that was taken.
func TestATenantsOwnLimitOfATypeIsInForceFromTheNextJobOn(t *testing.T) {
	t.Parallel()
	hg := open(t, headgate.Config{})
	check(t, hg.Policy().Change(t.Context(), headgate.Edit{Author: "ada"}, func(p *headgate.Policy) {
		p.Document.TenantRecords = true
		p.Tier("standard").Limit = headgate.Limit{Disabled: true}
		p.Queue("mail").EachTenant.TypeLimits = map[string]headgate.Limit{policy.Every: aDay(1)}
		p.TenantQueue("acme", "mail").TypeLimits = map[string]headgate.Limit{"report": aDay(2)}
	}))
	passes := func(what, tenant, jobType string, want int) {
		t.Helper()
		got := 0
		for ; got <= want; got++ {
			if by := ofType(t, hg, tenant, jobType); by != "" {
				if scope := headgate.Scope(tenant + ":mail:type=" + jobType); by != scope {
					t.Fatalf("%s: refused by %s, want %s", what, by, scope)
				}
				break
			}
		}
		if got != want {
			t.Errorf("%s: %d jobs of type %s of %s passed, want %d", what, got, jobType, tenant, want)
		}
	}
	passes("as each tenant", "bolt", "report", 1)
	passes("by its own in the policy", "acme", "report", 2)
	passes("of other types as each tenant", "acme", "send", 1)
	ownTypes(t, hg, "cy", map[string]headgate.Limit{"report": aDay(5)})
	passes("as each tenant beside a record", "cy", "send", 1)
	for range 3 {
		if by := ofType(t, hg, "cy", "report"); by != "" {
			t.Fatalf("5 of its own, and refused by %s", by)
		}
	}
	ownTypes(t, hg, "cy", map[string]headgate.Limit{"report": aDay(1)})
	passes("of the two that are left one stays", "cy", "report", 1)
	ownTypes(t, hg, "cy", map[string]headgate.Limit{"report": aDay(9)})
	passes("what was taken stays so", "cy", "report", 0)
	ownTypes(t, hg, "dot", map[string]headgate.Limit{policy.Every: aDay(3), "free": {Disabled: true}})
	passes("each type by itself", "dot", "a", 3)
	passes("each type by itself", "dot", "b", 3)
	for range 5 {
		if by := ofType(t, hg, "dot", "free"); by != "" {
			t.Errorf("no limit of its own, and refused by %s", by)
		}
	}
	check(t, hg.Policy().ChangeRecord(t.Context(), "dot", headgate.Edit{}, func(r *policy.OwnLimits) { r.Queues["mail"].TypeLimits["d"] = aDay(1) }))
	passes("as its record has it, changed in place", "dot", "d", 1)
	ownTypes(t, hg, "dot", nil)
	passes("as each tenant again", "dot", "c", 1)
	passes("as each tenant again", "dot", "free", 1)
}

// typeWalk is a model of buckets by type of which nothing to speak of comes in: what each that was charged has left.
type typeWalk struct {
	each, own, recorded map[string]headgate.Limit
	left                map[string]headgate.Tokens
}

// limit is the one in force: by the record, the tenant's own in the policy, what each has; in each a name before "*".
func (w *typeWalk) limit(jobType string) headgate.Limit {
	for _, in := range []map[string]headgate.Limit{w.recorded, w.own, w.each} {
		for _, name := range []string{jobType, policy.Every} {
			if limit, said := in[name]; said {
				return limit
			}
		}
	}
	return headgate.Limit{Disabled: true}
}

// admits says whether a job of a token passes, and takes it.
func (w *typeWalk) admits(jobType string) bool {
	limit := w.limit(jobType)
	if limit.Disabled {
		return true
	}
	left, charged := w.left[jobType]
	if !charged || left > limit.Burst {
		left = limit.Burst
	}
	if left < 1 {
		return false
	}
	w.left[jobType] = left - 1
	return true
}

// TestEditsOfATenantsLimitsOfTypesKeepTheBound: whatever is edited between jobs, in its record, in its entry of the policy or of each tenant, in Redis and in memory:
// what is admitted is what the model admits (law L1).
func TestEditsOfATenantsLimitsOfTypesKeepTheBound(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"redis": redistest.Shared(t).URL(), "memory": "memory:"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hg, err := headgate.Open(t.Context(), url, headgate.Config{Prefix: redistest.Prefix(t)})
			check(t, err)
			defer func() { check(t, hg.Close()) }()
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			types := []string{"report", "send", "a:b"}
			draw := func() map[string]headgate.Limit {
				limits := map[string]headgate.Limit{}
				for _, of := range append([]string{policy.Every}, types...) {
					if random.IntN(3) == 0 {
						limits[of] = aDay(headgate.Tokens(1 + random.IntN(4)))
					} else if random.IntN(8) == 0 {
						limits[of] = headgate.Limit{Disabled: true}
					}
				}
				return limits
			}
			for round := range 12 {
				tenant := fmt.Sprint("t", round)
				w := typeWalk{left: map[string]headgate.Tokens{}}
				put := func() {
					check(t, hg.Policy().Change(t.Context(), headgate.Edit{}, func(p *headgate.Policy) {
						p.Document.TenantRecords = true
						p.Tier("standard").Limit = headgate.Limit{Disabled: true}
						p.Queue("mail").EachTenant.TypeLimits = w.each
						p.TenantQueue(tenant, "mail").TypeLimits = w.own
					}))
				}
				w.each = draw()
				put()
				for step := range 30 {
					switch random.IntN(8) {
					case 0:
						w.each = draw()
						put()
					case 1:
						w.own = draw()
						put()
					case 2:
						w.recorded = draw()
						ownTypes(t, hg, tenant, w.recorded)
					default:
						jobType := types[random.IntN(len(types))]
						by := ofType(t, hg, tenant, jobType)
						if admits := w.admits(jobType); admits != (by == "") || !admits && by != headgate.Scope(tenant+":mail:type="+jobType) {
							t.Fatalf("step %d of round %d: a job of type %s is refused by %q, want it admitted: %v, by %+v", step, round, jobType, by, admits, w)
						}
					}
				}
			}
		})
	}
}
