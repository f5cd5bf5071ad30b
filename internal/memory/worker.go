package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// Register makes a worker known, as store.Partition.Register.
func (p *Partition) Register(_ context.Context, worker string, pool store.Pool, slots int, lease time.Duration) (more bool, err error) {
	p.write(func(m *model, now int64) {
		m.register(now, worker, pool, slots, lease.Microseconds())
		more = m.more
	})
	return more, nil
}

func (m *model) register(now int64, worker string, pool store.Pool, slots int, lease int64) {
	c := m.begin(now)
	id := pool.ID()
	p := m.room.Pools[id]
	if p == nil {
		var queues []string
		var weights []int
		for _, q := range pool.Queues {
			queues, weights = append(queues, q.Queue), append(weights, cmp.Or(q.Weight, 1))
		}
		p = m.room.AddPool(id, pool.Strict, queues, weights)
		m.arm("c"+id, now+lease)
	}
	was, known := m.workers[worker]
	if known && was.lease == 0 {
		lease = 0
	}
	had := was.slots
	p.Slots += slots - had
	m.workers[worker] = modelWorker{id, slots, lease}
	m.arm("w"+worker, now+lease)
	c.Refill(id)
	for _, queue := range p.Queues { // Others of it have more slots elsewhere, too.
		if m.room.Gates[fairqueue.ReserveGate(queue)] != nil {
			c.RefillQueue(queue)
		}
	}
	if slots < had {
		m.surplusReturn(c, p, now)
		c.WakeFreed()
	}
	m.fill(c, now)
}

// Heartbeat extends a worker's lease, as store.Partition.Heartbeat.
func (p *Partition) Heartbeat(_ context.Context, worker string, lease time.Duration, load string) (beat store.Beat, err error) {
	p.write(func(m *model, now int64) {
		w, ok := m.workers[worker]
		if !ok || w.lease == 0 {
			err = admission.ErrLeaseLost
			return
		}
		m.advance(now)
		if _, armed := m.timers.Find("w" + worker); armed {
			m.timers.Put("w"+worker, now+lease.Microseconds())
		}
		beat.Promote, beat.Load = m.promoterUntil < now, m.load
		if m.load > 0 && load != "" {
			m.noteLoad(worker, now, load)
		}
		if m.cancelling == 0 {
			return
		}
		for _, j := range m.holding[holder{w.pool, worker}] {
			if j.cancelled {
				beat.Cancelled = append(beat.Cancelled, store.Cancellation{Token: j.token, Reason: j.because})
			}
		}
	})
	return beat, err
}

// Reclaim takes back what a worker holds, as store.Partition.Reclaim.
func (p *Partition) Reclaim(_ context.Context, worker string) (more bool, err error) {
	p.write(func(m *model, now int64) {
		c := m.begin(now)
		done := m.workerReclaim(c, worker, false, now)
		c.WakeFreed()
		m.fill(c, now)
		more = !done || m.more
	})
	return more, nil
}

// workerReclaim takes back what a worker holds; its slots go with the last entry. It reports whether that is done.
func (m *model) workerReclaim(c *fairqueue.Pass, worker string, lost bool, now int64) bool {
	w, ok := m.workers[worker]
	if !ok {
		return true
	}
	p := m.room.Pools[w.pool]
	if p != nil && !m.takeBack(c, holder{p.ID, worker}, lost, now) {
		if lost {
			w.lease = 0
			m.workers[worker] = w
		}
		return false
	}
	delete(m.workers, worker)
	m.timers.Remove("w" + worker)
	if p == nil { // A worker without slots was left, and the last with some has closed it.
		return true
	}
	p.Slots = max(0, p.Slots-w.slots)
	m.surplusReturn(c, p, now)
	m.poolClose(p)
	return true
}

// takeBack takes entries of a worker, as many as there are moves, and reports whether none are left. They are lost unless the worker
// itself hands them back.
func (m *model) takeBack(c *fairqueue.Pass, h holder, lost bool, now int64) bool {
	if c.MovesLeft == 0 {
		return false
	}
	held := m.holding[h]
	back := slices.Clone(held[:min(len(held), c.MovesLeft)])
	done := len(back) < c.MovesLeft
	c.MovesLeft -= len(back)
	m.goBack(c, h.worker, back, lost, now)
	return done
}

