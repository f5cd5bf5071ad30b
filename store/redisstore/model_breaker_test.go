package redisstore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/breakers"
)

// modelBreaker is a fleet's breaker, and what its gate and its timer were told last.
type modelBreaker struct {
	*breaker.Fleet
	period      uint64
	limit, ramp int
	doubt       breaker.Instant
}

func (m *model) instant() breaker.Instant { return breaker.Instant(m.filled * 1000) }

// jitter is that of the scripts.
func modelJitter(now int64) float64 { return float64(now%1000003*104729%1000003) / 1000003 }

// breakerOf returns the breaker of a downstream, a new one if there is none.
func (m *model) breakerOf(downstream string, config breaker.Config) *modelBreaker {
	b := m.breakers[downstream]
	if b == nil {
		f, err := breaker.NewFleetAt(m.instant(), config)
		if err != nil {
			panic(err)
		}
		b = &modelBreaker{Fleet: f, period: f.SnapshotAt(m.instant()).Period, limit: store.Unlimited, ramp: -1}
		m.breakers[downstream] = b
	}
	return b
}

// saved lets the timer and the gate of a breaker follow it.
func (m *model) saved(c *fairqueue.Pass, downstream string, b *modelBreaker, now int64) {
	s := b.SnapshotAt(m.instant())
	limit, gated := b.Gate()
	if !gated {
		limit = store.Unlimited
	}
	if s.Period != b.period || s.Ramp != b.ramp || s.Doubt != b.doubt {
		m.arm(downstream, b, now)
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
	for _, p := range m.room.Pools {
		for _, e := range p.Ready {
			began := breaker.Instant(m.began[e] * 1000)
			if e.Job.Downstream == downstream && e.Period == period && (!ok || began < oldest) {
				oldest, ok = began, true
			}
		}
	}
	return oldest, ok
}

// tell keeps a transition for the comparison with the stream of events.
func (m *model) tell(downstream string, b *modelBreaker, change breaker.Transition, now int64) {
	if !change.Happened() {
		return
	}
	s := b.SnapshotAt(m.instant())
	e := store.BreakerEvent{
		Downstream: downstream, From: change.From, To: change.To, Period: s.Period, Cause: change.Cause.String(), At: time.UnixMicro(now), For: -1,
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
	m.events = append(m.events, e)
}

func (m *model) arm(downstream string, b *modelBreaker, now int64) {
	timer := "b" + downstream
	delete(m.timers, timer)
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
		m.timers[timer] = now + at.Sub(m.instant()).Microseconds()
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
	m.arm(downstream, b, now)
}

// report counts outcomes and returns the words of the script.
func (m *model) report(now int64, from store.Reporter, reports []store.Outcomes) (words []string, dispatched []fairqueue.Dispatch) {
	c := m.begin(now)
	aside := make([][]uint16, len(reports))
	for i := range reports {
		r := reports[i].Report
		r.Worker, r.Alone = from.Name, !from.Guest && len(m.workers) <= 1
		b := m.breakerOf(reports[i].Downstream, reports[i].Config)
		change := b.ReportAt(m.instant(), modelJitter(now), reports[i].Config, r)
		m.tell(reports[i].Downstream, b, change, now)
		aside[i] = b.Alone()
	}
	follow := false
	for i := range reports {
		b := m.breakers[reports[i].Downstream]
		limit, period := b.limit, b.period
		m.saved(c, reports[i].Downstream, b, now)
		follow = follow || limit != b.limit || period != b.period
		s := b.SnapshotAt(m.instant())
		length := -time.Microsecond
		if until := max(s.Until, s.Doubt); until > 0 {
			length = max(0, until.Sub(m.instant()))
		}
		words = append(words, fmt.Sprintf("%s %d for %s aside %v", s.State, s.Period, length, aside[i]))
	}
	if !follow {
		m.more = false
		return words, nil
	}
	c.WakeFreed()
	return words, m.fill(c, now)
}

func (m *model) force(now int64, downstream, to string, length time.Duration, reason string, config breaker.Config) []fairqueue.Dispatch {
	if to == "reset" && m.breakers[downstream] == nil {
		return nil
	}
	c := m.begin(now)
	b := m.breakerOf(downstream, config)
	var change breaker.Transition
	switch to {
	case "open":
		change = b.ForceOpenAt(m.instant(), length, reason)
	case "closed":
		change = b.ForceClosedAt(m.instant(), length, reason)
	default:
		change = b.ResetAt(m.instant(), reason)
	}
	m.tell(downstream, b, change, now)
	m.saved(c, downstream, b, now)
	c.WakeFreed()
	return m.fill(c, now)
}

// noteBegun keeps when the jobs under a breaker's gate were dispatched.
func (m *model) noteBegun() {
	for _, p := range m.room.Pools {
		for _, e := range p.Ready {
			if _, ok := m.began[e]; e.Period != 0 && !ok {
				m.began[e] = m.filled
			}
		}
	}
}

func (m *model) dumpBreakers(add func(string, ...any)) {
	for _, e := range m.events {
		add("event %+v", e)
	}
	for downstream, b := range m.breakers {
		s := b.SnapshotAt(m.instant())
		ahead := m.filled - m.last
		until := int64(0)
		if s.Ends {
			until = int64(s.Until)/1000 - ahead
		}
		limit, gated := b.Gate()
		if !gated {
			limit = store.Unlimited
		}
		add("breaker %s %s for %s since %d period %d until %d forced %t %q window %v streak %d callers %d voters %d tenants %d of %d passed %d slow %d ramp %d limit %d trips %d in a row %d",
			downstream, s.State, s.Cause, int64(s.Since)/1000-ahead, s.Period, until, s.Forced, s.Reason, s.Window, s.FailureStreak,
			s.Callers, s.Voters, s.FailingTenants, s.Tenants, s.ProbesPassed, s.SlowProbes, s.Ramp, limit, s.Trips, s.TripsInRow)
	}
	for _, p := range m.room.Pools {
		for _, e := range p.Ready {
			if e.Period != 0 {
				add("mark %s began %d|%s", e.Job.Key(), m.began[e], e.Job.Downstream)
			}
		}
	}
}

// breakers writes what Redis holds of breakers in the same words.
func (d *redisDump) breakers(ctx context.Context) {
	clock, now := int64(number(d.tb, "0"+d.state["bt"])), int64(number(d.tb, "0"+d.state["t"]))
	events, _, err := d.store.BreakerEvents(ctx, "0-0", -1)
	check(d.tb, err)
	for _, e := range events {
		e.ID = ""
		d.add("event %+v", e)
	}
	known := 0
	for name := range d.keys {
		downstream, ok := strings.CutPrefix(name, "br:")
		if !ok {
			continue
		}
		known++
		b, err := breakers.ParseBreaker(downstream, d.hash(name), clock, clock-now)
		check(d.tb, err)
		until := int64(0)
		if !b.Until.IsZero() {
			until = b.Until.UnixMicro()
		}
		d.add("breaker %s %s for %s since %d period %d until %d forced %t %q window %v streak %d callers %d voters %d tenants %d of %d passed %d slow %d ramp %d limit %d trips %d in a row %d",
			downstream, b.State, b.Cause, b.Since.UnixMicro(), b.Period, until, b.Forced, b.Reason, b.Window, b.FailureStreak,
			len(b.Callers), len(b.Voters), b.FailingTenants, b.Tenants, b.ProbesPassed, b.SlowProbes, b.Ramp, b.Limit, b.Trips, b.TripsInRow)
	}
	if set := d.set("breakers"); len(set) != known {
		d.add("BROKEN breakers %v of %d", set, known)
	}
}
