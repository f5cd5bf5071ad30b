package headgate

import (
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
)

// TestWhoFindsNoRoomHearsARefusal: it is certain that nothing was sent, so it is one as any other, and matches what it matched.
func TestWhoFindsNoRoomHearsARefusal(t *testing.T) {
	t.Parallel()
	err := told(&admission.OverloadedError{Waiting: 9, RetryAfter: time.Second})
	no, ok := errors.AsType[*Refusal](err)
	if !ok || no.RetryAfter != time.Second || !errors.Is(err, ErrOverloaded) || !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrRefused) {
		t.Errorf("%+v", err)
	}
	if told(nil) != nil || !errors.Is(told(ErrOutcomeUnknown), ErrOutcomeUnknown) {
		t.Error("an error that is no refusal is another")
	}
}