// goBack takes jobs out of their stream and puts them back, or ends them.
func (m *model) goBack(c *fairqueue.Pass, worker string, back []*modelJob, lost bool, now int64) {
	var suspects []*modelJob
	for _, j := range back {
		j.begun = lost && j.suspect && j.startedBy == worker
		m.release(c, j)
		switch {
		case m.uncancel(j):
			m.leave(j, "cancelled")
		case lost:
			suspects = append(suspects, j)
		default:
			m.putBack(c, j, now)
		}
	}
	part(worker, suspects)
	for _, j := range suspects {
		m.deliveryLost(j, worker, now)
	}
}

// part bisects the suspects that a worker had begun together, counts what it had begun alone, and makes one group of those that were no
// suspects: a job that kills its workers is alone after as many deaths as its neighbours can be halved.
func part(worker string, jobs []*modelJob) {
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
		j.begun = false
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

// deliveryLost puts back a delivery that ended with its worker's lease.
func (m *model) deliveryLost(j *modelJob, worker string, now int64) {
	j.noted("lost", 0, worker, "", now)
	if j.lost >= m.settingsOf(j.Queue).PoisonLimit {
		m.bury(j, "poison", fmt.Sprintf("%d workers were lost that ran it", j.lost), now)
		return
	}
	const base = 500_000
	at := now + int64(float64(base+j.Seq*104729%base)/2*math.Pow(2, float64(min(j.lost, 6))))
	if j.Dated && at > j.Score {
		m.expire(j, now)
	} else {
		m.putOff(j, at)
	}
}

// surplusReturn puts back what nobody has read and no slot is left for, the youngest first.
func (m *model) surplusReturn(c *fairqueue.Pass, p *fairqueue.Pool, now int64) {
	surplus := len(p.Ready) - p.Slots
	if surplus <= 0 {
		return
	}
	unread := p.Ready[m.unread(p):]
	var back []*modelJob
	for _, e := range slices.Backward(unread) {
		if len(back) == min(surplus, c.MovesLeft) {
			break
		}
		back = append(back, jobOf(e.Job))
	}
	if len(back) == 0 {
		return
	}
	c.MovesLeft -= len(back)
	m.goBack(c, "", back, false, now)
	if surplus > len(back) && c.MovesLeft == 0 {
		m.arm("f"+p.ID, now+fairqueue.ContinueAfter)
		c.More = true
	}
}

// poolClose forgets a pool without slots and without entries.
func (m *model) poolClose(p *fairqueue.Pool) {
	if p.Slots > 0 || len(p.Ready) > 0 {
		return
	}
	delete(m.room.Pools, p.ID)
	m.timers.Remove("c" + p.ID)
	m.happened[readyTopic+p.ID] = true
}

// audit takes back what is held by those who are not registered.
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
	for _, worker := range sortedNames(orphans) {
		if !m.takeBack(c, holder{id, worker}, true, now) {
			m.arm("c"+id, now)
			return
		}
	}
	m.poolClose(p)
	if m.room.Pools[id] != nil {
		m.arm("c"+id, now+auditEvery)
	}
}

// errOtherPool is what Registration says of a worker that has registered with another pool since.
var errOtherPool = errors.New("it is of another pool")

// Registration returns that of a worker of a pool, as store.Partition.Registration.
func (p *Partition) Registration(_ context.Context, pool, worker string) (r store.Registration, err error) {
	p.read(func(m *model, _ int64) {
		w, known := m.workers[worker]
		of := m.room.Pools[pool]
		switch {
		case !known || of == nil:
			err = fmt.Errorf("worker %s: %w", worker, admission.ErrLeaseLost)
		case w.pool != pool:
			err = fmt.Errorf("read registration of worker %s: %w", worker, errOtherPool)
		case w.lease == 0:
			err = fmt.Errorf("worker %s: %w", worker, admission.ErrLeaseLost)
		default:
			r = store.Registration{Pool: poolOf(of), Slots: w.slots, Held: len(m.holding[holder{pool, worker}]), Room: of.Slots - len(of.Ready)}
		}
	})
	return r, err
}

// poolOf is a pool as it was registered.
func poolOf(p *fairqueue.Pool) store.Pool {
	of := store.Pool{Strict: p.Strict}
	for i, queue := range p.Queues {
		of.Queues = append(of.Queues, store.QueueWeight{Queue: queue, Weight: p.Weights()[i]})
	}
	return of
}

// noteLoad keeps what a worker told of itself, and forgets what is too old to count.
func (m *model) noteLoad(worker string, now int64, text string) {
	for name, l := range m.loads {
		if time.UnixMicro(now).Sub(l.At) > 2*store.WorkerLoadLife { // The clock may step back.
			delete(m.loads, name)
		}
	}
	m.loads[worker] = store.WorkerLoad{Worker: worker, At: time.UnixMicro(now), Text: text}
}

