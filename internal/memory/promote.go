package memory

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/memory/internal/names"
	"github.com/headgate/headgate/store"
)

// PromoteAfter runs what is due, as store.Partition.PromoteAfter.
func (p *Partition) PromoteAfter(_ context.Context, leap store.Leap, owner string, timerLease time.Duration) (done store.Promotion, err error) {
	p.write(func(m *model, now int64) {
		done = m.promote(now, leap, owner, timerLease.Microseconds())
		done.At = time.UnixMicro(now)
	})
	return done, nil
}

func (m *model) promote(now int64, leap store.Leap, owner string, lease int64) store.Promotion {
	if owner != m.promoter && m.promoterUntil >= now && m.promoterUntil <= now+lease {
		return store.Promotion{Held: true, Next: time.Duration(m.promoterUntil-now+1) * time.Microsecond}
	}
	c := m.begin(now)
	m.promoter, m.promoterUntil = owner, now+lease
	if m.leapt == 1 && leap == store.LeapAsk {
		return store.Promotion{Leapt: true}
	}
	m.rotate()
	done := store.Promotion{Stepped: m.leapt == -1 || m.leapt == 1 && leap == store.LeapStep}
	m.leapt = 0
	if done.Stepped {
		m.steps++
		m.lookAgain(c, now)
	}
	m.promoteLater(c, now)
	m.runTimers(c, now)
	c.WakeFreed()
	m.fill(c, now)
	next, soon := m.earliest(), now
	if c.MovesLeft == 0 { // A timer that goes on at once may not have been come to.
		soon += fairqueue.ContinueAfter
	}
	done.More, done.Moved, done.Next = m.more || next <= soon, m.moves-c.MovesLeft, -time.Microsecond
	if len(m.adaptive)+len(m.pressures) > 0 || m.load > 0 || m.watched {
		done.Adaptive = m.version
	}
	if next < never {
		done.Next = time.Duration(max(0, next-now)) * time.Microsecond
	}
	return done
}

// promoteLater uses half of the moves: however many jobs are due at once, timers run, and workers get some of them.
func (m *model) promoteLater(c *fairqueue.Pass, now int64) {
	for range (c.MovesLeft + 1) / 2 {
		j, ok := m.later.First()
		if !ok || j.at > now {
			return
		}
		c.MovesLeft--
		m.later.Remove(j)
		m.putBack(c, j, now)
	}
}

// runTimers runs what is due. Fills and gates that ran out of moves go on at once: their timers stand ahead only for the case that nobody
// calls.
func (m *model) runTimers(c *fairqueue.Pass, now int64) {
	for _, one := range m.timers.Until(now+fairqueue.ContinueAfter, m.moves) {
		if c.MovesLeft == 0 {
			return
		}
		if one.At > now && !strings.ContainsRune("fko", rune(one.Name[0])) {
			continue
		}
		m.timers.Remove(one.Name)
		m.runTimer(c, one.Name, now)
	}
}

// lookAgain arms every registration anew after a step of the clock, and lets everything look again whose timer the old clock may have put
// far ahead.
func (m *model) lookAgain(c *fairqueue.Pass, now int64) {
	for name, w := range m.workers {
		m.arm("w"+name, now+w.lease)
	}
	for _, name := range slices.Collect(m.timers.Names()) {
		of := name[1:]
		switch name[0] {
		case 'b':
			if m.breakers[of] != nil { // A probe may have found that it is to be forgotten.
				m.timers.Put(name, now)
			}
		case 'f':
			if m.room.Pools[of] != nil {
				m.timers.Put(name, now)
			}
		case 'o':
			if m.spilledBy(of).Len() > 0 {
				m.timers.Put(name, now)
			}
		case 'k': // Of gates, too, that nobody keeps while nothing counts against them.
			m.timers.Put(name, now)
		}
	}
	for account := range m.room.AccountsWaiting() {
		if _, armed := m.timers.Find("gs:" + account); armed {
			m.timers.Put("gs:"+account, now)
		}
	}
	for name := range m.room.Gates {
		c.Freed(name)
	}
	for _, shelf := range m.room.Shelves() {
		c.Freed(shelf)
	}
}

