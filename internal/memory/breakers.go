package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/internal/memory/internal/names"
	"github.com/headgate/headgate/store"
)

// ReportOutcomes counts what a worker's calls of downstreams came to, as store.Partition.ReportOutcomes.
func (p *Partition) ReportOutcomes(_ context.Context, from store.Reporter, reports []store.Outcomes) (words []store.BreakerWord, more bool, err error) {
	if len(reports) > store.MaxReports {
		return nil, false, &admission.FieldError{Field: "reports", Value: strconv.Itoa(len(reports)), Allowed: "up to 64 in a call"}
	}
	for i := range reports {
		err = errors.Join(err, admission.FieldErrors(reports[i].Config.Validate()))
	}
	if err != nil {
		return nil, false, fmt.Errorf("report outcomes: %w", err)
	}
	p.write(func(m *model, now int64) {
		words = m.report(now, from, reports)
		more = m.more
	})
	return words, more, nil
}

// BeginProbe asks whether a guest's call may be a probe, as store.Partition.BeginProbe.
func (p *Partition) BeginProbe(_ context.Context, downstream, call string) (probe bool, word store.BreakerWord, more bool, err error) {
	word, more, err = p.probe(downstream, call, func(m *model, _ *fairqueue.Pass, b *modelBreaker) {
		probe = m.beginProbe(downstream, call, b)
	})
	return probe, word, more, err
}

// EndProbe gives the place of a probe free, as store.Partition.EndProbe.
func (p *Partition) EndProbe(_ context.Context, downstream, call string) (word store.BreakerWord, more bool, err error) {
	return p.probe(downstream, call, func(m *model, c *fairqueue.Pass, b *modelBreaker) { m.endProbe(c, downstream, call, b) })
}

func (p *Partition) probe(downstream, call string, do func(*model, *fairqueue.Pass, *modelBreaker)) (word store.BreakerWord, more bool, err error) {
	if err := admission.ValidateName("call", call, false); err != nil {
		return store.BreakerWord{}, false, err
	}
	p.write(func(m *model, now int64) {
		word = m.probe(now, downstream, func(c *fairqueue.Pass, b *modelBreaker) { do(m, c, b) })
		more = m.more
	})
	return word, more, nil
}

// ForceBreaker opens or closes a downstream's breaker, as store.Common.ForceBreaker.
func (p *Partition) ForceBreaker(_ context.Context, downstream string, to breaker.State, duration time.Duration, by store.Intervention) (more bool, err error) {
	bad := []error{admission.ValidateService("downstream", downstream, false), by.Validate()}
	if to != breaker.Open && to != breaker.Closed {
		bad = append(bad, &admission.FieldError{Field: "state", Value: to.String(), Allowed: "open or closed"})
	}
	if duration != 0 && (duration < store.MinForce || duration > store.MaxForce) {
		bad = append(bad, &admission.FieldError{Field: "duration", Value: duration.String(), Allowed: "1ms to 8760h, or 0 until it is reset"})
	}
	if err := errors.Join(bad...); err != nil {
		return false, err
	}
	return p.force(downstream, to.String(), duration, by)
}

// ResetBreaker closes a downstream's breaker and forgets what it has counted, as store.Common.ResetBreaker.
func (p *Partition) ResetBreaker(_ context.Context, downstream string, by store.Intervention) (more bool, err error) {
	if err := errors.Join(admission.ValidateService("downstream", downstream, false), by.Validate()); err != nil {
		return false, err
	}
	return p.force(downstream, store.AuditReset, 0, by)
}

func (p *Partition) force(downstream, to string, duration time.Duration, by store.Intervention) (more bool, err error) {
	p.write(func(m *model, now int64) {
		err = m.force(now, downstream, to, duration, by)
		more = err == nil && m.more
	})
	return more, err
}

