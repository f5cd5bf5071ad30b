package fairqueue

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// Fill ends a call: it serves every pool with room whose queues have something runnable, and passes units of gates on,
// until nothing more can be done or the moves are out. It returns the dispatches in order.
func (c *Pass) Fill() []Dispatch {
	var out []Dispatch
	for again := true; again; again = c.wakeIdle() || len(c.passOn)+len(c.shelfMore) > 0 {
		names := slices.Sorted(maps.Keys(c.passOn))
		clear(c.passOn)
		for _, name := range names {
			c.wake(name)
		}
		c.wakeShelves()
		for _, p := range c.served() {
			out = c.fillPool(p, out)
			c.noteBusy(p)
		}
		clear(c.refill)
		clear(c.refillPools)
	}
	return out
}

// served returns the pools that are to be filled, by name.
func (c *Pass) served() (pools []*Pool) {
	if len(c.refill)+len(c.refillPools) == 0 {
		return nil
	}
	for _, p := range c.room.Pools {
		if c.serves(p) {
			pools = append(pools, p)
		}
	}
	if len(pools) > 1 {
		slices.SortFunc(pools, func(a, b *Pool) int { return strings.Compare(a.ID, b.ID) })
	}
	return pools
}

func (c *Pass) serves(p *Pool) bool {
	return c.refillPools[p.ID] || slices.ContainsFunc(p.Queues, func(q string) bool { return c.refill[q] })
}

func (c *Pass) fillPool(p *Pool, out []Dispatch) []Dispatch {
	room := p.Slots - len(p.Ready)
	delete(c.spare, p.ID)
	for room > 0 {
		i, ok := c.nextQueue(p)
		if !ok {
			c.spare[p.ID] = room
			return out
		}
		if c.MovesLeft == 0 {
			c.movesOut("f" + p.ID)
			return out
		}
		q := c.room.queue(p.Queues[i])
		k, _ := q.pattern.Next(func(k int) bool { return c.room.canRun(q, k) })
		if e := c.serve(p, q.classes[k]); e != nil {
			q.pattern.Commit(k)
			if !p.Strict && len(p.Queues) > 1 {
				p.pattern.Commit(i)
			}
			p.add(e)
			out = append(out, Dispatch{p.ID, e.Job, e})
			c.passed(p, e.Job.Service())
			room--
		}
	}
	return out
}

func (c *Pass) nextQueue(p *Pool) (int, bool) {
	canRun := func(i int) bool {
		q := c.room.queue(p.Queues[i])
		return !c.room.closed("q:"+q.name) && slices.ContainsFunc(q.classes, func(cl *class) bool { return c.room.canRun(q, cl.index) })
	}
	if !p.Strict {
		return p.pattern.Next(canRun)
	}
	for i := range p.Queues {
		if canRun(i) {
			return i, true
		}
	}
	return 0, false
}

// serve makes one move with the tenant at the head of a class and returns the entry if it was a dispatch.
func (c *Pass) serve(p *Pool, cl *class) *Entry {
	c.MovesLeft--
	c.room.touch(cl.queue)
	t := cl.least()
	if c.parkTenant(cl, t) {
		return nil
	}
	l := t.head()
	parked := c.room.gatesAny() && c.parkWaiter(cl, l.gates(), t.name+":"+l.name, t.tag)
	if service := ServiceOf(l.name[1:]); !parked && c.mustShelve(p, service) {
		c.room.park(shelfOf(service), cl.line(), t.name+":"+l.name, t.tag)
		parked = true
	}
	if parked {
		l.blocked = true
		t.reorder(l)
		c.vanished(l)
		if t.head() == nil {
			cl.exit(t, laneParked)
		}
		cl.recount(t)
		return nil
	}
	j := l.head()
	l.jobs.Remove(j)
	cl.count(j, -1, c.room)
	if j.Dated && j.Score < c.now {
		c.Expired = append(c.Expired, j)
		c.shrunk(cl, t, l)
		return nil
	}
	cl.v = max(cl.v, t.tag)
	cl.runnable.Remove(t)
	t.tag += VirtualTime(float64(j.Cost) / float64(c.room.Weight(cl.queue.names[cl.index], t.name)))
	cl.queue.pace.dispatched++
	e := &Entry{Job: j}
	c.passGates(e)
	c.settle(cl, t, l)
	if t.mode == runnable {
		cl.runnable.Add(t)
	}
	return e
}

