package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// runs is an edit of how many jobs of a tenant run.
func runs(tenant string, most int) func(policy.Policy) (policy.Policy, error) {
	return func(current policy.Policy) (policy.Policy, error) {
		return current.With(json.RawMessage(strconv.Itoa(most)), "tenants", tenant, "max_running")
	}
}

// TestEditorsOfOtherPlacesDoNotDisturbEachOther: of eight at once none is told of a conflict, and no edit is lost.
func TestEditorsOfOtherPlacesDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	p := newPlace(t, redistest.Shared(t))
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			if _, err := Change(t.Context(), p.store, Edit{Expected: AnyVersion}, runs(fmt.Sprint("t", n), n+1)); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	current, err := Current(t.Context(), p.store)
	if err != nil || len(current.Tenants) != 8 || current.Version != 8 {
		t.Errorf("%+v, %v", current, err)
	}
}

// TestAnEditIsMadeAnewOfWhatOthersPutInForce, unless they have changed the same place, or the editor names a version.
func TestAnEditIsMadeAnewOfWhatOthersPutInForce(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		theirs   func(policy.Policy) (policy.Policy, error)
		expected int64
		conflict string
	}{
		"another tenant":    {runs("bolt", 1), AnyVersion, ""},
		"the same place":    {runs("acme", 7), AnyVersion, "somebody else has changed /tenants/acme/max_running"},
		"the whole":         {func(policy.Policy) (policy.Policy, error) { return policy.Unlimited(), nil }, AnyVersion, "/tenants/acme/max_running"},
		"a version is said": {runs("bolt", 1), 1, "version 2 is in force, 1 was expected"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t, redistest.Shared(t))
			edit := func(expected int64, change func(policy.Policy) (policy.Policy, error)) error {
				_, err := Change(t.Context(), p.store, Edit{Expected: expected}, change)
				return err
			}
			if err := edit(AnyVersion, runs("acme", 2)); err != nil {
				t.Fatal(err)
			}
			faster := 1
			err := edit(row.expected, func(current policy.Policy) (policy.Policy, error) {
				for ; faster > 0; faster-- { // Somebody is, while this one thinks.
					if err := edit(AnyVersion, row.theirs); err != nil {
						t.Error(err)
					}
				}
				return runs("acme", 3)(current)
			})
			current, _ := Current(t.Context(), p.store)
			switch {
			case row.conflict != "":
				if !errors.Is(err, store.ErrConflict) || !strings.Contains(err.Error(), row.conflict) || current.Version != 2 {
					t.Errorf("version %d, %v", current.Version, err)
				}
			case err != nil || current.Tenants["acme"].MaxRunning != 3 || current.Tenants["bolt"].MaxRunning != 1:
				t.Errorf("%+v, %v", current.Tenants, err)
			}
		})
	}
}
