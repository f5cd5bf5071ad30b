package memory

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// modelBreaker is a fleet's breaker, what its gate and its timer were told last, and what is kept beside it.
type modelBreaker struct {
	*breaker.Fleet
	period      uint64
	limit, ramp int
	doubt       breaker.Instant

	// What it counted since it was made: failedAt is by the breakers' clock, ways by the states from and to.
	calls, failures int64
	// refused is how many calls beside those the downstream refused as too many.
	refused int64
	// push and pushFor are how much the downstream pushes back by the reports of a call.
	push     admission.PressureLevel
	pushFor  time.Duration
	ran      time.Duration
	failedAt int64
	ways     [breakerStates * breakerStates]int64
	errors   []store.CallError
	differs  *store.BreakerDiffers
	guests   map[string]guest // probes that are no jobs, by call
}

// guest is a probe that is no job, begun in a period at a time of the breakers' clock.
type guest struct {
	period uint64
	began  int64
}

const (
	breakerStates = 3
	mostBreakers  = 4096
	keptEvents    = 1000
)

func (m *model) instant() breaker.Instant { return breaker.Instant(m.filled * 1000) }

// jitter is that of the scripts.
func modelJitter(now int64) float64 { return float64(now%1000003*104729%1000003) / 1000003 }

func (m *model) newBreaker(downstream string, config breaker.Config) *modelBreaker {
	f, err := breaker.NewFleetAt(m.instant(), config)
	if err != nil {
		panic(err) // It was validated.
	}
	period := f.SnapshotAt(m.instant()).Period
	b := &modelBreaker{Fleet: f, period: period, limit: store.Unlimited, ramp: -1, guests: map[string]guest{}}
	m.breakers[downstream] = b
	return b
}

// breakerFits reports whether there may be another breaker. Where there are too many it forgets one that is closed and of which nothing
// is going on, but those that are in use: the one of which nothing was heard for longest.
func (m *model) breakerFits(inUse map[string]*modelBreaker) bool {
	if len(m.breakers) < mostBreakers {
		return true
	}
	var oldest string
	var since breaker.Instant
	for name, b := range m.breakers {
		heard, forgettable := b.HeardAt()
		_, gated := b.Gate()
		idle := forgettable && !gated && b.doubt == 0 && inUse[name] == nil
		if idle && (oldest == "" || heard < since || heard == since && name < oldest) {
			oldest, since = name, heard
		}
	}
	if oldest == "" {
		return false
	}
	delete(m.breakers, oldest)
	m.timers.Remove("b" + oldest)
	return true
}

// saved lets the timer and the gate of a breaker follow it.
func (m *model) saved(c *fairqueue.Pass, downstream string, b *modelBreaker, now int64) {
	s := b.SnapshotAt(m.instant())
	limit, gated := b.Gate()
	if !gated {
		limit = store.Unlimited
	}
	if s.Period != b.period || s.Ramp != b.ramp || s.Doubt != b.doubt {
		m.armBreaker(downstream, b, now)
	}
	if s.Period != b.period || limit != b.limit {
		m.followGate(c, downstream, s.Period, b.period, limit)
	}
	b.period, b.limit, b.ramp, b.doubt = s.Period, limit, s.Ramp, s.Doubt
}

func (m *model) followGate(c *fairqueue.Pass, downstream string, period, was uint64, limit int) {
	name := "b:" + downstream
	switch {
	case limit < 0:
		delete(m.room.Gates, name)
	case period != was:
		m.room.Gates[name] = &fairqueue.Gate{Limit: limit, Period: period}
	default:
		m.room.Gates[name].Limit = limit
	}
	c.Freed(name)
}

// oldestProbe returns when the oldest probe in flight began, by the breakers' clock.
func (m *model) oldestProbe(downstream string, period uint64) (oldest breaker.Instant, ok bool) {
	for _, j := range m.probes[downstream] {
		began := breaker.Instant(j.began * 1000)
		if j.entry.Period == period && (!ok || began < oldest) {
			oldest, ok = began, true
		}
	}
	if b := m.breakers[downstream]; b != nil {
		for _, g := range b.guests {
			began := breaker.Instant(g.began * 1000)
			if g.period == period && (!ok || began < oldest) {
				oldest, ok = began, true
			}
		}
	}
	return oldest, ok
}

