package fairqueue

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/headgate/headgate/admission"
)

// Dispatch is one job that went from a lane into a pool's ready stream.
type Dispatch struct {
	Pool  string
	Job   *Job
	Entry *Entry
}

// Pass is one script call: any number of changes, then Fill. It counts moves and notes what became possible.
type Pass struct {
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
	unheld    map[string]int  // entries that left, by POOL:SERVICE
	spare     map[string]int  // room of pools with nothing to run
	shelfMore map[string]int  // dispatches beyond the share, by service
	idle      map[string]bool // pools in which lanes came back from the shelf because of that
}

// Begin starts a call at a time in microseconds. It ends the one before.
func (r *Room) Begin(now int64) *Pass {
	c := r.call
	if c == nil {
		c = &Pass{
			room: r, refill: map[string]bool{}, refillPools: map[string]bool{}, passOn: map[string]bool{}, freed: map[string]string{},
			unheld: map[string]int{}, spare: map[string]int{}, idle: map[string]bool{}, shelfMore: map[string]int{},
		}
		r.call = c
	}
	c.now, c.MovesLeft, c.More, c.Expired = now, Moves, false, nil
	clear(c.refill)
	clear(c.refillPools)
	clear(c.passOn)
	clear(c.freed)
	clear(c.unheld)
	clear(c.spare)
	clear(c.idle)
	clear(c.shelfMore)
	return c
}

// Place adds a job to its lane. It returns its position there, from 1.
func (c *Pass) Place(j *Job) int {
	q := c.room.queue(j.Queue)
	c.room.use(q)
	c.room.touch(q)
	cl := q.classes[j.Class]
	t := cl.tenants[j.Tenant]
	fresh := t == nil
	if fresh {
		t = newTenant(j.Tenant)
		cl.tenants[j.Tenant] = t
	}
	name := j.LaneName()
	l := t.lanes[name]
	if l == nil {
		l = newLane(name)
		t.lanes[name] = l
	}
	cl.count(j, 1, c.room)
	if l.add(j) {
		t.reorder(l)
		if l.dated() {
			c.room.arm(deadlineTimer(cl, t, l), j.Score+1)
		}
	}
	if fresh || t.mode == laneParked && !l.blocked {
		c.enter(cl, t)
	}
	cl.recount(t)
	return l.jobs.Rank(j) + 1
}

// count counts jobs that enter a lane, or leave it.
func (c *class) count(j *Job, n int, r *Room) {
	c.waiting += n
	service := j.Service()
	if service == "" {
		return
	}
	if r.waits[service] += n; r.waits[service] == 0 {
		delete(r.waits, service)
	}
}

// Return puts a job back where it stood, or reports false when its deadline has passed.
func (c *Pass) Return(j *Job) bool {
	if j.Dated && j.Score < c.now {
		return false
	}
	c.Place(j)
	return true
}

// Remove takes a waiting job out of its lane, and reports whether it was there.
func (c *Pass) Remove(j *Job) bool {
	classes := c.room.queue(j.Queue).classes
	if j.Class >= len(classes) {
		return false
	}
	cl := classes[j.Class]
	t := cl.tenants[j.Tenant]
	if t == nil || t.lanes[j.LaneName()] == nil {
		return false
	}
	l := t.lanes[j.LaneName()]
	if !l.jobs.Remove(j) {
		return false
	}
	cl.count(j, -1, c.room)
	c.shrunk(cl, t, l)
	return true
}

// Take takes up to most jobs out of one lane of a tenant in a class, the one that is next, blocked ones last. It returns none where the
// tenant has none there.
func (c *Pass) Take(queue string, class int, tenant string, most int) (taken []*Job) {
	cl := c.room.queue(queue).classes[class]
	t := cl.tenants[tenant]
	if t == nil || most <= 0 {
		return nil
	}
	l := t.head()
	if l == nil {
		for _, other := range t.lanes {
			if l == nil || cmp.Or(cmp.Compare(other.head().Score, l.head().Score), cmp.Compare(other.name, l.name)) < 0 {
				l = other
			}
		}
	}
	taken = l.jobs.Head(most)
	for _, j := range taken {
		l.jobs.Remove(j)
		cl.count(j, -1, c.room)
	}
	c.shrunk(cl, t, l)
	return taken
}

// Freed notes a gate that has a unit more, or none to give any longer.
func (c *Pass) Freed(gate string) { c.freed[gate] = "" }

// Continue goes on to wake the waiters of a gate where moves ran out, as its timer k says.
func (c *Pass) Continue(gate string) {
	line := c.room.wakes[gate]
	delete(c.room.wakes, gate)
	if _, ok := c.freed[gate]; !ok {
		c.freed[gate] = line
	}
}

// Refill notes a pool that has room.
func (c *Pass) Refill(pool string) { c.refillPools[pool] = true }

