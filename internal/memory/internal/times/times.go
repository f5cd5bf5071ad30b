package times

import (
	"cmp"
	"iter"
	"maps"
	"strings"

	"github.com/headgate/headgate/internal/sorted"
)

// Never is later than any time.
const Never = int64(9e15)

// passedAtOnce is how many whose time is over a call forgets.
const passedAtOnce = 16

// Time is a name and until when it is kept.
type Time struct {
	At   int64
	Name string
}

// Times are names that are kept until a time, in microseconds. A nil one is empty.
type Times struct {
	ats   map[string]int64
	order *sorted.List[Time]
}

// New returns an empty one.
func New() *Times {
	return &Times{ats: map[string]int64{}, order: sorted.New(func(a, b Time) int {
		return cmp.Or(cmp.Compare(a.At, b.At), strings.Compare(a.Name, b.Name))
	})}
}

// Put keeps a name until a time, and no longer than that.
func (t *Times) Put(name string, at int64) {
	t.Remove(name)
	t.ats[name] = at
	t.order.Add(Time{at, name})
}

// Extend keeps a name until a time, or for longer if it was, and forgets some whose time is over.
func (t *Times) Extend(name string, at, now int64) {
	t.Passed(now)
	if t.ats[name] < at {
		t.Put(name, at)
	}
}

// Remove forgets a name.
func (t *Times) Remove(name string) {
	if at, ok := t.ats[name]; ok {
		delete(t.ats, name)
		t.order.Remove(Time{at, name})
	}
}

// At returns until when a name is kept, 0 for one that is not.
func (t *Times) At(name string) int64 {
	at, _ := t.Find(name)
	return at
}

// Find is At of a name that may be kept until 0.
func (t *Times) Find(name string) (at int64, ok bool) {
	if t == nil {
		return 0, false
	}
	at, ok = t.ats[name]
	return at, ok
}

// Names yields all names, in no order.
func (t *Times) Names() iter.Seq[string] { return maps.Keys(t.ats) }

// First is the earliest time, Never where there is none.
func (t *Times) First() int64 {
	if one, ok := t.order.First(); ok {
		return one.At
	}
	return Never
}

// Until returns up to n that are over by a time, in order.
func (t *Times) Until(at int64, n int) (due []Time) {
	for one := range t.order.All() {
		if one.At > at || len(due) == n {
			break
		}
		due = append(due, one)
	}
	return due
}

// Passed returns some names whose time is over, and forgets them.
func (t *Times) Passed(now int64) (names []string) {
	for len(names) < passedAtOnce {
		first, ok := t.order.First()
		if !ok || first.At > now {
			break
		}
		t.Remove(first.Name)
		names = append(names, first.Name)
	}
	return names
}

// Count returns how many names there are whose time is now or later.
func (t *Times) Count(now int64) int {
	if t == nil {
		return 0
	}
	return t.order.Len() - t.order.Rank(Time{At: now})
}

// Len returns how many names there are, some perhaps of a time that is over; none once the last is.
func (t *Times) Len(now int64) int {
	if t == nil {
		return 0
	}
	if last, ok := t.order.Last(); !ok || last.At <= now {
		return 0
	}
	return t.order.Len()
}
