package memory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// Queues returns every queue by name, as store.Partition.Queues.
func (p *Partition) Queues(context.Context) (queues []store.QueueState, err error) {
	p.read(func(m *model, _ int64) { queues = m.queueStates(m.queueNames()) })
	return queues, nil
}

// Queue returns one queue, or store.ErrUnknownQueue.
func (p *Partition) Queue(_ context.Context, name string) (state store.QueueState, err error) {
	p.read(func(m *model, _ int64) { state, err = m.queueState(name) })
	return state, err
}

func (m *model) queueState(name string) (store.QueueState, error) {
	if err := admission.ValidateName("queue", name, true); err != nil {
		return store.QueueState{}, err
	}
	if !m.knownQueue(name) {
		return store.QueueState{}, fmt.Errorf("%w %s", store.ErrUnknownQueue, name)
	}
	return m.queueStates([]string{name})[0], nil
}

// queueStates tells of queues, whether they are known or not.
func (m *model) queueStates(names []string) []store.QueueState {
	queues, at := make([]store.QueueState, len(names)), make(map[string]*store.QueueState, len(names))
	for i, name := range names {
		queues[i] = m.dynamics(name)
		at[name] = &queues[i]
	}
	for _, w := range m.workerStates() {
		for _, served := range w.Queues {
			if q := at[served.Queue]; q != nil {
				q.Workers++
				q.Slots += w.Slots
			}
		}
	}
	m.countPlaces(at)
	return queues
}

// dynamics tells of a queue what is kept of it as a whole.
func (m *model) dynamics(name string) store.QueueState {
	q := store.QueueState{Name: name, Pools: m.poolsOf(name), Gate: m.queueGate(name), Suspended: m.suspensionOf(store.QueueGate(name))}
	if p := m.pressures[name]; p != nil {
		q.Pressure = new(p.PressureState)
	}
	if g := m.room.Gates[fairqueue.ReserveGate(name)]; g != nil {
		q.Others = g.Held
	}
	v, made := m.room.QueueView(name)
	for i, class := range m.classesOf(name) {
		c := store.ClassState{Class: class}
		if i < len(v.Waiting) {
			c.Waiting = int64(v.Waiting[i])
		}
		q.Classes = append(q.Classes, c)
	}
	if !made {
		return q
	}
	q.Turn, q.TurnLeft, q.Pace = v.Turn, v.Left, time.Duration(math.Round(v.Pace))*time.Microsecond
	if q.Busy = v.Last > 0; q.Busy {
		q.Last = time.UnixMicro(v.Last)
	}
	return q
}

// queueGate is a queue's pause or cap, nil for none.
func (m *model) queueGate(queue string) *store.GateState {
	name := string(store.QueueGate(queue))
	g := m.room.Gates[name]
	if g == nil {
		return nil
	}
	state := m.gateState(name, g)
	return &state
}

// countPlaces counts the jobs of queues that are in no lane.
func (m *model) countPlaces(queues map[string]*store.QueueState) {
	for _, p := range m.room.Pools {
		for _, e := range p.Ready {
			switch q := queues[e.Job.Queue]; {
			case q == nil:
			case e.Worker != "":
				q.Running++
			default:
				q.Ready++
			}
		}
	}
	for j := range m.later.All() {
		if q := queues[j.Queue]; q != nil {
			q.Later++
		}
	}
	for name, q := range queues {
		q.Dead = int64(m.letters.InQueue(name).Len())
	}
	for of, b := range m.backlogs {
		if q := queues[of.queue]; q != nil {
			q.Spilled += int64(b.spilled.Len())
		}
	}
}

// Remaining counts what is left of a queue, all at one time, as store.Partition.Remaining.
func (p *Partition) Remaining(_ context.Context, queue string) (left store.Remaining, err error) {
	p.read(func(m *model, _ int64) {
		q := m.dynamics(queue)
		m.countPlaces(map[string]*store.QueueState{queue: &q})
		left = store.Remaining{Waiting: q.Waiting(), Ready: q.Ready, Running: q.Running, Later: q.Later, Spilled: q.Spilled}
	})
	return left, nil
}

