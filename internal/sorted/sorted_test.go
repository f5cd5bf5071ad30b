package sorted_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headgate/headgate/internal/sorted"
)

// TestAListIsASortedSlice compares it with one, change by change, over several runs of it.
func TestAListIsASortedSlice(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	l, want := sorted.New(cmp.Compare[int]), []int(nil)
	for step := range 20_000 {
		v := r.IntN(3000)
		at, there := slices.BinarySearch(want, v)
		if l.Has(v) != there || l.Rank(v) != at {
			t.Fatalf("step %d: %d is there %t at %d, want %t at %d", step, v, l.Has(v), l.Rank(v), there, at)
		}
		switch {
		case step%3 == 0 && step > 12_000 || step%7 == 0:
			first, ok := l.First()
			if ok != (len(want) > 0) || ok && first != want[0] {
				t.Fatalf("step %d: first %d", step, first)
			}
			if ok {
				l.Remove(first)
				want = want[1:]
			}
		case there:
			if !l.Remove(v) {
				t.Fatalf("step %d: %d was not there", step, v)
			}
			want = slices.Delete(slices.Clone(want), at, at+1)
		default:
			l.Add(v)
			want = slices.Insert(slices.Clone(want), at, v)
		}
		if l.Len() != len(want) {
			t.Fatalf("step %d: %d values, want %d", step, l.Len(), len(want))
		}
		if step%500 == 0 {
			if got := slices.Collect(l.All()); !slices.Equal(got, want) {
				t.Fatalf("step %d: %v, want %v", step, got, want)
			}
			at, _ := slices.BinarySearch(want, v)
			if got := slices.Collect(l.From(v)); !slices.Equal(got, want[at:]) {
				t.Fatalf("step %d: from %d %v, want %v", step, v, got, want[at:])
			}
			if got := l.Head(5); !slices.Equal(got, want[:min(5, len(want))]) {
				t.Fatalf("step %d: head %v", step, got)
			}
		}
	}
}

// TestAddingInOrderFillsRuns and taking out from the front empties them.
func TestAddingInOrderFillsRuns(t *testing.T) {
	t.Parallel()
	l := sorted.New(cmp.Compare[int])
	for v := range 5000 {
		l.Add(v)
		l.Add(v) // is there
	}
	if last, ok := l.Last(); !ok || last != 4999 || l.Len() != 5000 {
		t.Fatalf("last %d of %d", last, l.Len())
	}
	for v := range 5000 {
		if first, ok := l.First(); !ok || first != v || !l.Remove(v) {
			t.Fatalf("first %d, want %d", first, v)
		}
	}
	if _, ok := l.First(); ok || l.Len() != 0 || l.Remove(1) || l.Rank(1) != 0 {
		t.Error("something is left")
	}
}