// Breaker returns the breaker of a downstream, as store.Common.Breaker.
func (p *Partition) Breaker(_ context.Context, downstream string) (state store.BreakerState, err error) {
	downstream, _ = admission.ServiceOf(downstream)
	err = fmt.Errorf("breaker of %s: %w", downstream, store.ErrNoBreaker)
	p.read(func(m *model, now int64) {
		if b := m.breakers[downstream]; b != nil {
			state, err = m.breakerState(downstream, b, now), nil
		}
	})
	return state, err
}

// Breakers returns every breaker that is known, by downstream.
func (p *Partition) Breakers(context.Context) (all []store.BreakerState, err error) {
	p.read(func(m *model, now int64) {
		for _, downstream := range slices.Sorted(maps.Keys(m.breakers)) {
			all = append(all, m.breakerState(downstream, m.breakers[downstream], now))
		}
	})
	return all, nil
}

// breakerState is a breaker as it stood after the last call.
func (m *model) breakerState(downstream string, b *modelBreaker, now int64) store.BreakerState {
	s := b.SnapshotAt(m.instant())
	config, origin, version := b.Rules()
	ahead := m.filled - m.last // The breakers' clock is ahead by so much.
	at := func(instant breaker.Instant) time.Time { return time.UnixMicro(int64(instant)/1000 - ahead) }
	state := store.BreakerState{
		Downstream: downstream, State: s.State, Period: s.Period, Cause: s.Cause, Since: at(s.Since), For: -1, Forced: s.Forced, Reason: s.Reason,
		Window: s.Window, FailureStreak: s.FailureStreak, Tenants: s.Tenants, FailingTenants: s.FailingTenants,
		ProbesPassed: s.ProbesPassed, SlowProbes: s.SlowProbes, Ramp: s.Ramp, Limit: store.Unlimited, ProbeTimeout: config.ProbeTimeout,
		Trips: s.Trips, TripsInRow: s.TripsInRow, Waiting: int64(m.room.WaitingOn(downstream)),
		Rules: store.BreakerRules{Config: config, Origin: origin, Version: version}, Life: m.breakerLife(b, ahead), Errors: slices.Clone(b.errors),
	}
	state.Callers, state.Voters = b.CallersAt(m.instant())
	if s.Ends {
		state.Until = at(s.Until)
		state.For = max(0, state.Until.Sub(time.UnixMicro(now)))
	}
	if limit, gated := b.Gate(); gated {
		state.Limit = limit
	}
	if d := b.differs; d != nil && time.UnixMicro(m.last).Sub(d.At) <= store.DiffersFor {
		copied := *d
		state.Rules.Differs = &copied
	}
	return state
}

func (m *model) breakerLife(b *modelBreaker, ahead int64) store.BreakerLife {
	life := store.BreakerLife{Calls: b.calls, Failures: b.failures, Ran: b.ran}
	if b.failedAt > 0 {
		life.LastFailure = time.UnixMicro(b.failedAt - ahead)
	}
	for way, n := range b.ways {
		if n > 0 {
			from, to := breaker.State(way/breakerStates), breaker.State(way%breakerStates)
			life.Transitions = append(life.Transitions, store.BreakerTransitions{From: from, To: to, Count: n})
		}
	}
	return life
}

// eventsPortion is how many transitions a call returns.
const eventsPortion = 100

// BreakerEvents waits for transitions of breakers after a position, as store.Partition.BreakerEvents.
func (p *Partition) BreakerEvents(ctx context.Context, after string, wait time.Duration) (events []store.BreakerEvent, position string, err error) {
	if after == "" {
		p.read(func(m *model, _ int64) { position = m.lastEvent() })
		return nil, position, nil
	}
	if !store.IsToken(after) {
		return nil, after, fmt.Errorf("read events: %q is no position", after)
	}
	position = after
	err = p.await(ctx, eventsTopic, wait, func(m *model, _ int64) bool {
		if events = m.eventsAfter(after); len(events) > 0 {
			position = events[len(events)-1].ID
		}
		return len(events) > 0
	})
	if err != nil {
		err = fmt.Errorf("read events: %w", err)
	}
	return events, position, err
}

