package store

import (
	"testing"

	"github.com/headgate/headgate/admission"
)

// TestATenantComesBackWithoutAnOpenLane: its only open lane goes while the tenant stands behind a gate of its own, and the
// other lane waits for a downstream.
func TestATenantComesBackWithoutAnOpenLane(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	set := func(name GateName, limit int) {
		t.Helper()
		if _, more, err := y.store.SetGate(t.Context(), Gate{Name: name, Limit: limit, By: Intervention{Reason: t.Name()}}); err != nil || more {
			t.Fatalf("limit %d of %s: more %v, %v", limit, name, more, err)
		}
	}
	set(DownstreamGate("api"), 0)
	y.register(1)
	parked := mail("acme", "parked")
	parked.Downstream = "api"
	for _, job := range []admission.Job{mail("acme", "first"), parked, mail("acme", "second")} {
		y.admit(job)
	}
	y.read(1)
	y.finish("first", Finish{Outcome: Complete}) // parks the lane of api, and dispatches the second
	y.read(1)
	y.admit(mail("acme", "third"))
	set(TenantGate("acme"), 0)
	y.finish("second", Finish{Outcome: Complete})
	_, _, err := y.store.Cancel(t.Context(), admission.Key{Tenant: "acme", ID: "third"}, Intervention{Reason: t.Name()})
	check(t, err)
	set(TenantGate("acme"), Unlimited)
	if sight := y.look("parked"); sight.Place != admission.PlaceWaiting {
		t.Errorf("while its downstream is shut: %+v", sight)
	}
	set(DownstreamGate("api"), Unlimited)
	y.read(1)
	y.finish("parked", Finish{Outcome: Complete})
}