// Peek returns, for each class of a queue, the tenants that are next with the next job of each, as store.Partition.Peek.
func (p *Partition) Peek(_ context.Context, queue string, n int) (state store.QueueState, classes []store.PeekedClass, err error) {
	n = max(1, min(n, store.MaxPeek))
	p.read(func(m *model, now int64) {
		if state, err = m.queueState(queue); err != nil {
			return
		}
		m.asOf(now, func() {
			for i, of := range state.Classes {
				classes = append(classes, m.peek(queue, i, n, of))
			}
		})
	})
	return state, classes, err
}

func (m *model) peek(queue string, class, n int, of store.ClassState) store.PeekedClass {
	line, runnable, tenants := m.room.Line(queue, class, n)
	c := store.PeekedClass{ClassState: of, Runnable: int64(runnable), Held: int64(tenants - runnable)}
	for _, t := range line {
		next := store.Peeked{Tenant: t.Tenant, Tag: float64(t.Tag)}
		if t.Next != nil {
			next.Next = m.rowOf(jobOf(t.Next))
		}
		next.Next.Record.Job.Priority = of.Name
		job := &next.Next.Record.Job
		for _, name := range []store.GateName{
			store.QueueGate(queue), store.TenantGate(t.Tenant), store.TenantQueueGate(t.Tenant, queue), store.DownstreamGate(job.Service()), store.DownstreamGate(job.Downstream),
		} {
			if g := m.room.Gates[string(name)]; g != nil && m.gateState(string(name), g).Shut() {
				next.Behind = name
				break
			}
		}
		c.Next = append(c.Next, next)
	}
	return c
}

// WaitingTenants returns the n tenants that have the most jobs waiting in a queue, the most first. It looks at all of them.
func (p *Partition) WaitingTenants(_ context.Context, queue string, n int) (top []store.TenantWaiting, partial bool, err error) {
	p.read(func(m *model, _ int64) {
		var state store.QueueState
		if state, err = m.queueState(queue); err != nil {
			return
		}
		waiting := map[string]int64{}
		for class := range state.Classes {
			for _, tenant := range m.room.Tenants(queue, class) {
				waiting[tenant] += int64(m.room.WaitingOf(queue, class, tenant))
			}
		}
		for tenant, jobs := range waiting {
			top = append(top, store.TenantWaiting{Tenant: tenant, Waiting: jobs})
		}
	})
	slices.SortFunc(top, func(a, b store.TenantWaiting) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.Tenant, b.Tenant))
	})
	return top[:max(0, min(n, len(top)))], false, err
}

// Backlogs returns what a tenant has in each queue, the most waiting first, as store.Partition.Backlogs.
func (p *Partition) Backlogs(_ context.Context, tenant string) (all []store.Backlog, err error) {
	if err := admission.ValidateTenant(tenant); err != nil {
		return nil, err
	}
	p.read(func(m *model, _ int64) {
		for _, name := range m.queueNames() {
			b := store.Backlog{Queue: name, Spilled: int64(m.spilledIn(tenant, name).Len()), Dead: int64(m.letters.OfTenant(tenant)[name])}
			for class := range m.classesOf(name) {
				b.Waiting += int64(m.room.WaitingOf(name, class, tenant))
			}
			if b.Waiting+b.Spilled+b.Dead > 0 {
				all = append(all, b)
			}
		}
	})
	slices.SortFunc(all, func(a, b store.Backlog) int {
		return cmp.Or(cmp.Compare(b.Waiting+b.Spilled, a.Waiting+a.Spilled), cmp.Compare(b.Dead, a.Dead), cmp.Compare(a.Queue, b.Queue))
	})
	return all, nil
}

// Depths returns what counts in the bounds of a tenant's depth, as store.Partition.Depths.
func (p *Partition) Depths(_ context.Context, tenant string, queues []string) ([]store.Depth, error) {
	if err := admission.ValidateTenant(tenant); err != nil {
		return nil, err
	}
	depths := make([]store.Depth, len(queues))
	p.read(func(m *model, _ int64) {
		for i, queue := range queues {
			of := m.depthOf(tenantQueue{tenant, queue})
			if queue == "" {
				of = m.totalOf(tenant)
			}
			depths[i] = store.Depth{Jobs: int64(of.jobs), Bytes: int64(of.bytes), Spilled: int64(m.spilledIn(tenant, queue).Len())}
		}
	})
	return depths, nil
}