// lastEvent is the position after all transitions.
func (m *model) lastEvent() string {
	if len(m.events) == 0 {
		return "0-0"
	}
	return m.events[len(m.events)-1].ID
}

func (m *model) eventsAfter(position string) []store.BreakerEvent {
	from := sort.Search(len(m.events), func(i int) bool { return names.After(m.events[i].ID, position) })
	return slices.Clone(m.events[from:min(len(m.events), from+eventsPortion)])
}

// EventsFollowed returns up to which transition a follower has told, as store.Partition.EventsFollowed.
func (p *Partition) EventsFollowed(_ context.Context, follower string) (position string, err error) {
	p.read(func(m *model, _ int64) { position = m.told[follower] })
	return position, nil
}

// NoteEventsFollowed notes that position.
func (p *Partition) NoteEventsFollowed(_ context.Context, follower, position string) error {
	p.write(func(m *model, _ int64) { m.told[follower] = position })
	return nil
}

// TransitionsAfter returns transitions after a position, as store.Partition.TransitionsAfter.
func (p *Partition) TransitionsAfter(_ context.Context, after string, count int) (of store.Stretch[store.BreakerEvent], err error) {
	p.read(func(m *model, _ int64) {
		of = store.Stretch[store.BreakerEvent]{Position: after, Gone: m.eventsGone, Kept: int64(len(m.events))}
		for i := range m.events {
			if e := &m.events[i]; len(of.Entries) < count && (after == "" || names.After(e.ID, after)) {
				of.Entries, of.Position = append(of.Entries, *e), e.ID
			}
		}
	})
	return of, nil
}

// NoteRates keeps a point of the history of queues, as store.Timers.NoteRates.
func (p *Partition) NoteRates(_ context.Context, to store.RateNote) (err error) {
	p.write(func(m *model, now int64) {
		switch {
		case m.promoter != to.Owner:
			err = store.ErrNotHolder
		case !m.watched:
			err = store.ErrNotMeasured
		default:
			m.begin(now)
			m.rates.Note(&to)
		}
	})
	return err
}

// RateHistory returns what was decided of queues in the days that are kept, as store.Buckets.RateHistory.
func (p *Partition) RateHistory(_ context.Context, queues ...string) (h store.RateHistory, err error) {
	p.read(func(m *model, now int64) { h = m.rates.History(time.UnixMicro(now), queues) })
	return h, nil
}

// NoteAnomalies keeps rates that are not usual, as store.Partition.NoteAnomalies.
func (p *Partition) NoteAnomalies(_ context.Context, anomalies []store.Anomaly) (kept int, err error) {
	if len(anomalies) == 0 {
		return 0, nil
	}
	p.write(func(m *model, now int64) {
		m.advance(now)
		kept = m.alarms.Note(anomalies, now, m.over(now), func() string { return m.newToken(now) })
	})
	return kept, nil
}

// AnomaliesAfter returns those after a position, as store.Partition.AnomaliesAfter.
func (p *Partition) AnomaliesAfter(_ context.Context, after string, count int) (of store.Stretch[store.Anomaly], err error) {
	p.read(func(m *model, _ int64) { of = m.alarms.After(after, count, names.After) })
	return of, nil
}

// eventReader is BreakerEvents for one goroutine.
type eventReader struct{ *Partition }

// NewEventReader returns a store.EventReader.
func (p *Partition) NewEventReader() store.EventReader { return eventReader{p} }

// Read is BreakerEvents. When ctx ends meanwhile it returns no events and no error.
func (r eventReader) Read(ctx context.Context, after string, wait time.Duration) (events []store.BreakerEvent, position string, err error) {
	events, position, err = r.BreakerEvents(ctx, after, wait)
	if ctx.Err() != nil {
		err = nil
	}
	return events, position, err
}

// Close implements store.EventReader.
func (eventReader) Close() error { return nil }
