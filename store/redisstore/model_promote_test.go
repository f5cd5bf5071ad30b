package redisstore

import (
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// due lists every timer as the script keeps it.
func (m *model) due() map[string]int64 {
	all := maps.Clone(m.room.Timers)
	maps.Copy(all, m.timers)
	return all
}

func sortedByTime(timers map[string]int64, now int64, limit int) []string {
	var names []string
	for name, at := range timers {
		if at <= now {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if timers[a] != timers[b] {
			return int(timers[a] - timers[b])
		}
		return strings.Compare(a, b)
	})
	return names[:min(limit, len(names))]
}

func (m *model) promote(now int64, leap store.Leap, owner string, lease int64) (word string, next int64, dispatched []fairqueue.Dispatch) {
	if owner != m.promoter && m.promoterUntil >= now && m.promoterUntil <= now+lease {
		return "held", m.promoterUntil - now + 1, nil
	}
	c := m.begin(now)
	m.promoter, m.promoterUntil = owner, now+lease
	if m.leapt == 1 && leap == store.LeapAsk {
		return "leapt", 0, nil
	}
	m.rotate()
	stepped := m.leapt == -1 || m.leapt == 1 && leap == store.LeapStep
	m.leapt = 0
	if stepped {
		for name, w := range m.workers {
			m.timers["w"+name] = now + w.lease
		}
		m.lookAgain(c, now)
	}
	for _, key := range sortedByTime(m.later, now, (c.MovesLeft+1)/2) {
		c.MovesLeft--
		delete(m.later, key)
		m.putBack(c, m.live[key], now)
	}
	due := m.due()
	for _, timer := range sortedByTime(due, now+fairqueue.ContinueAfter, m.moves) {
		if c.MovesLeft == 0 {
			break
		}
		if due[timer] > now && !strings.ContainsRune("fko", rune(timer[0])) {
			continue
		}
		delete(m.room.Timers, timer)
		delete(m.timers, timer)
		m.runTimer(c, timer, now)
	}
	c.WakeFreed()
	dispatched = m.fill(c, now)
	next = modelNoTimers
	for _, at := range m.due() {
		next = min(next, at)
	}
	for _, at := range m.later {
		next = min(next, at)
	}
	word = "promoted"
	if c.More || next <= now || c.MovesLeft == 0 && next <= now+fairqueue.ContinueAfter {
		word = "more"
	}
	if next == modelNoTimers {
		return word, -1, dispatched
	}
	return word, max(0, next-now), dispatched
}

// lookAgain lets everything look again, after a step of the clock, whose timer the old clock may have put far ahead.
func (m *model) lookAgain(c *fairqueue.Pass, now int64) {
	for name := range m.timers {
		if name[0] == 'b' {
			m.timers[name] = now
		}
	}
	for timer := range m.room.Timers {
		if name := timer[1:]; timer[0] == 'f' && m.room.Pools[name] != nil || timer[0] == 'o' && len(m.spilled[name]) > 0 {
			m.room.Timers[timer] = now
		}
	}
	for name := range m.room.Gates {
		c.Freed(name)
	}
	for _, line := range m.room.Lines() {
		if shelf, ok := strings.CutPrefix(line, "parked h:"); ok {
			shelf, _, _ = strings.Cut(shelf, " ")
			c.Freed("h:" + shelf)
		}
	}
}

func (m *model) runTimer(c *fairqueue.Pass, timer string, now int64) {
	name := timer[1:]
	switch timer[0] {
	case 'd':
		for _, j := range c.ExpireLane(timer) {
			m.expire(j, now)
		}
	case 'g':
		m.gateDue(c, name, now)
	case 'k':
		c.Continue(name)
	case 'f':
		if p := m.room.Pools[name]; p != nil {
			m.surplusReturn(c, p, now)
			m.poolClose(p)
			c.Refill(name)
		}
	case 'c':
		m.audit(c, name, now)
	case 'o':
		m.depthFreed[name], m.spillOn[name] = true, true
	case 'x':
		if j := m.live[name]; j != nil && m.unspill(j) {
			m.expire(&j.Job, now)
		}
	case 'r':
		m.lettersPurge(c, name, now)
	case 'b':
		m.breakerDue(c, name, now)
	case 's':
		delete(m.suspended, name)
	case 'w':
		if !m.workerReclaim(c, name, true, now) {
			m.timers[timer] = now
		}
	}
}

// audit takes back what consumers hold that are not registered.
func (m *model) audit(c *fairqueue.Pass, id string, now int64) {
	p := m.room.Pools[id]
	if p == nil {
		return
	}
	orphans := map[string]bool{}
	for _, e := range p.Ready {
		if _, ok := m.workers[e.Worker]; e.Worker != "" && !ok {
			orphans[e.Worker] = true
		}
	}
	for _, worker := range slices.Sorted(maps.Keys(orphans)) {
		if !m.consumerReturn(c, p, worker, true, now) {
			m.timers["c"+id] = now
			return
		}
	}
	m.poolClose(p)
	if m.room.Pools[id] != nil {
		m.timers["c"+id] = now + modelAudit
	}
}
