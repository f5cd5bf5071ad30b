package fairqueue

import (
	"math"
	"strconv"
)

// A pace is an exponential average over paceSpan dispatches of the time between two. A time counts as paceStep times the average at
// most, or one pause would stand for many dispatches. delivery is the microseconds of the way from a stream to a handler.
const (
	paceSpan = 32
	paceStep = 3
	delivery = 500
)

// pace is how fast a queue is served. Only what is dispatched while jobs wait for room counts: an idle queue says nothing of how fast
// it could be, nor does one whose jobs all stand behind gates.
type pace struct {
	// mean is the microseconds from one dispatch to the next, 0 before any was measured; exact is it before it was rounded to the six
	// digits that are kept, for the call that measured it.
	mean, exact float64
	// stamp is when the last dispatch was, 0 while no job waits for room.
	stamp int64
	// What the call under way did: whether the queue changed, whether jobs wait for room, and how many were dispatched.
	touched, busy bool
	dispatched    int
}

// touch notes a queue that the call under way changes.
func (r *Room) touch(q *queue) {
	if !q.pace.touched {
		q.pace.touched = true
		r.touched = append(r.touched, q)
	}
}

// noteBusy notes, of a pool's queues that the call changed, in which jobs wait for room.
func (c *Pass) noteBusy(p *Pool) {
	_, room := c.spare[p.ID]
	for _, name := range p.Queues {
		if q := c.room.queues[name]; q != nil && q.pace.touched {
			q.pace.busy = !room && q.runs()
		}
	}
}

// runs reports whether a queue has a runnable tenant.
func (q *queue) runs() bool {
	for _, cl := range q.classes {
		if cl.least() != nil {
			return true
		}
	}
	return false
}

// only returns the only open lane of a tenant, nil for none or several.
func (t *tenant) only() *lane {
	if t.open.Len() != 1 {
		return nil
	}
	return t.head()
}

func (r *Room) gatesAny() bool { return len(r.Gates)+len(r.Defaults) > 0 || r.Recorded != nil }

// Tally ends a call: it folds what queues did in it into their paces.
func (c *Pass) Tally() {
	for _, q := range c.room.touched {
		c.room.use(q)
		q.pace.tally(c.now)
		for _, cl := range q.classes {
			if cl.waiting == 0 {
				cl.v = 0 // No tag is left that it could be compared with, and a float64 has no room for one that only grows.
			}
		}
	}
	c.room.touched = c.room.touched[:0]
}

func (p *pace) tally(now int64) {
	if p.dispatched > 0 && p.stamp > 0 && now > p.stamp {
		each, old := float64(now-p.stamp)/float64(p.dispatched), 0.0
		if p.mean > 0 {
			old = math.Exp(-float64(p.dispatched) / paceSpan)
			each = min(each, paceStep*p.mean)
		}
		p.exact = p.mean*old + each*(1-old)
		p.mean, _ = strconv.ParseFloat(strconv.FormatFloat(p.exact, 'g', 6, 64), 64)
	} else {
		p.exact = p.mean
	}
	switch {
	case !p.busy:
		p.stamp = 0
	case p.stamp == 0 || p.dispatched > 0 || now < p.stamp:
		p.stamp = now
	}
	p.touched, p.busy, p.dispatched = false, false, 0
}

// Guess guesses how many microseconds a job waits that is at a position in its lane, from 1: the dispatches up to and with its own, at
// the queue's pace, and the way to the handler. It is for the call that placed the job, once that is over. Below zero is unknown.
func (c *Pass) Guess(j *Job, position int) int64 {
	q := c.room.queue(j.Queue)
	return c.room.guess(q, q.pace.exact, j, position)
}

// Guess is that of a Call for a job of an earlier one.
func (r *Room) Guess(j *Job, position int) int64 {
	q := r.queue(j.Queue)
	return r.guess(q, q.pace.mean, j, position)
}

// guess is waitAtPace of what is ahead of a job in its class, where nothing holds it back.
func (r *Room) guess(q *queue, pace float64, j *Job, position int) int64 {
	if pace == 0 {
		return -1
	}
	if r.heldBack(q, j) {
		return -1
	}
	return r.waitAtPace(q, pace, j.Class, q.classes[j.Class].ahead(j.Tenant, position))
}

// waitAtPace returns how many microseconds it takes until a class has had so many dispatches, and the way to the handler. It walks the
// pattern from its phase on. Of what it gives another class meanwhile, newcomers take half at most, or the class must have it waiting.
func (r *Room) waitAtPace(q *queue, pace float64, own, dispatches int) int64 {
	weights, all := q.pattern.weights, float64(dispatches)
	left := 0.0
	if q.pattern.current == own {
		left = float64(q.pattern.left)
	}
	turns, passed := math.Ceil((all-left)/float64(weights[own])), false
	for k := range weights {
		i := (q.pattern.current + k) % len(weights)
		if i == own { // Who comes now has had a turn less.
			passed = k > 0
			continue
		}
		if turns <= 0 {
			continue
		}
		served := turns * float64(weights[i])
		if passed {
			served -= float64(weights[i])
		}
		if k == 0 {
			served += float64(q.pattern.left - weights[i])
		}
		if waits := float64(q.classes[i].waits(r.gatesAny())); waits > 0 {
			all += min(served, waits+served/2)
		}
	}
	return int64(math.Floor(all*pace)) + delivery
}

// heldBack reports whether nobody knows when a job goes: its queue is paused, or its tenant or its lane stands behind a gate or on a
// shelf.
func (r *Room) heldBack(q *queue, j *Job) bool {
	t := q.classes[j.Class].tenants[j.Tenant]
	if t == nil || t.mode != runnable {
		return true
	}
	if l := t.lanes[j.LaneName()]; l != nil && l.blocked {
		return true
	}
	pause := r.Gates["q:"+j.Queue]
	return pause != nil && pause.Limit <= 0
}

// ahead says how many jobs of a class are dispatched up to and with one of a tenant: of the tenants with a lower tag one each, itself,
// and a round of all tenants for each job of its own before it; at most what waits. A tenant that enters later goes behind the tags
// that are there. The lanes of a tenant that are open are taken to be as long as the job's.
func (c *class) ahead(tenant string, position int) int {
	runnable, rank := c.rank(tenant)
	open := 0
	if t := c.tenants[tenant]; t != nil {
		open = t.open.Len()
	}
	return min(c.waiting, rank+1+(position*max(1, open)-1)*runnable)
}

// waits returns how many jobs of another class wait, 0 when all stand behind gates.
func (c *class) waits(gates bool) int {
	if gates && c.least() == nil {
		return 0
	}
	return c.waiting
}

// rank returns how many tenants of a class are runnable, and how many of them go before one; all, where that is not runnable.
func (c *class) rank(tenant string) (runnables, rank int) {
	own := c.tenants[tenant]
	if own == nil || own.mode != runnable {
		return c.runnable.Len(), c.runnable.Len()
	}
	return c.runnable.Len(), c.runnable.Rank(own)
}
