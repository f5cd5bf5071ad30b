package policy_test

import (
	"errors"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

func TestAStoredPolicyIsNoFaultOfTheCaller(t *testing.T) {
	t.Parallel()
	if p, err := policy.Stored(nil); err != nil || p.Version != 0 || len(p.Tiers) != len(policy.Default().Tiers) {
		t.Errorf("where none was stored: %+v, %v", p, err)
	}
	for _, text := range []string{"{", `{"sesame": 1}`, `{"tenants": {"acme": {"tier": "none"}}}`} {
		if _, err := policy.PrepareStored([]byte(text)); !errors.Is(err, policy.ErrStored) || errors.Is(err, admission.ErrInvalid) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if c, err := policy.PrepareStored([]byte(`{"version": 7}`)); err != nil || c.Version() != 7 {
		t.Errorf("got %v, %v", c, err)
	}
}