// tell adds a transition to the events.
func (m *model) tell(downstream string, b *modelBreaker, change breaker.Transition, now int64) {
	if !change.Happened() {
		return
	}
	s := b.SnapshotAt(m.instant())
	b.ways[int(change.From)*breakerStates+int(change.To)]++
	e := store.BreakerEvent{
		ID: m.newToken(now), Downstream: downstream, From: change.From, To: change.To, Period: s.Period, Cause: change.Cause.String(), At: time.UnixMicro(now), For: -1,
	}
	switch change.Cause { //nolint:exhaustive // the others have neither
	case breaker.CauseForced, breaker.CauseReset:
		e.Reason = s.Reason
	case breaker.CauseFailureRate, breaker.CauseFailureStreak, breaker.CauseSlowCallRate:
		e.Workers, e.Callers = change.Voters, change.Callers
	}
	if change.Until != 0 {
		e.Until = time.UnixMicro(now + change.Until.Sub(m.instant()).Microseconds())
		e.For = max(0, e.Until.Sub(e.At))
	}
	if len(m.events) >= keptEvents {
		gone := len(m.events) - keptEvents + 1
		m.events, m.eventsGone = slices.Delete(m.events, 0, gone), m.eventsGone+int64(gone)
	}
	m.events = append(m.events, e)
	m.happened[eventsTopic] = true
}

func (m *model) armBreaker(downstream string, b *modelBreaker, now int64) {
	timer := "b" + downstream
	m.timers.Remove(timer)
	s := b.SnapshotAt(m.instant())
	oldest, ok := m.oldestProbe(downstream, s.Period)
	if !ok {
		oldest = m.instant() // The timer looks again after the time of a probe.
	}
	at, ok := b.NextChangeAt(oldest, s.State == breaker.HalfOpen)
	if !ok {
		var heard breaker.Instant
		heard, ok = b.HeardAt()
		at = heard.Add(m.quiet)
	}
	if ok {
		m.arm(timer, now+at.Sub(m.instant()).Microseconds())
	}
}

func (m *model) breakerDue(c *fairqueue.Pass, downstream string, now int64) {
	b := m.breakers[downstream]
	if b == nil {
		return
	}
	s := b.SnapshotAt(m.instant())
	oldest, probing := m.oldestProbe(downstream, s.Period)
	change := b.AdvanceAt(m.instant(), modelJitter(now), oldest, probing)
	m.tell(downstream, b, change, now)
	heard, forgettable := b.HeardAt()
	_, waits := b.NextChangeAt(0, false)
	if !change.Happened() && forgettable && !waits && (!probing || s.State != breaker.HalfOpen) && m.instant().Sub(heard) >= m.quiet {
		delete(m.breakers, downstream)
		delete(m.room.Gates, "b:"+downstream)
		c.Freed("b:" + downstream)
		return
	}
	m.saved(c, downstream, b, now)
	m.armBreaker(downstream, b, now)
}

// report counts outcomes, and returns the state of each one's breaker after that.
func (m *model) report(now int64, from store.Reporter, reports []store.Outcomes) (words []store.BreakerWord) {
	c := m.begin(now)
	words = make([]store.BreakerWord, len(reports))
	used, differs := make(map[string]*modelBreaker, len(reports)), map[string]bool{}
	for i := range reports {
		o := &reports[i]
		b := m.breakers[o.Downstream]
		if b == nil && m.breakerFits(used) {
			b = m.newBreaker(o.Downstream, o.Config)
		}
		if b == nil {
			continue
		}
		used[o.Downstream] = b
		m.reported(b, from, o, now)
		words[i].Aside = b.Alone()
		differs[o.Downstream] = differs[o.Downstream] || b.Differs()
	}
	follow := false
	for i := range reports {
		name := reports[i].Downstream
		if b := used[name]; b != nil {
			if b.push > 0 {
				follow = m.pushed(c, name, b) || follow
			}
			limit, period := b.limit, b.period
			m.saved(c, name, b, now)
			follow = follow || limit != b.limit || period != b.period
			aside := words[i].Aside
			words[i] = m.word(b)
			words[i].Aside, words[i].Differs = aside, differs[name]
		} else {
			words[i] = store.BreakerWord{For: -1, Full: true}
		}
		words[i].Policy = m.version
	}
	if m.more = false; follow {
		c.WakeFreed()
		m.fill(c, now)
	}
	return words
}

// pushed brings it into force that a receiver pushes back, where the policy lets its dispatch move and nothing stronger holds.
func (m *model) pushed(c *fairqueue.Pass, downstream string, b *modelBreaker) bool {
	push, hold := b.push, max(b.pushFor, store.PushLeast)
	b.push, b.pushFor = 0, 0
	name := string(store.DownstreamRateGate(downstream))
	a := m.adaptive[name]
	if a == nil || m.room.Gates[name] == nil || push < a.Push {
		return false
	}
	was := a.Push
	a.Push = push
	if until := time.UnixMicro(m.filled).Add(hold); until.After(a.Eased) {
		a.Eased = until
	}
	if push == was {
		return false
	}
	m.setRate(name, a.inForce(), true)
	c.Freed(name)
	return true
}

