package fairqueue

import (
	"maps"
	"slices"
	"strings"
)

// Dispatch is one job that went from a lane into a pool's ready stream.
type Dispatch struct {
	Pool string
	Job  *Job
}

// Call is one script call: any number of changes, then Fill. It counts moves and notes what became possible.
type Call struct {
	room *Room
	now  int64
	// MovesLeft is what remains of Moves.
	MovesLeft int
	// More means that work was left for a timer.
	More bool
	// Expired are the jobs whose deadline had passed when they came to the head.
	Expired     []*Job
	refill      map[string]bool // queues in which something became runnable
	refillPools map[string]bool // pools with new room
	passOn      map[string]bool // gates whose unit may go to another waiter
	// freed are gates with a unit more, and the line from which on their waiters are to wake, empty for all.
	freed     map[string]string
	unheld    map[string]int  // entries that left, by POOL:DOWNSTREAM
	spare     map[string]int  // room of pools with nothing to run
	shelfMore map[string]int  // dispatches beyond the share, by downstream
	idle      map[string]bool // pools in which lanes came back from the shelf because of that
}

// Begin starts a call at a time in microseconds.
func (r *Room) Begin(now int64) *Call {
	return &Call{
		room: r, now: now, MovesLeft: Moves, refill: map[string]bool{}, refillPools: map[string]bool{},
		passOn: map[string]bool{}, freed: map[string]string{}, unheld: map[string]int{}, spare: map[string]int{}, idle: map[string]bool{},
		shelfMore: map[string]int{},
	}
}

// Place adds a job to its lane. It returns the number of jobs in the lane.
func (c *Call) Place(j *Job) int {
	q := c.room.queue(j.Queue)
	q.used = true
	cl := q.classes[j.Class]
	t := cl.tenants[j.Tenant]
	fresh := t == nil
	if fresh {
		t = &tenant{name: j.Tenant, lanes: map[string]*lane{}}
		cl.tenants[j.Tenant] = t
	}
	l := t.lanes[j.LaneName()]
	if l == nil {
		l = &lane{name: j.LaneName()}
		t.lanes[l.name] = l
	}
	if first := l.add(j); first && l.dated() {
		c.room.Timers[deadlineTimer(cl, t, l)] = j.Score + 1
	}
	if fresh || t.mode == laneParked && !l.blocked {
		c.enter(cl, t)
	}
	return len(l.jobs)
}

// Return puts a job back where it stood, or reports false when its deadline has passed.
func (c *Call) Return(j *Job) bool {
	if j.Dated && j.Score < c.now {
		return false
	}
	c.Place(j)
	return true
}

// Remove takes a waiting job out of its lane, and reports whether it was there.
func (c *Call) Remove(j *Job) bool {
	cl := c.room.queue(j.Queue).classes[j.Class]
	t := cl.tenants[j.Tenant]
	if t == nil || t.lanes[j.LaneName()] == nil {
		return false
	}
	l := t.lanes[j.LaneName()]
	at := slices.Index(l.jobs, j)
	if at < 0 {
		return false
	}
	l.jobs = slices.Delete(l.jobs, at, at+1)
	c.shrunk(cl, t, l)
	return true
}

// Freed notes a gate that has a unit more, or none to give any longer.
func (c *Call) Freed(gate string) { c.freed[gate] = "" }

// Continue goes on to wake the waiters of a gate where moves ran out, as its timer k says.
func (c *Call) Continue(gate string) {
	line := c.room.wakes[gate]
	delete(c.room.wakes, gate)
	if _, ok := c.freed[gate]; !ok {
		c.freed[gate] = line
	}
}

// Refill notes a pool that has room.
func (c *Call) Refill(pool string) { c.refillPools[pool] = true }

// RefillQueue notes a queue in which something may run now.
func (c *Call) RefillQueue(queue string) { c.refill[queue] = true }

