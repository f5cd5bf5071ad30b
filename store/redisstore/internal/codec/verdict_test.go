package codec

import (
	"testing"

	"github.com/headgate/headgate/admission"
)

// TestWhatIsLeftIsRoundedDown, of a debt too.
func TestWhatIsLeftIsRoundedDown(t *testing.T) {
	t.Parallel()
	job := admission.NewJob("acme", "mail", "send", nil)
	for line, want := range map[string]admission.Tokens{
		"limited 1 6500000 1 7000000": 6, "limited 1 -6500000 1 7000000": -7, "limited 1 -6000000 1 7000000": -6, "limited 1 -1 1 7000000": -1,
	} {
		if v, err := ParseVerdict(line, &job); err != nil || v.TokensLeft != want {
			t.Errorf("%s: %d left, want %d; %v", line, v.TokensLeft, want, err)
		}
	}
}
