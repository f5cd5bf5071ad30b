package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// Look tells where a job is and what it waits for, as store.Partition.Look.
func (p *Partition) Look(_ context.Context, key admission.Key) (sight store.Sighting, err error) {
	if err := store.ValidateKey(key); err != nil {
		return store.Sighting{}, err
	}
	p.read(func(m *model, now int64) {
		m.asOf(now, func() { sight, err = m.look(key, now) })
	})
	return sight, err
}

func (m *model) look(key admission.Key, now int64) (store.Sighting, error) {
	sight := store.Sighting{Key: key}
	j := m.live[key.String()]
	switch {
	case j == nil && m.remembers(key.String()):
		sight.Place = store.PlaceEnded
		return sight, nil
	case j == nil:
		return store.Sighting{}, fmt.Errorf("look at %s: %w", key, admission.ErrUnknownJob)
	}
	sight.Place, sight.Record, sight.History = placeOf(j), m.shown(j), slices.Clone(j.history)
	sight.PayloadBytes = int64(len(j.stored.Payload))
	standing := store.WaitFacts{Pools: m.poolsOf(j.Queue), Breaker: m.breakerSeen(j.Downstream, now)}
	switch sight.Place {
	case admission.PlaceWaiting:
		at, _ := m.room.Standing(&j.Job)
		sight.Position, standing.Tenant, standing.Blocked = at.Position, string(at.Mode), at.Blocked
		sight.EstimatedWait = time.Duration(m.room.Guess(&j.Job, sight.Position)) * time.Microsecond
		for _, name := range m.room.Shut(&j.Job) {
			standing.Gates = append(standing.Gates, m.shutGate(name, now))
		}
	case admission.PlaceSpilled:
		sight.Position, sight.At = m.spilledIn(j.Tenant, j.Queue).Rank(j)+1, microTime(j.at)
	case admission.PlaceLater:
		sight.At = time.UnixMicro(j.at)
	case store.PlaceDead:
		sight.At, sight.Reason, sight.Text = time.UnixMicro(j.at), j.reason, j.text
	case admission.PlaceReady:
		sight.Pool = j.pool.ID
	case store.PlaceRunning:
		sight.Pool, sight.Worker, sight.Token, sight.Since = j.pool.ID, j.entry.Worker, j.token, time.UnixMicro(j.since)
		if sight.Cancelled = j.cancelled; j.cancelled {
			sight.Reason = j.because
		}
	}
	sight.AddWaits(standing)
	return sight, nil
}

// breakerSeen is what a wait tells of a breaker, the zero state where there is none.
func (m *model) breakerSeen(downstream string, now int64) (b store.BreakerState) {
	of := m.breakers[downstream]
	if of == nil {
		return b
	}
	s := of.SnapshotAt(m.instant())
	b.State, b.Cause, b.Forced, b.Reason = s.State, s.Cause, s.Forced, s.Reason
	if s.Ends {
		b.Until = time.UnixMicro(int64(s.Until)/1000 - (m.filled - max(m.last, now))) // The breakers' clock is ahead by so much.
	}
	return b
}

// shutGate is a closed gate as it stands; of a rate it tells when the next may pass.
func (m *model) shutGate(name string, now int64) store.GateState {
	g := m.room.Gates[name]
	if g == nil { // That of all, which nothing stands under yet.
		return store.GateState{Name: store.GateName(name), Limit: m.room.Defaults[fairqueue.DefaultOf(name)], Then: store.Unlimited}
	}
	state := m.gateState(name, g)
	if g.Rate != nil {
		state.Until = time.UnixMicro(now + g.Rate.Wait())
	}
	return state
}

// Letters reads dead letters, in the order of their keys, as store.Partition.Letters.
func (p *Partition) Letters(_ context.Context, keys []admission.Key) ([]store.Letter, error) {
	letters := make([]store.Letter, len(keys))
	p.read(func(m *model, _ int64) {
		for i, key := range keys {
			letters[i].Key = key
			if j := m.live[key.String()]; j != nil && j.where == amongDead {
				letters[i] = store.Letter{Listed: m.rowOf(j), Dead: true, PayloadBytes: int64(len(j.stored.Payload))}
			}
		}
	})
	return letters, nil
}

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
		if first := m.timers.First(); first < never {
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
