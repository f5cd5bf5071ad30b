package producer

import "sync"

// turns is the tickets that wait, by tenant: the tenants take turns, a ticket each, and those of one tenant go in the order in
// which they came. Every operation looks at one ticket and one tenant, however many there are. The zero turns is empty; the
// line's lock guards it.
type turns struct {
	of map[string]*waiting
	// next is whose turn it is, in a ring of the tenants that wait; nil when nobody does.
	next *waiting
	sums
	// most is how many tenants have waited at a time.
	most int
}

// keptTenants is for how many tenants the room of the map is kept while nobody waits.
const keptTenants = 1024

// waiting is the tickets of one tenant. It is dropped with its last ticket.
type waiting struct {
	tenant        string
	first, last   *ticket
	before, after *waiting
	sums
}

// unused are those of tenants that wait no more.
var unused = sync.Pool{New: func() any { return &waiting{} }}

// sums is what waits.
type sums struct{ tickets, jobs, bytes int }

func (s *sums) add(t *ticket, sign int) {
	s.tickets += sign
	s.jobs += sign * len(t.entries)
	s.bytes += sign * t.bytes
}

// push puts a ticket behind those of its tenant; a tenant that did not wait is the last whose turn comes.
func (q *turns) push(t *ticket) {
	w := q.of[t.tenant()]
	if w == nil {
		w = unused.Get().(*waiting) //nolint:forcetypeassert // It has no others.
		w.tenant = t.tenant()
		if q.of == nil {
			q.of = make(map[string]*waiting)
		}
		q.of[w.tenant] = w
		q.most = max(q.most, len(q.of))
		if q.next == nil {
			w.before, w.after, q.next = w, w, w
		} else {
			w.before, w.after = q.next.before, q.next
			w.before.after, w.after.before = w, w
		}
	}
	t.waits, t.ahead, t.behind = w, w.last, nil
	if w.last == nil {
		w.first = t
	} else {
		w.last.behind = t
	}
	w.last = t
	w.add(t, 1)
	q.add(t, 1)
}

// head is the ticket whose turn it is, nil when nobody waits.
func (q *turns) head() *ticket {
	if q.next == nil {
		return nil
	}
	return q.next.first
}

// pop takes the head out. The turn goes to the next tenant.
func (q *turns) pop() *ticket {
	t := q.head()
	q.next = q.next.after
	q.remove(t)
	return t
}

// remove takes a ticket out from wherever it waits.
func (q *turns) remove(t *ticket) {
	w := t.waits
	if t.ahead == nil {
		w.first = t.behind
	} else {
		t.ahead.behind = t.behind
	}
	if t.behind == nil {
		w.last = t.ahead
	} else {
		t.behind.ahead = t.ahead
	}
	t.waits, t.ahead, t.behind = nil, nil, nil
	w.add(t, -1)
	q.add(t, -1)
	if w.first != nil {
		return
	}
	delete(q.of, w.tenant)
	w.before.after, w.after.before = w.after, w.before
	if q.next == w {
		q.next = w.after
	}
	*w = waiting{}
	unused.Put(w)
	if len(q.of) > 0 {
		return
	}
	q.next = nil
	if q.most > keptTenants { // A map does not shrink by itself.
		q.of, q.most = nil, 0
	}
}

// sumsOf is what waits of one tenant.
func (q *turns) sumsOf(tenant string) sums {
	if w := q.of[tenant]; w != nil {
		return w.sums
	}
	return sums{}
}