// Workers returns every registered worker, by pool and name.
func (p *Partition) Workers(context.Context) (workers []store.WorkerState, err error) {
	p.read(func(m *model, _ int64) { workers = m.workerStates() })
	return workers, nil
}

func (m *model) workerStates() []store.WorkerState {
	workers := make([]store.WorkerState, 0, len(m.workers))
	for _, name := range slices.Sorted(maps.Keys(m.workers)) {
		of := m.workers[name]
		w := store.WorkerState{Name: name, Pool: of.pool, Slots: of.slots, LeaseEnd: microTime(m.timers.At("w" + name))}
		if p := m.room.Pools[of.pool]; p != nil {
			for i, queue := range p.Queues {
				w.Queues = append(w.Queues, store.QueueWeight{Queue: queue, Weight: p.Weights()[i]})
			}
			w.Held = len(m.holding[holder{of.pool, name}])
		}
		workers = append(workers, w)
	}
	slices.SortStableFunc(workers, func(a, b store.WorkerState) int { return cmp.Compare(a.Pool, b.Pool) })
	return workers
}

// Demand reads what is runnable for a pool, as store.Partition.Demand.
func (p *Partition) Demand(_ context.Context, pool store.Pool) (d store.Demand, err error) {
	p.read(func(m *model, _ int64) { d = m.demand(pool) })
	return d, nil
}

func (m *model) demand(pool store.Pool) store.Demand {
	d := store.Demand{Queues: make([]store.QueueDemand, len(pool.Queues))}
	if p := m.room.Pools[pool.ID()]; p != nil {
		d.Entries = len(p.Ready)
	}
	for i, q := range pool.Queues {
		shut := m.room.Closed(string(store.QueueGate(q.Queue)))
		for class, of := range m.classesOf(q.Queue) {
			demand := store.ClassDemand{Weight: of.Weight}
			if !shut && !m.room.ReserveShut(q.Queue, class) {
				demand.Runnable = m.runnable(q.Queue, class)
			}
			d.Queues[i] = append(d.Queues[i], demand)
		}
	}
	return d
}

// weighedAtOnce is how many tenants are weighed; others are taken for alike.
const weighedAtOnce = 64

// runnable is the sum of the weights of a class's runnable tenants.
func (m *model) runnable(queue string, class int) float64 {
	line, all, _ := m.room.Line(queue, class, weighedAtOnce)
	if all == 0 {
		return 0
	}
	sum := 0.0
	for _, t := range line {
		sum += float64(m.room.Weight(m.classesOf(queue)[class].Name, t.Tenant))
	}
	return sum * float64(all) / float64(len(line))
}

// foreseeLook is how many timers Foresee looks at.
const foreseeLook = 64

// Foresee returns how long it takes until time makes a job runnable for a pool, as store.Partition.Foresee.
func (p *Partition) Foresee(_ context.Context, pool string) (wait time.Duration, err error) {
	p.read(func(m *model, now int64) { wait = m.foresee(pool, now) })
	return wait, nil
}

func (m *model) foresee(id string, now int64) time.Duration {
	p := m.room.Pools[id]
	if p == nil || m.idle(poolOf(p)) {
		return -1
	}
	at := m.firstOpening(p)
	if at == never {
		return -1
	}
	if j, ok := m.later.First(); ok {
		at = min(at, j.at) // Of some queue: perhaps it is sooner than need be.
	}
	return time.Duration(max(0, at-now)) * time.Microsecond
}

// idle reports whether a job may come at any moment: a queue of the pool that is not paused is empty, or has jobs that are runnable.
func (m *model) idle(pool store.Pool) bool {
	demand := m.demand(pool)
	for i, q := range pool.Queues {
		limit, own := m.ownLimit(string(store.QueueGate(q.Queue)))
		if paused := own && limit == 0; !paused && m.room.Empty(q.Queue) {
			return true
		}
		if slices.ContainsFunc(demand.Queues[i], func(c store.ClassDemand) bool { return c.Runnable > 0 }) {
			return true
		}
	}
	return false
}

