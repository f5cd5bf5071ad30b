package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// gateNote is what is kept of a gate beside its limit.
type gateNote struct {
	// until is when the limit ends, 0 for never by itself; then the limit after that.
	until int64
	then  int
	held  heldBy
}

// heldBy says who gave a reason, and when; both are empty where it holds nothing back.
type heldBy struct {
	reason, author string
	since          int64
}

func heldSinceNow(by store.Intervention, now int64) heldBy {
	if !by.Since.IsZero() {
		now = by.Since.UnixMicro()
	}
	return heldBy{by.Reason, by.Author, now}
}

// suspension is what is kept of a name under which nothing is admitted.
type suspension struct {
	until int64 // 0 for ever
	held  heldBy
}

// limited gives a gate of its own a limit for a time, or takes it away: what the script gate does.
func (m *model) limited(c *fairqueue.Pass, name string, limit int, length time.Duration, then int, by store.Intervention, now int64) (held int) {
	m.timers.Remove("g" + name)
	c.Freed(name)
	if limit < 0 {
		if g := m.room.Gates[name]; g != nil {
			held = g.Held
		}
		m.removeGate(name)
		return held
	}
	held = m.setLimit(name, limit)
	note := gateNote{then: then, held: heldBy{reason: by.Reason}}
	if limit == 0 {
		note.held = heldSinceNow(by, now)
	}
	if us := length.Microseconds(); us > 0 {
		note.until = now + us
		m.arm("g"+name, note.until)
	}
	m.gateNotes[name] = note
	return held
}

// gateDue ends a gate's time, or goes on with a rate.
func (m *model) gateDue(c *fairqueue.Pass, name string, now int64) {
	note, ok := m.gateNotes[name]
	switch {
	case !ok || note.until == 0:
	case note.until > now:
		m.arm("g"+name, note.until)
	case note.then < 0:
		m.removeGate(name)
	default:
		m.setLimit(name, note.then)
		note.until, note.then = 0, store.Unlimited
		m.gateNotes[name] = note
	}
	c.Freed(name)
}

// setLimit makes a gate, or changes one, and returns how much is held under it. That of all which have none of their own holds nothing.
func (m *model) setLimit(name string, limit int) (held int) {
	if ofAll(name) {
		m.room.Defaults[name] = limit
		m.followDefault(name)
		return 0
	}
	g := m.room.Gates[name]
	if g == nil {
		g = &fairqueue.Gate{Held: m.heldUnder(name)}
		m.room.Gates[name] = g
	}
	g.Limit, g.Default = limit, false
	return g.Held
}

// ofAll reports whether a gate is that of all which have none of their own.
func ofAll(name string) bool { return store.GateName(name).OfEach() }

// ownLimit returns the limit of a gate that is there by its own name.
func (m *model) ownLimit(name string) (limit int, own bool) {
	if ofAll(name) {
		limit, own = m.room.Defaults[name]
		return limit, own
	}
	g := m.room.Gates[name]
	if g == nil || g.Default {
		return 0, false
	}
	return g.Limit, true
}

// inForce is the limit of a gate of its own, under a pause the one that it leaves behind; Unlimited for none.
func (m *model) inForce(name string) int {
	limit, own := m.ownLimit(name)
	note, noted := m.gateNotes[name]
	switch {
	case own && limit != 0:
		return limit
	case own && noted:
		return note.then
	}
	return store.Unlimited
}

// Pause keeps jobs under a gate from the workers, as store.Partition.Pause.
func (p *Partition) Pause(_ context.Context, name store.GateName, duration time.Duration, by store.Intervention) (held int, err error) {
	if err := checkCap(name, by); err != nil {
		return 0, err
	}
	p.write(func(m *model, now int64) { held = m.pause(name, duration, by, now) })
	return held, nil
}

// pause shuts a gate, which keeps its limit for later.
func (m *model) pause(name store.GateName, duration time.Duration, by store.Intervention, now int64) (held int) {
	c := m.begin(now)
	renewed := by.Author == store.TriggerAuthor && m.paused(name) && m.gateNotes[string(name)].held.author == store.TriggerAuthor
	then := m.inForce(string(name))
	if then == 0 {
		then = store.Unlimited
	}
	held = m.limited(c, string(name), 0, duration, then, by, now)
	if !renewed {
		m.record(now, by, store.AuditPause, string(name), held, duration)
	}
	c.WakeFreed()
	m.fill(c, now)
	return held
}

// paused reports whether what a gate guards is.
func (m *model) paused(name store.GateName) bool {
	limit, own := m.ownLimit(string(name))
	return own && limit == 0
}

// ofOthers reports whether triggers act on what somebody else holds back, by whatever name, or by none.
func ofOthers(by store.Intervention, author string) bool {
	return by.Author == store.TriggerAuthor && author != store.TriggerAuthor
}

