package memory

import (
	"context"
	"maps"
	"time"

	"github.com/headgate/headgate/store"
)

// Census counts every job, all at one time.
func (p *Partition) Census(context.Context) (c store.Census, err error) {
	p.read(func(m *model, _ int64) {
		c = store.Census{
			Accepted: m.accepted, Waiting: int64(m.room.Waiting()), Later: int64(m.later.Len()), Dead: int64(m.letters.all.Len()), Live: int64(len(m.live)),
			Left: maps.Clone(m.left), Died: maps.Clone(m.died),
		}
		for _, b := range m.backlogs {
			c.Spilled += int64(b.spilled.Len())
		}
		for _, pool := range m.room.Pools {
			c.Ready += int64(len(pool.Ready))
		}
	})
	return c, nil
}

// Counters reads what was counted since the partition began.
func (p *Partition) Counters(context.Context) (c store.Counters, err error) {
	p.read(func(m *model, _ int64) {
		c = store.Counters{
			Accepted: m.accepted, Left: maps.Clone(m.left), Died: maps.Clone(m.died), Retried: m.retried, Unknown: maps.Clone(m.unknownTypes),
			Live: int64(len(m.live)),
		}
	})
	return c, nil
}

// noteUnknown counts a job of a queue that was handed back because its worker has no handler for its type.
func (m *model) noteUnknown(queue, kind string, now int64) {
	m.unknownTypes[queue] = store.Unknown{Count: m.unknownTypes[queue].Count + 1, Last: time.UnixMicro(now), Type: kind}
}

// Vitals tells whether the timers are well and what is used of the bounds. Memory is not told.
func (p *Partition) Vitals(context.Context) (v store.Vitals, err error) {
	p.read(func(m *model, now int64) {
		if first := m.timers.first(); first < never {
			v.Late = time.Duration(max(0, now-first)) * time.Microsecond
		}
		lanes := m.room.WidestTenant()
		if lanes < store.CountedLanes {
			lanes = 0 // Few are not counted.
		}
		v.Bounds = store.BoundsUsed(int64(m.room.Used()), int64(m.letters.all.Len()), int64(lanes), int64(len(m.breakers)))
	})
	return v, nil
}

// Time returns the clock.
func (p *Partition) Time(context.Context) (time.Time, error) {
	return time.UnixMicro(p.now().UnixMicro()), nil
}
