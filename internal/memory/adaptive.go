package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/store"
)

// adaptive is what is kept of a limit that moves by itself.
type adaptive struct {
	store.Adaptation

	// told is what the audit last told, at toldAt; 0 for never.
	told   int
	toldAt int64
	number int64
}

// moved returns what is in force of a cap that an edit writes: of one that moves by itself what it was, between its bounds.
func (m *model) moved(name string, wanted bound) int {
	if wanted.least == 0 {
		delete(m.adaptive, name)
		return wanted.limit
	}
	a := m.adaptive[name]
	if a == nil {
		a = &adaptive{Adaptation: store.Adaptation{Gate: store.GateName(name), Limit: wanted.limit}, told: wanted.limit}
		m.adaptive[name] = a
	}
	a.Name, a.Own, a.Least, a.Most = wanted.loop, wanted.limit, wanted.least, wanted.most
	a.Limit = a.Clamp(a.Limit)
	return a.Limit
}

// Adapt moves a limit, as store.Timers.Adapt.
func (p *Partition) Adapt(_ context.Context, to store.Adapt) (number int64, err error) {
	p.write(func(m *model, now int64) { number, err = m.adapt(now, &to) })
	return number, err
}

func (m *model) adapt(now int64, to *store.Adapt) (number int64, err error) {
	name, a := string(to.Gate), m.adaptive[string(to.Gate)]
	switch {
	case to.Number == 0 && m.promoter != to.Owner:
		return 0, store.ErrNotHolder
	case to.Number == 0 && m.version != to.Version:
		return 0, fmt.Errorf("%w: version %d is in force, not %d", store.ErrStale, m.version, to.Version)
	case a == nil:
		return 0, fmt.Errorf("%w: %s", store.ErrNotAdaptive, name)
	}
	note := m.gateNotes[name]
	limit, _ := m.ownLimit(name)
	if a.Frozen != nil || m.inForce(name) != a.Limit || limit != 0 && note.until != 0 || to.Number != 0 && to.Number < a.number {
		return a.number, nil
	}
	c := m.begin(now)
	a.number++
	if to.Number != 0 {
		a.number = to.Number
	}
	a.Cause, a.At = to.Cause, time.UnixMicro(now)
	limit = a.Clamp(to.Limit)
	if limit == a.Limit {
		return a.number, nil
	}
	if limit > a.Limit {
		a.Raised++
	} else {
		a.Lowered++
	}
	a.Before, a.Limit, a.Why, a.Changed = a.Limit, limit, to.Cause, time.UnixMicro(now)
	m.setCap(name, limit, true)
	if to.Number == 0 && now-a.toldAt >= store.AdaptAuditEvery.Microseconds() {
		by := store.Intervention{Author: store.AdaptAuthor, Reason: strconv.Itoa(a.told) + " to " + strconv.Itoa(limit) + ": " + to.Cause}
		m.record(now, by, store.AuditAdapt, name, m.room.Gates[name].Held, 0)
		a.told, a.toldAt = limit, now
	}
	c.Freed(name)
	c.WakeFreed()
	m.fill(c, now)
	return a.number, nil
}

// Freeze keeps a limit from moving by itself, or lets it go on, as store.Gates.Freeze.
func (p *Partition) Freeze(_ context.Context, gate store.GateName, frozen bool, by store.Intervention) (was bool, err error) {
	if err := by.Validate(); err != nil {
		return false, err
	}
	p.write(func(m *model, now int64) {
		a := m.adaptive[string(gate)]
		if a == nil {
			err = fmt.Errorf("%w: %s", store.ErrNotAdaptive, gate)
			return
		}
		if was = a.Frozen != nil; !was && !frozen {
			return
		}
		m.begin(now)
		action := store.AuditThaw
		a.Frozen = nil
		if frozen {
			held := heldSinceNow(by, now)
			action, a.Frozen = store.AuditFreeze, &store.Intervention{Author: held.author, Reason: held.reason, Since: time.UnixMicro(held.since)}
		}
		m.record(now, by, action, string(gate), 0, 0)
	})
	return was, err
}

// Adaptations returns every limit that moves by itself, by its gate.
func (p *Partition) Adaptations(context.Context) (all []store.Adaptation, err error) {
	p.read(func(m *model, _ int64) {
		for _, name := range slices.Sorted(maps.Keys(m.adaptive)) {
			one := m.adaptive[name].Adaptation
			if one.Frozen != nil {
				frozen := *one.Frozen
				one.Frozen = &frozen
			}
			if g := m.room.Gates[name]; g != nil {
				one.Held, one.Paused = g.Held, !g.Default && g.Limit == 0
			}
			if b := m.breakers[name[len("d:"):]]; b != nil {
				heard, _ := b.HeardAt()
				one.Calls, one.Failures, one.Ran, one.Heard = b.calls, b.failures, b.ran, time.UnixMicro(int64(heard)/1000)
			}
			all = append(all, one)
		}
	})
	return all, nil
}