// PauseAtLeast is Pause but for what is paused for as long, as store.Gates.PauseAtLeast.
func (p *Partition) PauseAtLeast(_ context.Context, name store.GateName, duration time.Duration, by store.Intervention) (did bool, err error) {
	if err := checkCap(name, by); err != nil {
		return false, err
	}
	p.write(func(m *model, now int64) {
		if m.paused(name) {
			note := m.gateNotes[string(name)]
			until := note.until
			if ofOthers(by, note.held.author) || until == 0 || duration > 0 && until+store.PauseSlack.Microseconds() >= now+duration.Microseconds() {
				return
			}
		}
		did = true
		m.pause(name, duration, by, now)
	})
	return did, nil
}

// Unpause ends what Pause began, as store.Partition.Unpause.
func (p *Partition) Unpause(_ context.Context, name store.GateName, by store.Intervention) (was bool, err error) {
	if err := checkCap(name, by); err != nil {
		return false, err
	}
	p.write(func(m *model, now int64) {
		if was = m.paused(name) && !ofOthers(by, m.gateNotes[string(name)].held.author); !was {
			return
		}
		c := m.begin(now)
		held := m.limited(c, string(name), m.inForce(string(name)), 0, store.Unlimited, by, now)
		m.record(now, by, store.AuditUnpause, string(name), held, 0)
		c.WakeFreed()
		m.fill(c, now)
	})
	return was, nil
}

// checkCap refuses what no cap can be.
func checkCap(name store.GateName, by store.Intervention) error {
	if err := by.Validate(); err != nil {
		return err
	}
	return name.CheckCap()
}

// Suspend refuses admission under a name, as store.Partition.Suspend.
func (p *Partition) Suspend(_ context.Context, name store.GateName, duration time.Duration, by store.Intervention) error {
	_, err := p.suspend(name, store.AuditSuspend, duration, false, by)
	return err
}

// Drain suspends a queue, and leaves a suspension alone that ends later, as store.Partition.Drain.
func (p *Partition) Drain(_ context.Context, queue string, duration time.Duration, by store.Intervention) (until time.Time, err error) {
	by.Reason = cmp.Or(by.Reason, store.DrainReason)
	return p.suspend(store.QueueGate(queue), store.AuditDrain, duration, true, by)
}

func (p *Partition) suspend(name store.GateName, action string, duration time.Duration, keep bool, by store.Intervention) (until time.Time, err error) {
	if err := by.Validate(); err != nil {
		return time.Time{}, err
	}
	p.write(func(m *model, now int64) {
		m.begin(now)
		s := suspension{held: heldSinceNow(by, now)}
		if us := duration.Microseconds(); us != 0 {
			s.until = now + us
		}
		before, suspended := m.suspended[string(name)]
		if keep && suspended && (before.until == 0 || s.until > 0 && before.until > s.until) {
			until = microTime(before.until)
			return
		}
		if suspended && ofOthers(by, before.held.author) {
			return
		}
		m.suspended[string(name)] = s
		m.timers.Remove("s" + string(name))
		if s.until > 0 {
			m.arm("s"+string(name), s.until)
		}
		until = microTime(s.until)
		if by.Author != store.TriggerAuthor || before.held.author != by.Author {
			m.record(now, by, action, string(name), 0, duration)
		}
	})
	return until, nil
}

// Resume ends what Suspend began, as store.Partition.Resume.
func (p *Partition) Resume(_ context.Context, name store.GateName, by store.Intervention) (was bool, err error) {
	if err := by.Validate(); err != nil {
		return false, err
	}
	p.write(func(m *model, now int64) {
		m.begin(now)
		s, suspended := m.suspended[string(name)]
		if was = suspended && !ofOthers(by, s.held.author); !was {
			return
		}
		delete(m.suspended, string(name))
		m.timers.Remove("s" + string(name))
		m.record(now, by, store.AuditResume, string(name), 0, 0)
	})
	return was, nil
}

// Gates returns every gate, by name. Rates are listed without what is left of them.
func (p *Partition) Gates(context.Context) (gates []store.GateState, err error) {
	p.read(func(m *model, _ int64) { gates = m.gateStates() })
	return gates, nil
}

func (m *model) gateStates() []store.GateState {
	names := slices.AppendSeq(slices.Collect(maps.Keys(m.room.Gates)), maps.Keys(m.room.Defaults))
	names = slices.DeleteFunc(names, func(name string) bool { return m.room.Gates[name] != nil && m.room.Gates[name].Kept != nil })
	slices.Sort(names)
	gates := make([]store.GateState, 0, len(names))
	for _, name := range names {
		g := m.room.Gates[name]
		if g == nil {
			g = &fairqueue.Gate{Limit: m.room.Defaults[name]}
		}
		gates = append(gates, m.gateState(name, g))
	}
	return gates
}

// gateState tells of a gate.
func (m *model) gateState(name string, g *fairqueue.Gate) store.GateState {
	state := store.GateState{Name: store.GateName(name), Then: store.Unlimited}
	if rate, ok := g.Rate.(*modelRate); ok {
		state.Rate, state.Burst = float64(rate.limit.Rate), int(rate.limit.Burst/buckets.MicroPerToken)
		return state
	}
	state.Limit, state.Held = g.Limit, g.Held
	if name[0] == store.KindTenant {
		state.Limit, _ = m.room.LimitOf(name)
	}
	note, noted := m.gateNotes[name]
	if !noted || g.Default {
		return state
	}
	state.Until, state.Then, state.Reason = microTime(note.until), note.then, note.held.reason
	if state.Paused() {
		state.Author, state.Since = note.held.author, microTime(note.held.since)
	}
	return state
}