func (m *model) runTimer(c *fairqueue.Pass, timer string, now int64) {
	name := timer[1:]
	switch timer[0] {
	case 'd':
		for _, j := range c.ExpireLane(timer) {
			m.outOfLane(jobOf(j))
			m.expire(jobOf(j), now)
		}
	case 'g':
		m.gateDue(c, name, now)
	case 'k':
		c.Continue(name)
	case 'f':
		if p := m.room.Pools[name]; p != nil {
			m.surplusReturn(c, p, now)
			m.poolClose(p)
			c.Refill(name)
		}
	case 'c':
		m.audit(c, name, now)
	case 'o':
		tenant, queue, _ := strings.Cut(name, ":")
		m.depthFreed[tenantQueue{tenant, queue}] = true
	case 'x':
		if j := m.live[name]; j != nil && j.where == inSpill {
			m.unspill(j)
			m.tidy(tenantQueue{j.Tenant, j.Queue})
			m.expire(j, now)
		}
	case 'r':
		if name == store.Every {
			m.lettersLook()
		} else {
			m.lettersPurge(c, name, now)
		}
	case 'b':
		m.breakerDue(c, name, now)
	case 's':
		delete(m.suspended, name)
	case 'w':
		if !m.workerReclaim(c, name, true, now) {
			m.arm(timer, now)
		}
	}
}

// WaitWake blocks until something is due before all else was, as store.Partition.WaitWake.
func (p *Partition) WaitWake(ctx context.Context, last string, wait time.Duration) (position string, err error) {
	position = last
	if last == "" {
		position = "0-0"
	}
	err = p.await(ctx, wakeTopic, wait, func(m *model, _ int64) bool {
		if m.wake == "" || !names.After(m.wake, position) {
			return false
		}
		position = m.wake
		return true
	})
	return position, err
}

// TimerLease returns which scheduler holds the timer lease, as store.Partition.TimerLease.
func (p *Partition) TimerLease(context.Context) (owner string, end time.Time, err error) {
	p.read(func(m *model, now int64) { owner, end = m.timerLease(now) })
	return owner, end, nil
}

func (m *model) timerLease(now int64) (owner string, end time.Time) {
	if m.promoter == "" || m.promoterUntil < now {
		return "", time.Time{}
	}
	return m.promoter, time.UnixMicro(m.promoterUntil)
}

// Alive notes that a scheduler lives for so long from now, zero that it has gone.
func (p *Partition) Alive(_ context.Context, scheduler string, life time.Duration) error {
	p.write(func(m *model, now int64) {
		m.schedulers[scheduler] = now + life.Microseconds()
		maps.DeleteFunc(m.schedulers, func(_ string, until int64) bool { return until <= now })
	})
	return nil
}

