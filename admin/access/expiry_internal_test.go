package access

import (
	"errors"
	"testing"
	"time"
)

// TestAKeyEndsWhenItSays: it is taken a moment before its end, and not at it.
func TestAKeyEndsWhenItSays(t *testing.T) {
	t.Parallel()
	end := time.Date(2031, 1, 1, 0, 0, 0, 0, time.UTC)
	key, line, err := NewKey(Principal{Name: "ci", Role: Viewer, Expires: end})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ParseKeys(line)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys.find(key, end.Add(-time.Nanosecond)); err != nil {
		t.Errorf("before its end: %v", err)
	}
	for _, late := range []time.Duration{0, time.Nanosecond, time.Hour} {
		if _, err := keys.find(key, end.Add(late)); !errors.Is(err, errExpired) {
			t.Errorf("%s after its end: %v", late, err)
		}
	}
}