// Suspensions returns every suspension, by name.
func (p *Partition) Suspensions(context.Context) (all []store.Suspension, err error) {
	p.read(func(m *model, _ int64) { all = m.suspensions() })
	return all, nil
}

func (m *model) suspensions() []store.Suspension {
	all := make([]store.Suspension, 0, len(m.suspended))
	for _, name := range slices.Sorted(maps.Keys(m.suspended)) {
		all = append(all, *m.suspensionOf(store.GateName(name)))
	}
	return all
}

// suspensionOf returns what suspends a name, nil for nothing.
func (m *model) suspensionOf(name store.GateName) *store.Suspension {
	s, ok := m.suspended[string(name)]
	if !ok {
		return nil
	}
	return &store.Suspension{Name: name, Until: microTime(s.until), Reason: s.held.reason, Author: s.held.author, Since: microTime(s.held.since)}
}

// Holds returns every pause and suspension, by name, all of one time.
func (p *Partition) Holds(context.Context) (all []store.Hold, err error) {
	p.read(func(m *model, _ int64) { all = store.HoldsOf(m.gateStates(), m.suspensions()) })
	return all, nil
}

// SetGate sets, changes or removes a gate, as store.Partition.SetGate.
func (p *Partition) SetGate(_ context.Context, g store.Gate) (held int, more bool, err error) {
	if err := g.By.Validate(); err != nil {
		return 0, false, err
	}
	p.write(func(m *model, now int64) {
		c := m.begin(now)
		m.obeyed = false
		delete(m.byTier, string(g.Name))
		held = m.limited(c, string(g.Name), g.Limit, g.For, max(g.Then, store.Unlimited), g.By, now)
		m.record(now, g.By, store.AuditGate, string(g.Name), held, g.For)
		c.WakeFreed()
		m.fill(c, now)
		more = m.more
		if set := m.room.Gates[string(g.Name)]; set != nil && !set.Default && g.Limit != store.Unlimited {
			held = set.Held // What the change let run is among them.
		}
	})
	return held, more, nil
}

// recapped follows what a record says of caps from now on, at the gate of its tenant; had says whether that was there before.
func (m *model) recapped(c *fairqueue.Pass, name string, had bool) {
	m.follow()
	limit, has := m.room.LimitOf(name)
	switch held := m.heldUnder(name); {
	case has && !had && held > 0:
		m.room.Gates[name] = &fairqueue.Gate{Limit: limit, Held: held, Default: true}
	case had && !has:
		delete(m.room.Gates, name)
	}
	c.Freed(name)
}

// follow has the room ask for what records say of caps, while they say something.
func (m *model) follow() {
	if m.room.Recorded = nil; m.capped > 0 || m.tiered > 0 && len(m.tierCaps) > 0 {
		m.room.Recorded = m.recordedCap
	}
}

// recapTiers puts the caps of tiers in force for tenants whose records name them, and wakes those of them that have jobs in ready streams.
func (m *model) recapTiers(c *fairqueue.Pass, wanted settings) {
	if maps.Equal(wanted.tierCaps, m.tierCaps) {
		return
	}
	had := map[string]bool{}
	for name := range m.entriesUnder() {
		if _, recorded := m.records[strings.TrimPrefix(name, "t:")]; recorded && m.tiered > 0 && name[0] == store.KindTenant {
			_, had[name] = m.room.LimitOf(name)
		}
	}
	m.tierCaps = wanted.tierCaps
	for name, was := range had {
		m.recapped(c, name, was)
	}
	m.follow()
}

// markTier notes of a cap that it is that of its tenant's tier, or is not.
func (m *model) markTier(name string, byTier bool) {
	if delete(m.byTier, name); byTier {
		m.byTier[name] = true
	}
}

// setReserves keeps slots of queues for some of their classes, as the policy says. Who is another may have changed, so they are counted anew.
func (m *model) setReserves(c *fairqueue.Pass, wanted map[string]store.Reserve) {
	for queue, r := range wanted {
		if before, was := m.reserves[queue]; was && before.String() == r.String() {
			continue
		}
		of := &fairqueue.Kept{Slots: r.Slots, Percent: r.Percent, Classes: r.Classes, Lends: r.Lends}
		held := 0
		for _, p := range m.room.Pools {
			for _, e := range p.Ready {
				if e.Job.Queue == queue && !of.Has(e.Job.Class) {
					held++
				}
			}
		}
		m.room.Gates[fairqueue.ReserveGate(queue)] = &fairqueue.Gate{Kept: of, Held: held}
		c.Freed(fairqueue.ReserveGate(queue))
	}
	for queue := range m.reserves {
		if _, stays := wanted[queue]; !stays {
			delete(m.room.Gates, fairqueue.ReserveGate(queue))
			c.Freed(fairqueue.ReserveGate(queue))
		}
	}
}
