package times

import (
	"slices"
	"testing"
)

func TestNamesAreKeptUntilTheirTime(t *testing.T) {
	t.Parallel()
	var none *Times
	if none.Count(0) != 0 || none.Len(0) != 0 || none.At("a") != 0 {
		t.Error("nothing has something")
	}
	all := New()
	if all.First() != Never {
		t.Error("there is a first one")
	}
	for i, name := range []string{"a", "b", "c", "d"} {
		all.Put(name, int64(10*i))
	}
	all.Put("d", 15)
	all.Extend("c", 5, -1)
	all.Extend("b", 30, -1)
	all.Remove("nobody")
	if got := all.Until(20, 2); !slices.Equal(got, []Time{{0, "a"}, {15, "d"}}) {
		t.Errorf("%v", got)
	}
	if at, ok := all.Find("a"); at != 0 || !ok || all.At("c") != 20 || all.First() != 0 || all.Count(20) != 2 || all.Len(20) != 4 || all.Len(30) != 0 {
		t.Errorf("%v %v, %d at or after 20", at, ok, all.Count(20))
	}
	if got := all.Passed(20); !slices.Equal(got, []string{"a", "d", "c"}) || !slices.Equal(slices.Collect(all.Names()), []string{"b"}) {
		t.Errorf("%v", got)
	}
}

// TestACallForgetsAFew: what has passed goes bit by bit.
func TestACallForgetsAFew(t *testing.T) {
	t.Parallel()
	all := New()
	for i := range 40 {
		all.Put(string(rune('a'+i)), int64(i))
	}
	for _, want := range []int{passedAtOnce, passedAtOnce, 40 - 2*passedAtOnce, 0} {
		if got := len(all.Passed(100)); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
}
