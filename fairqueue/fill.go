package fairqueue

import (
	"maps"
	"math"
	"slices"
	"strings"
)

// Fill ends a call: it serves every pool with room whose queues have something runnable, and passes units of gates on,
// until nothing more can be done or the moves are out. It returns the dispatches in order.
func (c *Call) Fill() []Dispatch {
	var out []Dispatch
	for again := true; again; again = len(c.passOn) > 0 {
		names := slices.Sorted(maps.Keys(c.passOn))
		clear(c.passOn)
		for _, name := range names {
			c.wake(name)
		}
		for _, id := range slices.Sorted(maps.Keys(c.room.Pools)) {
			if c.serves(c.room.Pools[id]) {
				out = c.fillPool(c.room.Pools[id], out)
			}
		}
		clear(c.refill)
		clear(c.refillPools)
	}
	return out
}

func (c *Call) serves(p *Pool) bool {
	return c.refillPools[p.ID] || slices.ContainsFunc(p.Queues, func(q string) bool { return c.refill[q] })
}

func (c *Call) fillPool(p *Pool, out []Dispatch) []Dispatch {
	room := p.Slots - len(p.Ready)
	for room > 0 {
		i, ok := c.nextQueue(p)
		if !ok {
			return out
		}
		if c.MovesLeft == 0 {
			c.movesOut("f" + p.ID)
			return out
		}
		q := c.room.queue(p.Queues[i])
		k, _ := q.pattern.Next(func(k int) bool { return q.classes[k].least() != nil })
		if j := c.serve(q.classes[k]); j != nil {
			q.pattern.Commit(k)
			if !p.Strict && len(p.Queues) > 1 {
				p.pattern.Commit(i)
			}
			p.Ready = append(p.Ready, &Entry{Job: j})
			out = append(out, Dispatch{p.ID, j})
			room--
		}
	}
	return out
}

func (c *Call) nextQueue(p *Pool) (int, bool) {
	canRun := func(i int) bool {
		q := c.room.queue(p.Queues[i])
		return !c.room.closed("q:"+q.name) && slices.ContainsFunc(q.classes, func(cl *class) bool { return cl.least() != nil })
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

// serve makes one move with the tenant at the head of a class and returns the job if it was a dispatch.
func (c *Call) serve(cl *class) *Job {
	c.MovesLeft--
	t := cl.least()
	if c.parkTenant(cl, t) {
		return nil
	}
	l := t.head()
	if gate := l.downstreamGate(); len(l.name) > 1 && c.room.closed(gate) {
		l.blocked = true
		c.room.park(gate, cl.line(), t.name+":"+l.name, t.tag)
		if t.head() == nil {
			cl.exit(t, laneParked)
		}
		return nil
	}
	j := l.jobs[0]
	l.jobs = l.jobs[1:]
	if j.Dated && j.Score < c.now {
		c.Expired = append(c.Expired, j)
		c.shrunk(cl, t, l)
		return nil
	}
	cl.v = t.tag
	t.tag += VirtualTime(float64(j.Cost) / float64(c.room.Weight(cl.queue.names[cl.index], t.name)))
	for _, name := range gateNames(j.Queue, j.Tenant, j.Downstream) {
		if g := c.room.Gates[name]; g != nil {
			g.Held++
		}
	}
	c.settle(cl, t, l)
	return j
}

// parkTenant parks t if a gate of its own is closed. Its open lanes leave their units to others.
func (c *Call) parkTenant(cl *class, t *tenant) bool {
	for _, name := range []string{"t:" + t.name, "u:" + t.name + ":" + cl.queue.name} {
		if !c.room.closed(name) {
			continue
		}
		c.room.park(name, cl.line(), t.name, t.tag)
		cl.exit(t, tenantParked)
		for _, l := range t.lanes {
			if !l.blocked {
				c.vanished(l)
			}
		}
		return true
	}
	return false
}

// wake brings back as many waiters of each line as the gate has free units.
func (c *Call) wake(name string) {
	units := math.MaxInt
	if g := c.room.Gates[name]; g != nil {
		units = g.Limit - g.Held
	}
	if units <= 0 {
		return
	}
	if queue, ok := strings.CutPrefix(name, "q:"); ok {
		c.refill[queue] = true
		return
	}
	for _, line := range slices.Sorted(maps.Keys(c.room.parked[name])) {
		for woken := 0; woken < units && len(c.room.parked[name][line]) > 0; {
			if c.MovesLeft == 0 {
				c.movesOut("g" + name)
				return
			}
			c.MovesLeft--
			member, tag, _ := c.room.popWaiter(name, line)
			index, queue := splitLine(line)
			cl := c.room.queue(queue).classes[index]
			if !strings.HasPrefix(name, "d:") {
				c.wakeTenant(cl, member, tag)
				woken++
			} else if c.wakeLane(cl, member) {
				woken++
			}
		}
	}
}

// wakeLane reports whether the lane may use the unit: not while its tenant stands behind a gate of its own.
func (c *Call) wakeLane(cl *class, member string) bool {
	name, laneName, _ := strings.Cut(member, ":")
	t := cl.tenants[name]
	t.lanes[laneName].blocked = false
	if t.mode == laneParked {
		c.enter(cl, t)
	}
	return t.mode == runnable
}

// wakeTenant moves a tenant from the gate that opened to the other one if that is closed.
func (c *Call) wakeTenant(cl *class, name string, tag VirtualTime) {
	t := cl.tenants[name]
	for _, gate := range []string{"t:" + name, "u:" + name + ":" + cl.queue.name} {
		if c.room.closed(gate) {
			c.room.park(gate, cl.line(), name, tag)
			return
		}
	}
	if t.head() == nil {
		t.mode = laneParked
		return
	}
	c.enter(cl, t)
}
