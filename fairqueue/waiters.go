package fairqueue

import (
	"cmp"
	"maps"
	"slices"

	"github.com/headgate/headgate/internal/sorted"
)

// waiter is a lane or a tenant that waits at a gate.
type waiter struct {
	member string
	tag    VirtualTime
}

// waiters are those of one line at a gate, by tag, ties by name.
type waiters struct {
	tags  map[string]VirtualTime
	order *sorted.List[waiter]
}

func newWaiters() *waiters {
	return &waiters{tags: map[string]VirtualTime{}, order: sorted.New(func(a, b waiter) int {
		return cmp.Or(cmp.Compare(a.tag, b.tag), cmp.Compare(a.member, b.member))
	})}
}

// len returns how many wait; nobody does where there is no such line.
func (w *waiters) len() int {
	if w == nil {
		return 0
	}
	return w.order.Len()
}

func (w *waiters) remove(member string) {
	if w == nil {
		return
	}
	if tag, ok := w.tags[member]; ok {
		delete(w.tags, member)
		w.order.Remove(waiter{member, tag})
	}
}

func (r *Room) park(gate, line, member string, tag VirtualTime) {
	lines := r.parked[gate]
	if lines == nil {
		lines = map[string]*waiters{}
		r.parked[gate] = lines
		if gate[0] == 'h' {
			r.shelves[gate] = true
		}
	}
	w := lines[line]
	if w == nil {
		w = newWaiters()
		lines[line] = w
	}
	w.remove(member)
	w.tags[member] = tag
	w.order.Add(waiter{member, tag})
}

func (r *Room) forget(gate, line, member string) {
	r.parked[gate][line].remove(member)
	if r.parked[gate][line].len() == 0 {
		delete(r.parked[gate], line)
	}
	if len(r.parked[gate]) == 0 {
		delete(r.parked, gate)
		delete(r.shelves, gate)
	}
}

// popWaiter takes the waiter with the least tag, ties by name. There is one.
func (r *Room) popWaiter(gate, line string) (member string, tag VirtualTime) {
	w, _ := r.parked[gate][line].order.First()
	r.forget(gate, line, w.member)
	return w.member, w.tag
}

// LinesAt names the lines, CLASS:QUEUE, that have waiters at a gate, sorted.
func (r *Room) LinesAt(gate string) []string { return slices.Sorted(maps.Keys(r.parked[gate])) }

// Shelves names the gates at which lanes of downstreams wait that have their share, sorted.
func (r *Room) Shelves() []string { return slices.Sorted(maps.Keys(r.shelves)) }

func (r *Room) arm(timer string, at int64) {
	if r.Alarms != nil {
		r.Alarms.Set(timer, at)
		return
	}
	r.Timers[timer] = at
}

func (r *Room) disarm(timer string) {
	if r.Alarms != nil {
		r.Alarms.Stop(timer)
		return
	}
	delete(r.Timers, timer)
}

func (r *Room) armed(timer string) bool {
	if r.Alarms != nil {
		return r.Alarms.Armed(timer)
	}
	_, armed := r.Timers[timer]
	return armed
}

// Served reports whether a pool serves a queue.
func (r *Room) Served(queue string) bool {
	for _, p := range r.Pools {
		if slices.Contains(p.Queues, queue) {
			return true
		}
	}
	return false
}