// loadPoint is how busy services were.
type loadPoint struct {
	at       time.Time
	services map[string]string
}

// NoteLoad keeps a point of the history of services, as store.Timers.NoteLoad.
func (p *Partition) NoteLoad(_ context.Context, to store.LoadNote) (err error) {
	if len(to.Services) == 0 {
		return nil
	}
	p.write(func(m *model, now int64) {
		switch {
		case m.promoter != to.Owner:
			err = store.ErrNotHolder
		case m.load == 0:
			err = store.ErrNotMeasured
		default:
			m.begin(now)
			m.note(store.LoadSlot(time.UnixMicro(now)), to.Services)
		}
	})
	return err
}

func (m *model) note(at time.Time, services map[string]string) {
	m.points = slices.DeleteFunc(m.points, func(p loadPoint) bool { return at.Sub(p.at) > store.LoadHistoryLife+time.Minute })
	i, found := slices.BinarySearchFunc(m.points, at, func(p loadPoint, at time.Time) int { return p.at.Compare(at) })
	if !found {
		m.points = slices.Insert(m.points, i, loadPoint{at: at, services: map[string]string{}})
	}
	maps.Copy(m.points[i].services, services)
}

// NoteTrigger notes that a trigger acts, or does no more, as store.Timers.NoteTrigger.
func (p *Partition) NoteTrigger(_ context.Context, to store.TriggerNote) (err error) {
	p.write(func(m *model, now int64) {
		switch {
		case m.promoter != to.Owner:
			err = store.ErrNotHolder
			return
		case m.version != to.Version:
			err = fmt.Errorf("%w: version %d is in force, not %d", store.ErrStale, m.version, to.Version)
			return
		}
		m.begin(now)
		before, there := m.triggers[to.Name]
		acts := there && before.Until.UnixMicro() > now
		if to.Life > 0 {
			state := store.TriggerState{Name: to.Name, Do: to.Do, Of: to.Of, Why: to.Why, Since: before.Since, Until: time.UnixMicro(now).Add(to.Life)}
			if !acts {
				state.Since = time.UnixMicro(now)
			}
			m.triggers[to.Name] = state
		} else {
			delete(m.triggers, to.Name)
		}
		if to.Life > 0 && !acts || to.Life == 0 && there {
			m.record(now, to.By(), to.Action(), to.Name, 0, 0)
		}
	})
	return err
}

// Triggers returns the triggers that act, as store.Looking.Triggers.
func (p *Partition) Triggers(context.Context) (all []store.TriggerState, err error) {
	p.read(func(m *model, _ int64) {
		for _, name := range sortedNames(m.triggers) {
			all = append(all, m.triggers[name])
		}
	})
	return all, nil
}

// WorkerLoads returns what workers told lately, as store.Looking.WorkerLoads.
func (p *Partition) WorkerLoads(context.Context) (all []store.WorkerLoad, err error) {
	p.read(func(m *model, now int64) {
		if m.load == 0 {
			return
		}
		all = []store.WorkerLoad{}
		for _, name := range sortedNames(m.workers) {
			if l, there := m.loads[name]; there && time.UnixMicro(now).Sub(l.At) <= store.WorkerLoadLife {
				all = append(all, l)
			}
		}
	})
	return all, nil
}

// WaitingFor returns how many jobs wait for services, as store.Looking.WaitingFor.
func (p *Partition) WaitingFor(_ context.Context, services []string) (counts []int64, err error) {
	p.read(func(m *model, _ int64) {
		for _, service := range services {
			counts = append(counts, int64(m.room.WaitingOn(service)))
		}
	})
	return counts, nil
}

// LoadHistory returns the points of a service, as store.Looking.LoadHistory.
func (p *Partition) LoadHistory(_ context.Context, service string, since time.Time) (points []store.LoadPoint, err error) {
	p.read(func(m *model, now int64) {
		last := store.LoadSlot(time.UnixMicro(now))
		first := last.Add(-store.LoadStep * time.Duration(store.LoadPoints-1))
		for _, one := range m.points {
			if text, there := one.services[service]; there && !one.at.Before(first) && !one.at.Before(since) && !one.at.After(last) {
				points = append(points, store.LoadPoint{At: one.at, Text: text})
			}
		}
	})
	return points, nil
}

// QueueNames returns all queues by name, as store.Looking.QueueNames.
func (p *Partition) QueueNames(context.Context) (names []string, err error) {
	p.read(func(m *model, _ int64) { names = m.queueNames() })
	return names, nil
}
