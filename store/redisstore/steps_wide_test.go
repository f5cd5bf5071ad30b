package redisstore

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/policies"
)

// TestAnEditOfThousandsOfClassesIsStored: what tiers weigh is a field of the state for each class, all of which change with the version. So they come, and so they go.
func TestAnEditOfThousandsOfClassesIsStored(t *testing.T) {
	t.Parallel()
	const classes = 9000 // more than a function of Lua may return
	y := newYard(t)
	wide := edit(1, `{"wide":true}`)
	for i := range classes {
		wide.TierWeights = append(wide.TierWeights, store.TierWeight{Class: admission.Priority(fmt.Sprint("c", i)), Tier: "gold", Weight: 2})
	}
	check(t, wide.Validate())
	check(t, y.store.PutPolicy(t.Context(), wide))
	stored, err := y.store.Stored(t.Context())
	check(t, err)
	if want := policies.SettingsOf(&wide); !maps.Equal(stored, want) {
		t.Errorf("%d settings are stored, of %d", len(stored), len(want))
	}
	check(t, y.store.PutPolicy(t.Context(), edit(2, `{"wide":false}`)))
	stored, err = y.store.Stored(t.Context())
	check(t, err)
	if len(stored) != 0 {
		t.Errorf("%d settings are left", len(stored))
	}
}

// TestAnEditThatIsGoneHoldsNobodyUp: the call that did the last portion of an edit broke off, as one of a release before did where it changed thousands of fields, and
// left that the edit is under way, and nothing of it. The next edit is stored, and Redis has what it says: of what stands there nobody takes the version's word.
func TestAnEditThatIsGoneHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	for _, spread := range []bool{false, true} {
		y := newYard(t)
		first := manyTenants(1, 3, 5)
		check(t, y.store.PutPolicy(t.Context(), first))
		state := y.store.Keys().State()
		check(t, y.client.HSet(t.Context(), state, "pg", "the edit").Err())
		check(t, y.client.HDel(t.Context(), y.store.Keys().Base()+"weights", "high:t1").Err())
		if spread {
			check(t, y.store.SpreadPolicy(t.Context()))
		}
		next := manyTenants(2, 3, 5)
		next.Before = &first
		err := y.store.PutPolicy(t.Context(), next)
		if !spread && errors.Is(err, store.ErrConflict) { // It has ended the other.
			err = y.store.PutPolicy(t.Context(), next)
		}
		check(t, err)
		if got, want := y.known(), knownOf(&next); !maps.Equal(got, want) {
			t.Errorf("spread %t: %s", spread, differs(got, want))
		}
	}
}
