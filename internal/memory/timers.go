package memory

import (
	"cmp"
	"strings"

	"github.com/headgate/headgate/internal/sorted"
)

// timers are what is due at a time, by name. Their first byte says what:
//
//	w worker            its lease ends
//	d class:queue:tenant:downstream   the head of a lane with deadlines passes its own
//	g gate              a gate's time is over, or a rate has a token
//	k gate              waiters of an open gate are not all awake yet
//	f pool              a fill that ran out of moves goes on
//	c pool              holders are compared with registrations
//	o tenant:queue      spilled jobs that have room go on coming back
//	x job               the deadline of a spilled job passes
//	r queue             its oldest dead letter has been kept for long enough
//	s name              enqueueing is no longer suspended
//	b downstream        its breaker's state ends by time, or is to be looked at
type timers struct {
	ats   map[string]int64
	order *sorted.List[timer]
}

type timer struct {
	at   int64
	name string
}

func newTimers() *timers {
	return &timers{ats: map[string]int64{}, order: sorted.New(func(a, b timer) int {
		return cmp.Or(cmp.Compare(a.at, b.at), strings.Compare(a.name, b.name))
	})}
}

func (t *timers) set(name string, at int64) {
	t.stop(name)
	t.ats[name] = at
	t.order.Add(timer{at, name})
}

func (t *timers) stop(name string) {
	if at, ok := t.ats[name]; ok {
		delete(t.ats, name)
		t.order.Remove(timer{at, name})
	}
}

// first is when the first one is due, never for none.
func (t *timers) first() int64 {
	if one, ok := t.order.First(); ok {
		return one.at
	}
	return never
}

// until returns up to n timers that are due by a time, in order.
func (t *timers) until(at int64, n int) (due []timer) {
	for one := range t.order.All() {
		if one.at > at || len(due) == n {
			break
		}
		due = append(due, one)
	}
	return due
}

// earliest is when the first timer is due, or the first job that waits for a time.
func (m *model) earliest() int64 {
	first := m.timers.first()
	if j, ok := m.later.First(); ok {
		first = min(first, j.at)
	}
	return first
}

// arm sets a timer, and wakes the schedulers where it is the first.
func (m *model) arm(name string, at int64) {
	before := m.earliest()
	m.timers.set(name, at)
	m.wakeIf(at, before)
}

// wakeIf wakes the schedulers if something is due before all else was.
func (m *model) wakeIf(at, before int64) {
	if at < before {
		m.wake = m.newToken(m.last)
		m.happened[wakeTopic] = true
	}
}
