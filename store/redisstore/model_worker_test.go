package redisstore

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

func (m *model) register(now int64, worker string, pool store.Pool, slots int, lease int64) []fairqueue.Dispatch {
	c := m.begin(now)
	id := pool.ID()
	p := m.room.Pools[id]
	if p == nil {
		var queues []string
		var weights []int
		for _, q := range pool.Queues {
			queues, weights = append(queues, q.Queue), append(weights, q.Weight)
		}
		p = m.room.AddPool(id, pool.Strict, queues, weights)
		m.timers["c"+id] = now + lease
	}
	had := m.workers[worker].slots
	p.Slots += slots - had
	m.workers[worker] = modelWorker{id, slots, lease}
	m.timers["w"+worker] = now + lease
	c.Refill(id)
	if slots < had {
		m.surplusReturn(c, p, now)
		c.WakeFreed()
	}
	return m.fill(c, now)
}

func (m *model) heartbeat(now int64, worker string, lease int64) string {
	if _, ok := m.workers[worker]; !ok {
		return "lost"
	}
	m.begin(now)
	m.timers["w"+worker] = now + lease
	word := "extended"
	if m.promoterUntil < now {
		word = "promote"
	}
	cancelled := 0
	for _, p := range m.room.Pools {
		for _, e := range p.Ready {
			if e.Worker == worker && m.cancelled[e.Job.Key()] {
				cancelled++
			}
		}
	}
	return fmt.Sprintf("%s %d", word, cancelled)
}

func (m *model) reclaim(now int64, worker string) (string, []fairqueue.Dispatch) {
	c := m.begin(now)
	done := m.workerReclaim(c, worker, false, now)
	c.WakeFreed()
	out := m.fill(c, now)
	if done && !c.More {
		return "reclaimed", out
	}
	return "more", out
}

func (m *model) workerReclaim(c *fairqueue.Pass, worker string, lost bool, now int64) bool {
	w, ok := m.workers[worker]
	if !ok {
		return true
	}
	p := m.room.Pools[w.pool]
	if p != nil && !m.consumerReturn(c, p, worker, lost, now) {
		return false
	}
	delete(m.workers, worker)
	delete(m.timers, "w"+worker)
	if p == nil { // A worker without slots was left, and the last with some has closed it.
		return true
	}
	p.Slots -= w.slots
	m.surplusReturn(c, p, now)
	m.poolClose(p)
	return true
}

func (m *model) consumerReturn(c *fairqueue.Pass, p *fairqueue.Pool, worker string, lost bool, now int64) bool {
	if c.MovesLeft == 0 {
		return false
	}
	var back []*fairqueue.Entry
	for _, e := range p.Ready {
		if e.Worker == worker && len(back) < c.MovesLeft {
			back = append(back, e)
		}
	}
	done := len(back) < c.MovesLeft
	c.MovesLeft -= len(back)
	m.entriesReturn(c, p, back, lost, now)
	return done
}

func (m *model) entriesReturn(c *fairqueue.Pass, p *fairqueue.Pool, back []*fairqueue.Entry, lost bool, now int64) {
	if len(back) == 0 {
		return
	}
	p.Ready = slices.DeleteFunc(p.Ready, func(e *fairqueue.Entry) bool { return slices.Contains(back, e) })
	var suspects []*modelJob
	for _, e := range back {
		key := e.Job.Key()
		j := m.live[key]
		c.Release(p, e)
		cancelled, begun := m.cancelled[key], m.started[key] == e.Worker
		delete(m.cancelled, key)
		delete(m.started, key)
		switch {
		case cancelled:
			m.leave(key, "cancelled")
		case lost:
			j.begun = begun
			suspects = append(suspects, j)
		default:
			m.putBack(c, j, now)
		}
	}
	if lost {
		m.part(back[0].Worker, suspects)
		for _, j := range suspects {
			m.deliveryLost(j, now)
		}
	}
	c.Refill(p.ID)
}

// part bisects the suspects that a worker had begun together, counts what it had begun alone, and makes one group of the others.
func (m *model) part(worker string, jobs []*modelJob) {
	var fresh, together []*modelJob
	for _, j := range jobs {
		switch {
		case !j.suspect:
			j.suspect = true
			fresh = append(fresh, j)
		case j.begun && j.group != "":
			together = append(together, j)
		case j.begun:
			j.lost++
		}
	}
	name := func(of []*modelJob, group string) {
		for _, j := range of {
			j.group = group
			if len(of) == 1 {
				j.group = ""
			}
		}
	}
	half := (len(together) + 1) / 2
	name(together[:half], worker+"/0")
	name(together[half:], worker+"/1")
	name(fresh, worker)
}

// dumpSuspects lists the groups of suspects, and which of them workers have begun.
func (m *model) dumpSuspects(add func(format string, args ...any)) {
	for key, j := range m.live {
		if j.group != "" {
			add("suspect %s of %s", key, j.group)
		}
	}
	begun, group := map[string]int{}, map[string]string{}
	for key, worker := range m.started {
		add("started %s by %s", key, worker)
		begun[worker]++
		group[worker] = m.live[key].group
	}
	for worker, n := range begun {
		add("begun by %s %d|%s", worker, n, group[worker])
	}
}