// Release gives the units of an entry back that leaves a pool's ready stream.
func (c *Call) Release(p *Pool, e *Entry) {
	if e.Job.Downstream != "" {
		c.unheld[p.ID+":"+e.Job.Downstream]++
	}
	for _, name := range gateNames(e.Job.Queue, e.Job.Tenant, e.Job.Downstream) {
		g := c.room.Gates[name]
		if g == nil || g.Rate != nil || g.Period != 0 && g.Period != e.Period {
			continue
		}
		g.Held = max(0, g.Held-1)
		c.Freed(name)
		if g.Default && g.Held == 0 {
			delete(c.room.Gates, name)
		}
	}
}

// WakeFreed wakes the waiters of every gate that was freed.
func (c *Call) WakeFreed() {
	for _, name := range slices.Sorted(maps.Keys(c.freed)) {
		c.wakeSome(name, everyone, nil, c.freed[name])
	}
	clear(c.freed)
	c.passOnShelves()
}

// ExpireLane ends the jobs of a lane whose deadlines have passed, as far as moves go, and arms its timer anew.
func (c *Call) ExpireLane(timer string) (expired []*Job) {
	class, rest, _ := strings.Cut(timer[1:], ":")
	queueName, rest, _ := strings.Cut(rest, ":")
	tenantName, downstream, _ := strings.Cut(rest, ":")
	index, _ := splitLine(class + ":")
	cl := c.room.queue(queueName).classes[index]
	t := cl.tenants[tenantName]
	if t == nil || t.lanes["d"+downstream] == nil {
		return nil
	}
	l := t.lanes["d"+downstream]
	for len(l.jobs) > 0 && l.jobs[0].Score < c.now && c.MovesLeft > 0 {
		expired = append(expired, l.jobs[0])
		l.jobs = l.jobs[1:]
		c.MovesLeft--
	}
	if len(expired) > 0 {
		c.shrunk(cl, t, l)
	}
	if len(l.jobs) > 0 {
		c.room.Timers[timer] = l.jobs[0].Score + 1
	}
	return expired
}

func deadlineTimer(cl *class, t *tenant, l *lane) string {
	return "d" + cl.line() + ":" + t.name + ":" + l.name[1:]
}

func (c *Call) enter(cl *class, t *tenant) {
	t.tag = cl.v
	if kept, ok := cl.idle[t.name]; ok {
		t.tag = max(t.tag, kept)
		delete(cl.idle, t.name)
	}
	t.mode, t.entry = runnable, c.room.NextSeq()
	c.refill[cl.queue.name] = true
}

func (c *Call) movesOut(timer string) {
	c.room.Timers[timer] = c.now + ContinueAfter
	c.More = true
}

// vanished lets the units that a lane might have used go to other waiters.
func (c *Call) vanished(l *lane) {
	for _, name := range l.gates() {
		if c.room.units(name) != everyone {
			c.passOn[name] = true
		}
	}
}

// shrunk settles a lane from which jobs were taken other than by dispatch.
func (c *Call) shrunk(cl *class, t *tenant, l *lane) {
	if len(l.jobs) > 0 {
		return
	}
	if l.blocked {
		for _, name := range append(l.gates(), shelfOf(l.name[1:])) {
			c.room.forget(name, cl.line(), t.name+":"+l.name)
		}
	} else if t.mode == runnable {
		c.vanished(l)
	}
	c.settle(cl, t, l)
}

// settle removes an empty lane, and takes the tenant out of the runnable set if no open lane is left.
func (c *Call) settle(cl *class, t *tenant, l *lane) {
	if len(l.jobs) == 0 {
		delete(t.lanes, l.name)
		if l.dated() {
			delete(c.room.Timers, deadlineTimer(cl, t, l))
		}
	}
	was := t.mode
	if t.head() != nil {
		return
	}
	if was == runnable {
		cl.exit(t, laneParked)
	}
	if len(t.lanes) == 0 {
		if was == tenantParked {
			for _, name := range tenantGates(t.name, cl.queue.name) {
				c.room.forget(name, cl.line(), t.name)
			}
		}
		delete(cl.tenants, t.name)
	}
}
