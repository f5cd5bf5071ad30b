package laws_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// recorded is what tenants have beside the caps of a policy: records, and the caps of tiers that these name.
type recorded struct {
	records map[string]recordedCap
	tiers   map[string]int
	// byTier says that the policy's cap of a tenant is that of its tier.
	byTier map[string]bool
}

type recordedCap struct {
	tier string
	most int
}

// TestCapsOfRecordsAreNeverPassed is TestCapsAreNeverPassed of tenants whose records have caps, or name tiers that have some: whatever is edited, and when, no dispatch goes
// beyond the cap that is in force, a lower one takes nothing away, and nothing waits while there is room below a higher one.
func TestCapsOfRecordsAreNeverPassed(t *testing.T) {
	t.Parallel()
	r := &running{site: newSite(t, redistest.Shared(t)), leases: map[string][]store.Lease{}, held: map[store.GateName]int{}}
	r.recorded = &recorded{records: map[string]recordedCap{}}
	r.change()
	reached, byRecord := map[store.GateName]bool{}, false
	for range runningSteps {
		if r.chance(6) {
			r.give()
		} else {
			r.step()
		}
		for r.promote().More {
		}
		r.look(reached)
		for tenant, own := range r.records {
			limit, capped := r.tenantCap(tenant)
			byRecord = byRecord || (own.most > 0 || own.tier != "") && capped && r.held[store.TenantGate(tenant)] >= limit
		}
	}
	if !byRecord {
		t.Errorf("no cap of a record was ever reached: %v", reached)
	}
	for _, tenant := range runningTenants {
		r.put(tenant, recordedCap{})
	}
	r.putPolicy(store.PolicyUpdate{})
	r.drainAll()
}

// TestACapOfARecordCountsWhatRuns asserts that units come back of jobs that were dispatched before a record capped their tenant, as many as there were, whatever other
// caps there are or were, and that the tenant runs no more than it may meanwhile.
func TestACapOfARecordCountsWhatRuns(t *testing.T) {
	t.Parallel()
	for _, byTier := range []bool{false, true} {
		for _, others := range []string{"", "ann", "ann, and each"} {
			r := &running{site: newSite(t, redistest.Shared(t)), recorded: &recorded{records: map[string]recordedCap{}}}
			u, capped := store.PolicyUpdate{}, recordedCap{most: 1}
			if others == "ann, and each" {
				u.Caps = []store.Cap{{Gate: store.TenantQueueGate(store.Every, "mail"), Limit: 7}}
			}
			r.putPolicy(u)
			if others != "" {
				r.put("ann", capped)
			}
			give := func() { r.put("bob", capped) }
			if byTier {
				r.put("bob", recordedCap{tier: "gold"})
				give = func() {
					u.TierCaps = []store.TierCap{{Tier: "gold", Limit: 1}}
					r.putPolicy(u)
				}
			}
			r.register("w", mailPool, 4, longLease)
			run := func(want int) []store.Lease {
				t.Helper()
				leases := r.read("w", mailPool, 4)
				if len(leases) != want {
					t.Fatalf("beside %q, by a tier %t: %d jobs run, want %d", others, byTier, len(leases), want)
				}
				return leases
			}
			classes := admission.DefaultClasses()
			r.admit(r.job("bob", "mail", 0, classes), r.job("bob", "mail", 0, classes))
			first := run(2)
			give()
			r.admit(r.job("bob", "mail", 0, classes), r.job("bob", "mail", 0, classes))
			run(0)
			r.finish(mailPool, first[:1], complete)
			run(0)
			r.finish(mailPool, first[1:], complete)
			r.finish(mailPool, run(1), complete)
			r.finish(mailPool, run(1), complete)
			if r.census().Live != 0 {
				t.Fatalf("beside %q, by a tier %t: %+v", others, byTier, r.census())
			}
		}
	}
}

// give gives a tenant another record, or none.
func (r *running) give() {
	r.Helper()
	own := recordedCap{tier: choose(r.site, "", "gold", "tin", "gone")}
	if r.chance(2) {
		own.most = r.between(1, 6)
	}
	if r.chance(4) {
		own = recordedCap{}
	}
	r.put(choose(r.site, runningTenants...), own)
}

func (r *running) put(tenant string, own recordedCap) {
	r.Helper()
	text := ""
	if own.tier != "" {
		text = fmt.Sprintf(`,"tier":%q`, own.tier)
	}
	if own.most > 0 {
		text += fmt.Sprintf(`,"max_running":%d`, own.most)
	}
	if text != "" {
		text = "{" + text[1:] + "}"
	}
	_, err := r.store.PutRecord(r.Context(), store.RecordEdit{Tenant: tenant, Policy: r.version, Text: []byte(text), LongestFill: time.Minute, Changes: []byte("[]")})
	r.check(err)
	r.records[tenant] = own
}

// draw draws the caps of tiers for a policy, and which of its caps of tenants are those of their tiers.
func (r *recorded) draw(s *site, u *store.PolicyUpdate) {
	r.tiers, r.byTier = map[string]int{}, map[string]bool{}
	for _, tier := range []string{"gold", "tin"} {
		if !s.chance(3) {
			r.tiers[tier] = choose(s, 1, 2, 3, 5, store.NoCap)
			u.TierCaps = append(u.TierCaps, store.TierCap{Tier: tier, Limit: r.tiers[tier]})
		}
	}
	for i, c := range u.Caps {
		if kind, tenant := c.Gate.Split(); kind == store.KindTenant && tenant != store.Every {
			r.byTier[tenant] = s.chance(2)
			u.Caps[i].ByTier = r.byTier[tenant]
		}
	}
}

// tenantCap returns the cap of a tenant, by which comes first of its record's own, the policy's of the tenant alone, that of the record's tier, that of the policy's tier,
// and that of each.
func (r *running) tenantCap(tenant string) (limit int, capped bool) {
	own, named := r.caps[store.TenantGate(tenant)]
	every, all := r.caps[store.TenantGate(store.Every)]
	if r.recorded != nil {
		record := r.records[tenant]
		ofTier, differs := r.tiers[record.tier]
		switch {
		case record.most > 0:
			return record.most, true
		case named && !r.byTier[tenant], record.tier == "", len(r.tiers) == 0:
		case differs:
			return ofTier, true
		default:
			return every, all
		}
	}
	if named {
		return own, true
	}
	return every, all
}