// reported counts one report.
func (m *model) reported(b *modelBreaker, from store.Reporter, o *store.Outcomes, now int64) {
	r := o.Report
	r.Worker, r.Alone = from.Name, !from.Guest && len(m.workers) <= 1
	change := b.ReportAt(m.instant(), modelJitter(now), o.Config, r)
	m.tell(o.Downstream, b, change, now)
	if !b.Counted() {
		return
	}
	b.calls += int64(r.Successes + r.Failures)
	b.failures += int64(r.Failures)
	b.refused += int64(o.Refused)
	if o.Push > admission.PressureNone {
		b.push, b.pushFor = max(b.push, o.Push), max(b.pushFor, o.PushFor.Truncate(time.Microsecond))
	}
	b.ran += max(o.Ran, 0).Truncate(time.Microsecond)
	if r.Failures > 0 {
		b.failedAt = m.filled
	}
	if len(o.Errors) > 0 {
		b.errors = store.MergeCallErrors(callErrors(o.Errors, now), b.errors)
	}
	if b.Differs() {
		config := o.Config
		config.SlowCallDuration, config.Rand = 0, nil
		b.differs = &store.BreakerDiffers{Worker: from.Name, At: time.UnixMicro(now), Config: config}
	}
}

// callErrors is what is kept of errors in a report.
func callErrors(reported []store.CallError, now int64) []store.CallError {
	all := slices.Clone(reported[:min(len(reported), store.MaxCallErrors)])
	for i := range all {
		all[i] = store.CallError{Text: store.ErrorText(all[i].Text), Count: max(all[i].Count, 1), At: time.UnixMicro(now)}
	}
	return all
}

// word is the present state of a breaker.
func (m *model) word(b *modelBreaker) store.BreakerWord {
	s := b.SnapshotAt(m.instant())
	word := store.BreakerWord{State: s.State, Period: s.Period, For: -time.Microsecond, Forced: s.Forced && s.State == breaker.Closed}
	if until := max(s.Until, s.Doubt); until > 0 {
		word.For = max(0, until.Sub(m.instant()))
	}
	return word
}

// force lets an operator choose the state of a breaker.
func (m *model) force(now int64, downstream, to string, length time.Duration, by store.Intervention) error {
	switch {
	case m.breakers[downstream] != nil:
	case to == store.AuditReset:
		return fmt.Errorf("reset breaker of %s: %w", downstream, store.ErrNoBreaker)
	case !m.breakerFits(nil):
		return fmt.Errorf("force breaker of %s: too many downstreams have one", downstream)
	}
	c := m.begin(now)
	b := m.breakers[downstream]
	if b == nil {
		b = m.newBreaker(downstream, breaker.Config{})
	}
	length = length.Truncate(time.Microsecond)
	var change breaker.Transition
	switch to {
	case store.AuditOpen:
		change = b.ForceOpenAt(m.instant(), length, by.Reason)
	case store.AuditClosed:
		change = b.ForceClosedAt(m.instant(), length, by.Reason)
	default:
		change = b.ResetAt(m.instant(), by.Reason)
	}
	m.tell(downstream, b, change, now)
	m.saved(c, downstream, b, now)
	m.auditAdd(now, store.AuditEntry{Action: to, Downstream: downstream, For: length, Author: by.Author, Reason: by.Reason})
	c.WakeFreed()
	m.fill(c, now)
	return nil
}

// probe does something about the probes of a downstream that are no jobs, after what is due by time alone, and returns the breaker's
// state.
func (m *model) probe(now int64, downstream string, do func(c *fairqueue.Pass, b *modelBreaker)) store.BreakerWord {
	c := m.begin(now)
	m.breakerDue(c, downstream, now)
	b := m.breakers[downstream]
	if b != nil {
		do(c, b)
	}
	c.WakeFreed()
	m.fill(c, now)
	if b == nil {
		return store.BreakerWord{For: -time.Microsecond}
	}
	return m.word(b)
}

// beginProbe reports whether a call is a probe now, or was one already.
func (m *model) beginProbe(downstream, call string, b *modelBreaker) bool {
	known, was := b.guests[call]
	maps.DeleteFunc(b.guests, func(_ string, g guest) bool { return g.period != b.period })
	if was {
		return known.period == b.period
	}
	g := m.room.Gates["b:"+downstream]
	if b.SnapshotAt(m.instant()).State != breaker.HalfOpen || g.Held >= g.Limit {
		return false
	}
	g.Held++
	b.guests[call] = guest{b.period, m.filled}
	return true
}

// endProbe gives back the unit of a call, if its period lasts.
func (m *model) endProbe(c *fairqueue.Pass, downstream, call string, b *modelBreaker) {
	g, ok := b.guests[call]
	delete(b.guests, call)
	gate := m.room.Gates["b:"+downstream]
	if !ok || g.period != b.period || gate == nil {
		return
	}
	gate.Held = max(0, gate.Held-1)
	c.Freed("b:" + downstream)
}