// passGates counts an entry under the gates on its job's way.
func (c *Pass) passGates(e *Entry) {
	if !c.room.gatesAny() {
		return
	}
	j := e.Job
	for _, name := range gateNames(j.Queue, j.Tenant, j.Downstream) {
		switch g := c.room.gate(name); {
		case g == nil:
		case g.Rate != nil:
			g.Rate.Take()
			c.passOn[name] = true
		default:
			g.Held++
			e.Period = max(e.Period, g.Period)
		}
	}
	if g := c.room.reserveOf(j.Queue, j.Class); g != nil {
		g.Held++
	}
}

// parkWaiter parks a waiter behind the first closed one of several gates, and reports whether there is one.
func (c *Pass) parkWaiter(cl *class, gates []string, member string, tag VirtualTime) bool {
	for _, name := range gates {
		if c.room.closed(name) {
			c.room.park(name, cl.line(), member, tag)
			c.armRate(name)
			return true
		}
	}
	return false
}

// armRate sets the timer of a rate that has nothing left but waiters.
func (c *Pass) armRate(name string) {
	if m := c.room.RateAt(name); m != nil {
		c.room.arm("g"+name, c.now+m.Wait())
	}
}

// parkTenant parks t if a gate of its own is closed. Its open lanes leave their units to others.
func (c *Pass) parkTenant(cl *class, t *tenant) bool {
	if !c.room.gatesAny() || !c.parkWaiter(cl, tenantGates(t.name, cl.queue.name), t.name, t.tag) {
		return false
	}
	cl.exit(t, tenantParked)
	for l := range t.open.All() {
		c.vanished(l)
	}
	return true
}

const everyone = math.MaxInt

// wake brings back as many waiters of each line as the gate has free units.
func (c *Pass) wake(name string) { c.wakeSome(name, everyone, nil, "") }

// wakeSome is wake for at most most of each line, of some queues only if these are given, and of the lines from one on. It returns how
// many have left the gate.
func (c *Pass) wakeSome(name string, most int, only []string, from string) (left int) {
	if queue, ok := strings.CutPrefix(name, "o:"); ok {
		c.refill[queue] = true
		return 0
	}
	units := min(most, c.room.units(name))
	if units <= 0 {
		if len(c.room.parked[name]) > 0 {
			c.armRate(name)
		}
		return 0
	}
	if queue, ok := strings.CutPrefix(name, "q:"); ok {
		c.refill[queue] = true
		return 0
	}
	for _, line := range slices.Sorted(maps.Keys(c.room.parked[name])) {
		index, queue := splitLine(line)
		if only != nil && !slices.Contains(only, queue) || line < from {
			continue
		}
		for woken := 0; woken < units && c.room.parked[name][line].len() > 0; {
			if c.MovesLeft == 0 {
				c.movesOut("k" + name)
				c.room.wakes[name] = line
				return left
			}
			c.MovesLeft--
			left++
			member, tag := c.room.popWaiter(name, line)
			cl := c.room.queue(queue).classes[index]
			if strings.Contains("tur", name[:1]) {
				c.wakeTenant(cl, member, tag)
				woken++
			} else if c.wakeLane(cl, member, tag) {
				woken++
			}
		}
	}
	return left
}

// wakeLane reports whether the lane may use the unit: not while it or its tenant stands behind another gate.
func (c *Pass) wakeLane(cl *class, member string, tag VirtualTime) bool {
	name, laneName, _ := strings.Cut(member, ":")
	if c.parkWaiter(cl, laneGates(laneName[1:]), member, tag) {
		return false
	}
	t := cl.tenants[name]
	t.lanes[laneName].blocked = false
	t.reorder(t.lanes[laneName])
	cl.recount(t)
	if t.mode == laneParked {
		c.enter(cl, t)
	}
	return t.mode == runnable
}

// wakeTenant moves a tenant from the gate that opened to another one if that is closed.
func (c *Pass) wakeTenant(cl *class, name string, tag VirtualTime) {
	t := cl.tenants[name]
	if c.parkWaiter(cl, tenantGates(name, cl.queue.name), name, tag) {
		return
	}
	if t.head() == nil {
		t.mode = laneParked
		cl.recount(t)
		return
	}
	c.enter(cl, t)
}
