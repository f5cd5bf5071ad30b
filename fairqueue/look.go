package fairqueue

import (
	"cmp"
	"maps"
	"slices"
)

// Standing is how a job stands that waits in a lane.
type Standing struct {
	// Position is its place in the lane, from 1.
	Position int
	// Mode is 'a' for a runnable tenant, 'b' where all of its lanes are behind gates, 't' where it is behind a gate of its own.
	Mode byte
	// Blocked says that the lane is behind a gate of its downstream.
	Blocked bool
}

// Standing tells how a job stands; ok is false where it is in no lane.
func (r *Room) Standing(j *Job) (s Standing, ok bool) {
	t := r.tenantOf(j.Queue, j.Class, j.Tenant)
	if t == nil {
		return Standing{}, false
	}
	l := t.lanes[j.LaneName()]
	if l == nil {
		return Standing{}, false
	}
	return Standing{Position: l.jobs.Rank(j) + 1, Mode: byte(t.mode), Blocked: l.blocked}, l.jobs.Has(j)
}

func (r *Room) tenantOf(queue string, class int, tenant string) *tenant {
	q := r.queues[queue]
	if q == nil || class >= len(q.classes) {
		return nil
	}
	return q.classes[class].tenants[tenant]
}

// Shut names the closed gates on a job's way, in the order in which they are asked.
func (r *Room) Shut(j *Job) (shut []string) {
	if !r.gatesAny() {
		return nil
	}
	for _, name := range gateNames(j.Queue, j.Tenant, j.Downstream) {
		if r.closed(name) {
			shut = append(shut, name)
		}
	}
	return shut
}

// QueueView is how a queue stands.
type QueueView struct {
	Name string
	// Turn is the class whose turn it is, of which Left dispatches are left.
	Turn, Left int
	// Pace is the microseconds from one dispatch to the next while jobs wait, 0 for unknown. Last is the time of the last dispatch then,
	// 0 where no job waits for room.
	Pace float64
	Last int64
	// Waiting counts the jobs in lanes by class.
	Waiting []int
}

// QueueNames names the queues that a job has made, sorted.
func (r *Room) QueueNames() (names []string) {
	for name, q := range r.queues {
		if q.used {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// QueueView tells how a queue stands; ok is false where no job has made it.
func (r *Room) QueueView(name string) (v QueueView, ok bool) {
	q := r.queues[name]
	if q == nil || !q.used {
		return QueueView{Name: name}, false
	}
	v = QueueView{Name: name, Turn: q.pattern.current, Left: q.pattern.left, Pace: q.pace.mean, Last: q.pace.stamp}
	for _, c := range q.classes {
		v.Waiting = append(v.Waiting, c.waiting)
	}
	return v, true
}

// Runnable is a tenant that nothing stands against, with its start tag and the job that is next of it.
type Runnable struct {
	Tenant string
	Tag    VirtualTime
	Next   *Job
}

// Line returns the first n runnable tenants of a class in order, how many there are, and how many tenants have jobs in it.
func (r *Room) Line(queue string, class, n int) (next []Runnable, runnables, tenants int) {
	q := r.queues[queue]
	if q == nil || class >= len(q.classes) {
		return nil, 0, 0
	}
	line := q.classes[class].runnable
	for _, t := range line.Head(n) {
		one := Runnable{Tenant: t.name, Tag: t.tag}
		if l := t.head(); l != nil {
			one.Next = l.head()
		}
		next = append(next, one)
	}
	return next, line.Len(), len(q.classes[class].tenants)
}

// Tenants names the tenants that have jobs in a class, sorted.
func (r *Room) Tenants(queue string, class int) []string {
	q := r.queues[queue]
	if q == nil || class >= len(q.classes) {
		return nil
	}
	return slices.Sorted(maps.Keys(q.classes[class].tenants))
}

// Lanes names the lanes of a tenant in a class, sorted.
func (r *Room) Lanes(queue string, class int, tenant string) []string {
	t := r.tenantOf(queue, class, tenant)
	if t == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(t.lanes))
}

// WaitingOf counts the jobs of a tenant in a class.
func (r *Room) WaitingOf(queue string, class int, tenant string) (n int) {
	if t := r.tenantOf(queue, class, tenant); t != nil {
		for _, l := range t.lanes {
			n += l.jobs.Len()
		}
	}
	return n
}

// LaneAfter returns up to n jobs of a lane that follow a score and a number of arrival, in order.
func (r *Room) LaneAfter(queue string, class int, tenant, laneName string, score int64, seq uint64, n int) []*Job {
	t := r.tenantOf(queue, class, tenant)
	if t == nil || t.lanes[laneName] == nil {
		return nil
	}
	var jobs []*Job
	for j := range t.lanes[laneName].jobs.From(&Job{Score: score, Seq: seq + 1}) {
		if len(jobs) == n {
			break
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// WidestTenant returns how many lanes the tenant has that has the most in a class of a queue, its only open one not counted.
func (r *Room) WidestTenant() (most int) {
	for _, q := range r.queues {
		for _, c := range q.classes {
			for _, t := range c.tenants {
				n := len(t.lanes)
				if n > most && t.only() != nil {
					n--
				}
				most = max(most, n)
			}
		}
	}
	return most
}

// Made is the pools in the order in which they were made.
func (r *Room) Made() []*Pool {
	return slices.SortedFunc(maps.Values(r.Pools), func(a, b *Pool) int { return cmp.Compare(a.number, b.number) })
}

// Weights are those of the pool's queues.
func (p *Pool) Weights() []int { return p.pattern.weights }