// beside reports whether a worker runs a suspect that another job is not to run beside.
func (m *model) beside(worker string, j *modelJob) bool {
	for key, by := range m.started {
		if by == worker && key != j.Key() && (j.group == "" || m.live[key].group != j.group) {
			return true
		}
	}
	return false
}

// deliveryLost puts back a delivery that ended with its worker's lease.
func (m *model) deliveryLost(j *modelJob, now int64) {
	if j.lost >= cmp.Or(m.queues[j.Queue].PoisonLimit, store.DefaultPoisonLimit) {
		m.bury(j.Key(), "poison", now)
		return
	}
	const base = 500_000
	at := now + int64(float64(base+j.Seq*104729%base)/2*math.Pow(2, float64(min(j.lost, 6))))
	if j.Dated && at > j.Score {
		m.expire(&j.Job, now)
	} else {
		m.later[j.Key()] = at
	}
}

// cancel ends a job and returns the script's word.
func (m *model) cancel(now int64, key string) (string, []fairqueue.Dispatch) {
	j := m.live[key]
	if j == nil {
		if m.ended[0][key] || m.ended[1][key] {
			return "ended", nil
		}
		return "unknown", nil
	}
	if _, dead := m.dead[key]; dead {
		return "dead", nil
	}
	c := m.begin(now)
	if _, later := m.later[key]; later {
		delete(m.later, key)
	} else if !c.Remove(&j.Job) && !m.unspill(j) {
		for _, p := range m.room.Pools {
			at := slices.IndexFunc(p.Ready, func(e *fairqueue.Entry) bool { return e.Job == &j.Job })
			if at < 0 {
				continue
			}
			if p.Ready[at].Worker != "" {
				m.cancelled[key] = true
				return "cancelling", nil
			}
			c.Release(p, p.Ready[at])
			p.Ready = slices.Delete(p.Ready, at, at+1)
			delete(m.started, key)
			c.Refill(p.ID)
		}
	}
	m.leave(key, "cancelled")
	c.WakeFreed()
	return "cancelled", m.fill(c, now)
}

// lettersPurge ends what a queue has kept for long enough.
func (m *model) lettersPurge(c *fairqueue.Pass, queue string, now int64) {
	keep := m.queues[queue].KeepDead.Microseconds()
	if keep == 0 {
		return
	}
	for _, key := range m.lettersOf(queue) {
		if m.dead[key] <= now-keep && c.MovesLeft > 0 {
			c.MovesLeft--
			m.endLetter(key, "purged")
		}
	}
	if left := m.lettersOf(queue); len(left) > 0 {
		m.timers["r"+queue] = m.dead[left[0]] + keep
	}
}

func (m *model) surplusReturn(c *fairqueue.Pass, p *fairqueue.Pool, now int64) {
	surplus := len(p.Ready) - p.Slots
	if surplus <= 0 {
		return
	}
	var back []*fairqueue.Entry
	for _, e := range slices.Backward(p.Ready) {
		if e.Worker == "" && len(back) < min(surplus, c.MovesLeft) {
			back = append(back, e)
		}
	}
	c.MovesLeft -= len(back)
	m.entriesReturn(c, p, back, false, now)
	if len(back) > 0 && surplus > len(back) && c.MovesLeft == 0 {
		m.room.Timers["f"+p.ID] = now + fairqueue.ContinueAfter
		c.More = true
	}
}

func (m *model) poolClose(p *fairqueue.Pool) {
	if p.Slots > 0 || len(p.Ready) > 0 {
		return
	}
	delete(m.room.Pools, p.ID)
	delete(m.timers, "c"+p.ID)
}

func (m *model) setGate(now int64, g store.Gate) []fairqueue.Dispatch {
	c := m.begin(now)
	name := string(g.Name)
	delete(m.room.Timers, "g"+name)
	if g.Limit < 0 {
		m.removeGate(name)
	} else {
		gate := m.room.Gates[name]
		if gate == nil {
			gate = &fairqueue.Gate{Held: m.heldUnder(name)}
			m.room.Gates[name] = gate
		}
		gate.Limit, gate.Default = g.Limit, false
	}
	m.gateTimes(name, g, now)
	c.Freed(name)
	c.WakeFreed()
	return m.fill(c, now)
}

type gateEnd struct {
	at   int64
	then int
}

func (m *model) gateTimes(name string, g store.Gate, now int64) {
	delete(m.gateEnds, name)
	if g.For > 0 && g.Limit >= 0 {
		at := now + g.For.Microseconds()
		m.gateEnds[name] = gateEnd{at, g.Then}
		m.room.Timers["g"+name] = at
	}
}

func (m *model) gateDue(c *fairqueue.Pass, name string, now int64) {
	end, ok := m.gateEnds[name]
	switch {
	case ok && end.at > now:
		m.room.Timers["g"+name] = end.at
	case ok && end.then < 0:
		m.removeGate(name)
	case ok:
		m.room.Gates[name].Limit = end.then
	}
	if ok && end.at <= now {
		delete(m.gateEnds, name)
	}
	c.Freed(name)
}

// holds reports whether a worker has a job in its hands.
func (m *model) holds(worker, key string) bool {
	for _, p := range m.room.Pools {
		for _, e := range p.Ready {
			if e.Worker == worker && e.Job.Key() == key {
				return true
			}
		}
	}
	return false
}
