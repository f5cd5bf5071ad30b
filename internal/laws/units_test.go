package laws_test

import (
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestUnitOfAPausedTenantGoesToAnother asserts law W where two gates meet. A lane of a tenant waits for a unit of its
// downstream, and the tenant is paused. The unit that comes free is of no use to it, so another tenant has it.
func TestUnitOfAPausedTenantGoesToAnother(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Shared(t))
	classes := admission.DefaultClasses()
	enter := func(tenant, downstream string) {
		t.Helper()
		j := s.job(tenant, "mail", 0, classes)
		j.Job.Downstream = downstream
		s.admit(j)
	}
	s.register("w", mailPool, 10, longLease)
	s.setGate(store.DownstreamGate("api"), 1)
	enter("first", "api") // It has the unit.
	enter("paused", "api")
	s.setGate(store.TenantGate("paused"), 0)
	enter("paused", "") // Now the tenant comes to the head and parks, and its other lane waits for a unit.
	enter("second", "api")
	held := s.read("w", mailPool, 10)
	if len(held) != 1 || held[0].Job.Tenant != "first" {
		t.Fatalf("ready: %+v", held)
	}
	s.finish(mailPool, held, complete)
	held = s.read("w", mailPool, 10)
	if len(held) != 1 || held[0].Job.Tenant != "second" {
		t.Fatalf("law W: the unit is free, 10 slots are, and the job of the other tenant does not run: %+v", held)
	}
	s.finish(mailPool, held, complete)
	s.setGate(store.TenantGate("paused"), store.Unlimited)
	if n := len(s.read("w", mailPool, 10)); n != 2 {
		t.Errorf("%d jobs of the paused tenant run when its pause is over, want 2", n)
	}
	s.census()
}

// TestUnitsReachWhoCanUseThem asserts law W for a downstream with units. As many waiters run as it has units; and one
// that is woken for a unit, and finds its tenant paused, leaves it to the next.
func TestUnitsReachWhoCanUseThem(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Shared(t))
	s.register("w", mailPool, 10, longLease)
	s.setGate(store.DownstreamGate("api"), 0)
	for _, tenant := range []string{"a", "b", "c", "paused", "z"} { // Equal tags wake by name.
		j := s.job(tenant, "mail", 0, admission.DefaultClasses())
		j.Job.Downstream = "api"
		s.admit(j)
	}
	s.setGate(store.DownstreamGate("api"), 3)
	held := s.read("w", mailPool, 10)
	if len(held) != 3 {
		t.Fatalf("law W: of 3 units %d are used, and 5 jobs wait for them", len(held))
	}
	s.setGate(store.TenantGate("paused"), 0)
	s.finish(mailPool, held[:1], complete)
	if next := s.read("w", mailPool, 10); len(next) != 1 || next[0].Job.Tenant != "z" {
		t.Errorf("law W: the unit is free, its first waiter is paused, and the next does not run: %+v", next)
	}
}