// Schedulers returns the schedulers that live, by name, and whoever holds the timer lease.
func (p *Partition) Schedulers(context.Context) (all []store.SchedulerState, err error) {
	p.read(func(m *model, now int64) {
		for name, until := range m.schedulers {
			if until > now {
				all = append(all, store.SchedulerState{Name: name, AliveUntil: time.UnixMicro(until)})
			}
		}
		owner, end := m.timerLease(now)
		if owner == "" {
			return
		}
		at := slices.IndexFunc(all, func(one store.SchedulerState) bool { return one.Name == owner })
		if at < 0 {
			at, all = len(all), append(all, store.SchedulerState{Name: owner})
		}
		all[at].LeaseEnd = end
	})
	slices.SortFunc(all, func(a, b store.SchedulerState) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Timers are what is due at a time, by name. Their first byte says what:
//
//	w worker            its lease ends
//	d class:queue:tenant:downstream   the head of a lane with deadlines passes its own
//	g gate              a gate's time is over, or a rate has a token
//	k gate              waiters of an open gate are not all awake yet
//	f pool              a fill that ran out of moves goes on
//	c pool              holders are compared with registrations
//	o tenant:queue      spilled jobs that have room go on coming back
//	x job               the deadline of a spilled job passes
//	r queue             its oldest dead letter has been kept for long enough
//	r*                  queues without settings of their own are to look at theirs
//	s name              enqueueing is no longer suspended
//	b downstream        its breaker's state ends by time, or is to be looked at

// earliest is when the first timer is due, or the first job that waits for a time.
func (m *model) earliest() int64 {
	first := m.timers.First()
	if j, ok := m.later.First(); ok {
		first = min(first, j.at)
	}
	return first
}

// arm sets a timer, and wakes the schedulers where it is the first.
func (m *model) arm(name string, at int64) {
	before := m.earliest()
	m.timers.Put(name, at)
	m.wakeIf(at, before)
}

// wakeIf wakes the schedulers if something is due before all else was.
func (m *model) wakeIf(at, before int64) {
	if at < before {
		m.wake = m.newToken(m.last)
		m.happened[wakeTopic] = true
	}
}

// NewMover implements store.Timers: memory has no second Redis.
func (p *Partition) NewMover(string) store.Mover { return nil }

// SpillState implements store.Timers: it is of Redis alone, too.
func (p *Partition) SpillState(context.Context) (store.SpillState, error) {
	return store.SpillState{Held: -1}, nil
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
	over := a.Override != nil && to.Number == 0 && now >= a.Override.Until.UnixMicro()
	if over {
		to.Limit, to.Cause = a.Override.Back, store.CauseOverrideOver
	}
	note := m.gateNotes[name]
	limit, _ := m.ownLimit(name)
	byOthers := !isLimits(name) && (!a.IsRate() && m.inForce(name) != a.Limit || limit != 0 && note.until != 0)
	frozen := a.Frozen != nil && !over && (!a.IsRate() && !a.IsLimits() || to.Limit != a.Limit)
	if frozen || byOthers || to.Number != 0 && to.Number < a.number {
		return 0, nil
	}
	if over {
		a.Frozen, a.Override = nil, nil
	}
	c := m.begin(now)
	a.number++
	if to.Number != 0 {
		a.number = to.Number
	}
	a.Cause, a.At = to.Cause, time.UnixMicro(now)
	reduced := a.Back > 0 || to.Back > 0
	a.Back = to.Back
	a.DeadBand += int64(to.DeadBand)
	limit = a.Clamp(to.Limit)
	eases := a.Push > 0 && m.filled >= a.Eased.UnixMicro()
	if eases {
		if a.Push--; a.Push < admission.PressureLow {
			a.Push = 0
		}
		a.Eased = time.UnixMicro(m.filled).Add(store.PushStep)
	}
	if limit == a.Limit {
		if eases {
			m.setRate(name, a.inForce(), true)
			c.Freed(name)
			c.WakeFreed()
			m.fill(c, now)
		}
		if a.IsLimits() && reduced {
			m.limitsMoved(name, func() { a.lasts(m.filled, to.Life) })
		}
		return a.number, nil
	}
	if limit > a.Limit {
		a.Raised++
	} else {
		a.Lowered++
	}
	a.Before, a.Why, a.Changed = a.Limit, to.Cause, time.UnixMicro(now)
	m.applyMoved(c, name, limit, now, to.Life)
	if to.Number == 0 && now-a.toldAt >= store.AdaptAuditEvery.Microseconds() {
		by := store.Intervention{Author: store.AdaptAuthor, Reason: a.inWords(a.told) + " to " + a.inWords(limit) + ": " + to.Cause}
		m.record(now, by, store.AuditAdapt, name, m.heldAt(name), 0)
		a.told, a.toldAt = limit, now
	}
	c.WakeFreed()
	m.fill(c, now)
	return a.number, nil
}

// limitsMoved notes when limits of admission change by what is done to the one that moves them.
func (m *model) limitsMoved(name string, change func()) {
	if a := m.adaptive[name]; a != nil && a.ends != 0 && a.ends <= buckets.Instant(m.filled) {
		m.changed = max(m.changed, a.ends)
	}
	before := m.partOf(name)
	if change(); m.partOf(name) != before {
		m.changed = buckets.Instant(m.filled)
	}
}

// partOf is how much of the limits of a name is in force.
func (m *model) partOf(name string) int {
	if a := m.adaptive[name]; a != nil && (a.ends == 0 || a.ends > buckets.Instant(m.filled)) {
		return a.Limit
	}
	return store.PartWhole
}

// lasts notes for how long limits of admission are as they are from a time of the buckets on, 0 for until they are changed.
func (a *adaptive) lasts(at int64, life time.Duration) {
	if a.ends = 0; life > 0 {
		a.ends = buckets.Instant(at + life.Microseconds())
	}
}

// applyMoved puts a limit in force that moves by itself, of admission for a life. Who waits by one that is of each account looks again.
func (m *model) applyMoved(c *fairqueue.Pass, name string, limit int, now int64, life time.Duration) {
	a := m.adaptive[name]
	switch {
	case a.IsLimits():
		m.limitsMoved(name, func() {
			a.Limit = limit
			a.lasts(m.filled, life)
		})
		return
	case a.IsRate():
		a.Limit = limit
		m.setRate(name, a.inForce(), true)
		m.accountsLook(name, now)
	default:
		a.Limit = limit
		m.setCap(name, limit, true)
		m.freeWaiting(c, name)
	}
	c.Freed(name)
}

// heldAt is how much is held at a gate, 0 where there is none.
func (m *model) heldAt(name string) int {
	if g := m.room.Gates[name]; g != nil {
		return g.Held
	}
	return 0
}