// RefillQueue notes a queue in which something may run now.
func (c *Pass) RefillQueue(queue string) { c.refill[queue] = true }

// Release gives the units of an entry back that leaves a pool's ready stream.
func (c *Pass) Release(p *Pool, e *Entry) {
	if service := e.Job.Service(); service != "" {
		c.unheld[p.ID+":"+service]++
		if p.held[service]--; p.held[service] <= 0 {
			delete(p.held, service)
		}
	}
	if !c.room.gatesAny() {
		return
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
	if g := c.room.reserveOf(e.Job.Queue, e.Job.Class); g != nil {
		g.Held = max(0, g.Held-1)
		c.Freed(ReserveGate(e.Job.Queue))
	}
}

// WakeFreed wakes the waiters of every gate that was freed.
func (c *Pass) WakeFreed() {
	if len(c.freed)+len(c.unheld) == 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.freed)) {
		c.wakeSome(name, everyone, nil, c.freed[name])
	}
	clear(c.freed)
	c.passOnShelves()
}

// ExpireLane ends the jobs of a lane whose deadlines have passed, as far as moves go, and arms its timer anew.
func (c *Pass) ExpireLane(timer string) (expired []*Job) {
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
	for l.jobs.Len() > 0 && l.head().Score < c.now && c.MovesLeft > 0 {
		j := l.head()
		expired = append(expired, j)
		l.jobs.Remove(j)
		cl.count(j, -1, c.room)
		c.MovesLeft--
	}
	if len(expired) > 0 {
		c.shrunk(cl, t, l)
	}
	if l.jobs.Len() > 0 {
		c.room.arm(timer, l.head().Score+1)
	}
	return expired
}

func deadlineTimer(cl *class, t *tenant, l *lane) string {
	return "d" + cl.line() + ":" + t.name + ":" + l.name[1:]
}

func (c *Pass) enter(cl *class, t *tenant) {
	t.tag = cl.v
	if kept, ok := cl.idle[t.name]; ok {
		t.tag = max(t.tag, kept)
		delete(cl.idle, t.name)
	}
	t.mode, t.entry = runnable, c.room.NextSeq()
	cl.runnable.Add(t)
	cl.recount(t)
	c.refill[cl.queue.name] = true
	c.room.touch(cl.queue)
}

// Rendered corrects the tag of the tenant of a job that has left and has cost something else than what it was dispatched for, 0 tokens or more: the package
// comment says how.
func (c *Pass) Rendered(j *Job, actual admission.Tokens) {
	q := c.room.queue(j.Queue)
	if j.Class >= len(q.classes) || q.classes[j.Class].runnable.Len() == 0 {
		return
	}
	cl := q.classes[j.Class]
	weight := float64(c.room.Weight(q.names[j.Class], j.Tenant))
	more := VirtualTime(float64(actual-j.Cost) / weight)
	if t := cl.tenants[j.Tenant]; t != nil && t.mode == runnable {
		tag := t.tag + more
		if more < 0 {
			tag = min(t.tag, max(tag, cl.v-VirtualTime(float64(j.Cost)/weight)))
		}
		cl.runnable.Remove(t)
		t.tag = tag
		cl.runnable.Add(t)
		return
	}
	if tag := max(cl.v, cl.idle[j.Tenant]) + more; tag > cl.v {
		cl.idle[j.Tenant] = tag
		cl.sweepIdle()
	} else {
		delete(cl.idle, j.Tenant)
	}
}

func (c *Pass) movesOut(timer string) {
	c.room.arm(timer, c.now+ContinueAfter)
	c.More = true
}

// vanished lets the units that a lane might have used go to other waiters.
func (c *Pass) vanished(l *lane) {
	if !c.room.gatesAny() {
		return
	}
	for _, name := range l.gates() {
		if c.room.units(name) != everyone {
			c.passOn[name] = true
		}
	}
}

// shrunk settles a lane from which jobs were taken other than by dispatch.
func (c *Pass) shrunk(cl *class, t *tenant, l *lane) {
	c.room.touch(cl.queue)
	if l.jobs.Len() > 0 {
		t.reorder(l)
		cl.recount(t)
		return
	}
	if l.blocked {
		for _, name := range append(l.gates(), shelfOf(ServiceOf(l.name[1:]))) {
			c.room.forget(name, cl.line(), t.name+":"+l.name)
		}
	} else if t.mode == runnable {
		c.vanished(l)
	}
	c.settle(cl, t, l)
}

// settle removes an empty lane, and takes the tenant out of the runnable set if no open lane is left.
func (c *Pass) settle(cl *class, t *tenant, l *lane) {
	t.reorder(l)
	if l.jobs.Len() == 0 {
		delete(t.lanes, l.name)
		if l.dated() {
			c.room.disarm(deadlineTimer(cl, t, l))
		}
	}
	cl.recount(t)
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
