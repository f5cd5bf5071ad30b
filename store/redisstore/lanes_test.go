package redisstore

import (
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestATenantComesBackWithoutAnOpenLane: its only open lane goes while the tenant stands behind a gate of its own, and the
// other lane waits for a downstream.
func TestATenantComesBackWithoutAnOpenLane(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	set := func(name store.GateName, limit int) {
		t.Helper()
		if _, more, err := y.store.SetGate(t.Context(), store.Gate{Name: name, Limit: limit, By: store.Intervention{Reason: t.Name()}}); err != nil || more {
			t.Fatalf("limit %d of %s: more %v, %v", limit, name, more, err)
		}
	}
	set(store.DownstreamGate("api"), 0)
	y.register(1)
	parked := mail("acme", "parked")
	parked.Downstream = "api"
	for _, job := range []admission.Job{mail("acme", "first"), parked, mail("acme", "second")} {
		y.admit(job)
	}
	y.read(1)
	y.finish("first", store.Finish{Outcome: store.Complete}) // parks the lane of api, and dispatches the second
	y.read(1)
	y.admit(mail("acme", "third"))
	set(store.TenantGate("acme"), 0)
	y.finish("second", store.Finish{Outcome: store.Complete})
	_, _, err := y.store.Cancel(t.Context(), admission.Key{Tenant: "acme", ID: "third"}, store.Intervention{Reason: t.Name()})
	check(t, err)
	set(store.TenantGate("acme"), store.Unlimited)
	if sight := y.look("parked"); sight.Place != admission.PlaceWaiting {
		t.Errorf("while its downstream is shut: %+v", sight)
	}
	set(store.DownstreamGate("api"), store.Unlimited)
	y.read(1)
	y.finish("parked", store.Finish{Outcome: store.Complete})
}
