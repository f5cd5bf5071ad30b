package laws_test

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
)

// TestATenantThatComesBackBanksNoCredit asserts L7: the tag of a tenant that drained counts only while it is above V. There are more
// idle tenants than a call forgets, so the tags of some lag far behind V when they come back.
func TestATenantThatComesBackBanksNoCredit(t *testing.T) {
	t.Parallel()
	const idle, slots, class, back = 40, 41, 1, 10
	s := newSite(t, redistest.Shared(t))
	classes := admission.DefaultClasses()
	for i := range idle {
		s.admit(s.job(fmt.Sprintf("idle-%d", i), "mail", class, classes))
	}
	for range 4 * slots {
		s.admit(s.job("busy", "mail", class, classes))
	}
	s.register("w", mailPool, slots, longLease)
	s.finish(mailPool, s.read("w", mailPool, slots), complete) // All idle ones and the first of busy have run.

	late, err := s.client.ZRange(t.Context(), s.key(fmt.Sprintf("idle:%d:mail", class)), 0, 0).Result()
	s.check(err)
	if len(late) == 0 {
		t.Fatal("no tag is left behind V")
	}
	for range back {
		s.admit(s.job(late[0], "mail", class, classes))
	}
	s.finish(mailPool, s.read("w", mailPool, slots), complete)
	first := 0
	for _, lease := range s.read("w", mailPool, slots)[:back] {
		if lease.Job.Tenant == late[0] {
			first++
		}
	}
	if first == 0 || first > back/2+1 {
		t.Errorf("%d of the next %d jobs are of the tenant that came back, want half: it was idle, and banks nothing", first, back)
	}
}
