package sorted

import (
	"iter"
	"slices"
	"sort"
)

// runLength is how many values a run has at most.
const runLength = 256

// List keeps values by a comparison that finds no two of them equal. It is not safe for several goroutines.
type List[T any] struct {
	compare func(a, b T) int
	// runs follow each other; none is empty.
	runs [][]T
	n    int
}

// New returns an empty list.
func New[T any](compare func(a, b T) int) *List[T] { return &List[T]{compare: compare} }

// Len returns how many values there are; a nil list has none.
func (l *List[T]) Len() int {
	if l == nil {
		return 0
	}
	return l.n
}

// find returns the run in which a value is or belongs, its place there, and whether it is there.
func (l *List[T]) find(v T) (run, at int, found bool) {
	last := len(l.runs) - 1
	run = sort.Search(last, func(i int) bool {
		r := l.runs[i]
		return l.compare(r[len(r)-1], v) >= 0
	})
	at, found = slices.BinarySearchFunc(l.runs[run], v, l.compare)
	return run, at, found
}

// Add puts a value in its place, unless it is there.
func (l *List[T]) Add(v T) {
	if l.n == 0 {
		l.runs, l.n = append(l.runs[:0], []T{v}), 1
		return
	}
	run, at, found := l.find(v)
	if found {
		return
	}
	l.n++
	r := slices.Insert(l.runs[run], at, v)
	if len(r) < runLength {
		l.runs[run] = r
		return
	}
	half := runLength / 2
	if run == len(l.runs)-1 && at == len(r)-1 {
		half = runLength - 1 // What is added in order leaves full runs.
	}
	right := slices.Clone(r[half:])
	clear(r[half:])
	l.runs[run] = r[:half]
	l.runs = slices.Insert(l.runs, run+1, right)
}

// Remove takes a value out and reports whether it was there.
func (l *List[T]) Remove(v T) bool {
	if l.Len() == 0 {
		return false
	}
	run, at, found := l.find(v)
	if !found {
		return false
	}
	l.n--
	if len(l.runs[run]) == 1 {
		l.runs = slices.Delete(l.runs, run, run+1)
		return true
	}
	if at == 0 { // The first ones leave most often.
		var none T
		l.runs[run][0] = none
		l.runs[run] = l.runs[run][1:]
		return true
	}
	l.runs[run] = slices.Delete(l.runs[run], at, at+1)
	return true
}

// Has reports whether a value is there.
func (l *List[T]) Has(v T) bool {
	if l.Len() == 0 {
		return false
	}
	_, _, found := l.find(v)
	return found
}

// First returns the first value; ok is false where there is none.
func (l *List[T]) First() (v T, ok bool) {
	if l.Len() == 0 {
		return v, false
	}
	return l.runs[0][0], true
}

// Last returns the last value; ok is false where there is none.
func (l *List[T]) Last() (v T, ok bool) {
	if l.Len() == 0 {
		return v, false
	}
	r := l.runs[len(l.runs)-1]
	return r[len(r)-1], true
}

// Rank returns how many values go before one, which need not be there.
func (l *List[T]) Rank(v T) (before int) {
	if l.Len() == 0 {
		return 0
	}
	run, at, _ := l.find(v)
	for _, r := range l.runs[:run] {
		before += len(r)
	}
	return before + at
}

// All yields the values in order. The list must not change meanwhile.
func (l *List[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		if l.Len() == 0 {
			return
		}
		for _, r := range l.runs {
			for _, v := range r {
				if !yield(v) {
					return
				}
			}
		}
	}
}

// From yields the values in order that do not go before one. The list must not change meanwhile.
func (l *List[T]) From(v T) iter.Seq[T] {
	return func(yield func(T) bool) {
		if l.Len() == 0 {
			return
		}
		run, at, _ := l.find(v)
		for _, r := range l.runs[run:] {
			for _, v := range r[at:] {
				if !yield(v) {
					return
				}
			}
			at = 0
		}
	}
}

// Head returns up to n of the first values.
func (l *List[T]) Head(n int) []T {
	head := make([]T, 0, min(n, l.Len()))
	for v := range l.All() {
		if len(head) == n {
			break
		}
		head = append(head, v)
	}
	return head
}
