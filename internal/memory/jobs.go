package memory

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// Deaths returns dead letters from a time on, as store.Partition.Deaths.
func (p *Partition) Deaths(_ context.Context, from time.Time, count int) ([]store.Death, error) {
	deaths := []store.Death{}
	p.read(func(m *model, _ int64) {
		for j := range m.letters.all.From(&modelJob{at: from.UnixMicro()}) {
			if count > 0 && len(deaths) == count {
				break
			}
			deaths = append(deaths, j.death())
		}
	})
	return deaths, nil
}

// death is the place of a dead letter in the order of deaths.
func (j *modelJob) death() store.Death { return store.Death{At: time.UnixMicro(j.at), Member: j.raw} }

// DeadLetters returns the letters of some deaths, as store.Partition.DeadLetters.
func (p *Partition) DeadLetters(_ context.Context, deaths []store.Death) ([]store.DeadLetter, error) {
	if len(deaths) == 0 {
		return nil, nil
	}
	letters := make([]store.DeadLetter, 0, len(deaths))
	p.read(func(m *model, _ int64) {
		for _, d := range deaths {
			key, err := d.Key()
			if err != nil {
				continue
			}
			if j := m.live[key.String()]; j != nil && j.where == amongDead {
				letters = append(letters, store.DeadLetter{Death: d, Record: m.recordOf(j), Reason: j.reason, Text: j.text})
			}
		}
	})
	return letters, nil
}

// Followed returns how far a follower of the dead letters is, as store.Partition.Followed.
func (p *Partition) Followed(_ context.Context, follower string) (last store.Death, err error) {
	p.read(func(m *model, _ int64) {
		var begun bool
		if last, begun = m.followed[follower]; !begun {
			last.At = time.UnixMicro(0)
		}
	})
	return last, nil
}

// NoteFollowed notes how far a follower is.
func (p *Partition) NoteFollowed(_ context.Context, follower string, last store.Death) error {
	last.At = time.UnixMicro(last.At.UnixMicro())
	p.write(func(m *model, _ int64) { m.followed[follower] = last })
	return nil
}

// LastTick returns the last tick of a periodic job that was noted, as store.Partition.LastTick.
func (p *Partition) LastTick(_ context.Context, name string, first time.Time) (last time.Time, err error) {
	p.write(func(m *model, _ int64) {
		if _, noted := m.ticks[name]; !noted {
			m.ticks[name] = first.UnixMicro()
		}
		last = time.UnixMicro(m.ticks[name])
	})
	return last, nil
}

// NoteTick notes a tick that was enqueued, unless a later one is noted.
func (p *Partition) NoteTick(_ context.Context, name string, tick time.Time) error {
	p.write(func(m *model, _ int64) {
		if at, noted := m.ticks[name]; !noted || at < tick.UnixMicro() {
			m.ticks[name] = tick.UnixMicro()
		}
	})
	return nil
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
			if !shut {
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

// sortedNames returns the keys of a map in order.
func sortedNames[V any](of map[string]V) []string { return slices.Sorted(maps.Keys(of)) }

// tokenAfter reports whether one id of a stream follows another.
func tokenAfter(token, other string) bool {
	at, n := tokenParts(token)
	otherAt, otherN := tokenParts(other)
	return at > otherAt || at == otherAt && n > otherN
}

func tokenParts(token string) (at, n uint64) {
	first, second, _ := strings.Cut(token, "-")
	at, _ = strconv.ParseUint(first, 10, 64)
	n, _ = strconv.ParseUint(second, 10, 64)
	return at, n
}
