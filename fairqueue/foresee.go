package fairqueue

import (
	"math"
	"slices"
)

// FreeSlots returns how many slots of the pools that serve a queue nobody has.
func (r *Room) FreeSlots(queue string) (free int) {
	for _, p := range r.Pools {
		if slices.Contains(p.Queues, queue) {
			free += max(0, p.Slots-len(p.Ready))
		}
	}
	return free
}

// OverShare reports whether a tenant has jobs in a class of a queue, or has had more service there than those that have: its kept tag is above V.
func (r *Room) OverShare(tenant, queue string, class int) bool {
	c := r.queue(queue).classes[class]
	return c.tenants[tenant] != nil || c.idle[tenant] > c.v
}

// Foresee guesses how many microseconds a job would wait that is not in, by its Score, below zero for unknown: as Guess does once it is, but
// by its own place in its lane, and as if its tenant had no other lane, so that it is told too little rather than too much. It is unknown
// where no job waits for room, too: then nobody measures the pace.
func (r *Room) Foresee(j *Job) int64 {
	q := r.queue(j.Queue)
	if q.pace.mean == 0 || q.pace.stamp == 0 {
		return -1
	}
	if r.gatesAny() && slices.ContainsFunc(append(tenantGates(j.Tenant, j.Queue), laneGates(j.Downstream)...), r.closed) {
		return -1
	}
	c := q.classes[j.Class]
	var before, rank int
	runnable := c.runnable.Len()
	switch t := c.tenants[j.Tenant]; {
	case t == nil:
		if pause := r.Gates["q:"+j.Queue]; pause != nil && pause.Limit <= 0 {
			return -1
		}
		rank = c.runnable.Rank(&tenant{tag: max(c.v, c.idle[j.Tenant]), entry: math.MaxUint64})
		runnable++
	case r.heldBack(q, j):
		return -1
	default:
		rank = c.runnable.Rank(t)
		if l := t.lanes[j.LaneName()]; l != nil {
			before = l.jobs.Rank(&Job{Score: j.Score, Seq: math.MaxUint64})
		}
	}
	return r.waitAtPace(q, q.pace.mean, j.Class, min(c.waiting, rank+r.rounds(q, j, runnable, before))+1)
}

// rounds returns how many dispatches of a class go to it while one of its tenants has so many. A tenant of more weight than others has
// several a round; what one of less has is up to the others, of which nobody knows.
func (r *Room) rounds(q *queue, j *Job, runnable, before int) int {
	if before == 0 {
		return 0
	}
	class := q.names[j.Class]
	share := min(1, float64(r.Weight(class, ""))/float64(r.Weight(class, j.Tenant)))
	return int(math.Floor(float64(before) * (1 + float64(runnable-1)*share)))
}
