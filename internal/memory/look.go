package memory

import (
	"context"
	"fmt"
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
