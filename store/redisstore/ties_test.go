package redisstore

import (
	"testing"

	"github.com/headgate/headgate/admission"
)

// TestTiesGoToWhoEnteredFirst: within one fill, where a tenant that was just served has the tag of one that was not yet (law L7).
func TestTiesGoToWhoEnteredFirst(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.register(1)
	y.admit(mail("first", "f1"), mail("first", "f2"), mail("first", "f3")) // f1 goes, which moves the tag of its tenant by one.
	y.admit(mail("second", "s1"), mail("second", "s2"))
	y.register(3) // s1 goes, and both tags are equal.
	for _, row := range []struct {
		key  admission.Key
		want admission.Place
	}{
		{admission.Key{Tenant: "first", ID: "f1"}, admission.PlaceReady},
		{admission.Key{Tenant: "second", ID: "s1"}, admission.PlaceReady},
		{admission.Key{Tenant: "first", ID: "f2"}, admission.PlaceReady},
		{admission.Key{Tenant: "second", ID: "s2"}, admission.PlaceWaiting},
	} {
		sight, err := y.store.Look(t.Context(), row.key)
		check(t, err)
		if sight.Place != row.want {
			t.Errorf("%s is %s, want %s", row.key, sight.Place, row.want)
		}
	}
}