// firstOpening is the first of some timers that opens a gate behind which jobs of a pool's queues wait; never for none.
func (m *model) firstOpening(p *fairqueue.Pool) int64 {
	for _, one := range m.timers.Until(never, foreseeLook) {
		name := one.Name[1:]
		if one.Name[0] == 'b' {
			name = "b:" + name
		} else if one.Name[0] != 'g' {
			continue
		}
		gate := m.room.Gates[name]
		if gate == nil || gate.Default || gate.Rate == nil && gate.Limit > 0 {
			continue // It is gone, or open as far as time goes: jobs that end make room.
		}
		lines := m.room.LinesAt(name)
		for _, queue := range p.Queues {
			behind := slices.ContainsFunc(lines, func(line string) bool {
				_, of, _ := strings.Cut(line, ":")
				return of == queue
			})
			if behind || name == string(store.QueueGate(queue)) {
				return one.At
			}
		}
	}
	return never
}

// pressure is how much a queue is pressed, and the number of the measurement.
type pressure struct {
	store.PressureState

	number int64
}

// measure has the queues measured that the policy names, and no others.
func (m *model) measure(queues map[string]bool) {
	maps.DeleteFunc(m.pressures, func(queue string, _ *pressure) bool { return !queues[queue] })
	for queue := range queues {
		if m.pressures[queue] == nil {
			m.pressures[queue] = &pressure{PressureState: store.PressureState{Pressure: admission.Pressure{Level: admission.PressureNone}}}
		}
	}
}

// pressureOf is what callers are told of a queue.
func (m *model) pressureOf(queue string, now int64) admission.Pressure {
	if p := m.pressures[queue]; p != nil {
		return p.At(time.UnixMicro(now)).Pressure
	}
	return admission.Pressure{Level: admission.PressureNone}
}

// Press notes how much a queue is pressed, as store.Timers.Press.
func (p *Partition) Press(_ context.Context, to store.Press) (number int64, err error) {
	p.write(func(m *model, now int64) {
		last := m.pressures[to.Queue]
		switch {
		case to.Number == 0 && m.promoter != to.Owner:
			err = store.ErrNotHolder
		case to.Number == 0 && m.version != to.Version:
			err = fmt.Errorf("%w: version %d is in force, not %d", store.ErrStale, m.version, to.Version)
		case last == nil:
			err = fmt.Errorf("%w: %s", store.ErrNotMeasured, to.Queue)
		default:
			number = m.press(now, last, &to)
		}
	})
	return number, err
}

func (m *model) press(now int64, last *pressure, to *store.Press) int64 {
	number := to.Number
	if number == 0 {
		number = last.number + 1
	}
	if number < last.number {
		return last.number
	}
	m.begin(now)
	told := to.Pressure
	told.Score, told.RetryAfter = math.Round(told.Score*1000)/1000, told.RetryAfter.Truncate(time.Microsecond)
	until := time.UnixMicro(now + to.Life.Microseconds())
	*last = pressure{PressureState: store.PressureState{Pressure: told, Until: until, Parts: to.Parts[:min(len(to.Parts), store.MaxParts)]}, number: number}
	return number
}

// Loads returns what is seen of queues, as store.Looking.Loads.
func (p *Partition) Loads(_ context.Context, queues []string) (loads []store.QueueLoad, err error) {
	p.read(func(m *model, now int64) {
		for _, name := range queues {
			state := m.dynamics(name)
			load := store.QueueLoad{Queue: name, Waiting: state.Waiting(), Level: m.pressureOf(name, now).Level}
			load.Wait = store.LoadWait(load.Waiting, state.Pace, state.Last, time.UnixMicro(now))
			for _, pool := range m.room.Pools {
				if slices.Contains(state.Pools, pool.ID) {
					load.Slots, load.Held = load.Slots+pool.Slots, load.Held+len(pool.Ready)
				}
			}
			loads = append(loads, load)
		}
	})
	return loads, nil
}
