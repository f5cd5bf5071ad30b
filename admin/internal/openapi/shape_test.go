package openapi

import (
	"strings"
	"testing"
)

// TestOfManyMembersSomeAreNamed: a fault is no longer than people read.
func TestOfManyMembersSomeAreNamed(t *testing.T) {
	t.Parallel()
	s := &shape{members: map[string]*shape{}}
	for name := range strings.FieldsSeq("a b c d e f g h i j k l m n o p q r s t u v w x y z") {
		s.members[name] = nil
	}
	for place, want := range map[string]string{"": "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x and 2 more", "a": "", "nosuch": ""} {
		if got := s.memberNames(strings.Fields(place)); got != want {
			t.Errorf("at %q they are %q, want %q", place, got, want)
		}
	}
}
