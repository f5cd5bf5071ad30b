package scheduler

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// tripLook is how often the circuit breakers are looked at that limits depend on: a trip is to be heeded within a second.
const tripLook = 400 * time.Millisecond

// tripped is what a loop knows of the circuit breakers that its limit depends on.
type tripped struct {
	// open says which were open at the last look; nil before the first.
	open map[string]bool
	next time.Time
	// owed is to where the limit is to come down since one has opened, until it is seen there; 0 for nothing.
	owed int
}

// watch looks at the breakers, if that is due, and reports whether one has opened since the last look. The first look opens none.
func (t *tripped) watch(ctx context.Context, s store.Deployment, downstreams []string, now time.Time) (opened bool, err error) {
	if len(downstreams) == 0 || now.Before(t.next) {
		return false, nil
	}
	t.next = now.Add(tripLook)
	open := map[string]bool{}
	for _, name := range downstreams {
		b, err := s.Breaker(ctx, name)
		switch {
		case errors.Is(err, store.ErrNoBreaker):
		case err != nil:
			return false, err
		case b.State == breaker.Open:
			open[name] = true
			opened = opened || t.open != nil && !t.open[name]
		}
	}
	t.open = open
	return opened, nil
}

// any reports whether one is open.
func (t *tripped) any() bool { return len(t.open) > 0 }

// trips halves a limit whose breaker has opened, and reports whether it did. Of a word that was lost it tells again, while the breaker is open.
func (s *Scheduler) trips(ctx context.Context, l *loop, seen store.Adaptation, version int64) (did bool, err error) {
	opened, err := l.tripped.watch(ctx, s.store, l.DependsOn, time.Now())
	if err != nil {
		return false, err
	}
	if opened {
		l.tripped.owed = seen.Clamp(seen.Limit / 2)
	}
	if !l.tripped.any() || seen.Limit <= l.tripped.owed || seen.Frozen != nil || seen.Override != nil {
		l.tripped.owed = 0
	}
	if l.tripped.owed == 0 {
		return false, nil
	}
	to := store.Adapt{Back: (seen.Back + 1) / 2}
	if seen.Back > 0 && l.Limits {
		to.Life = store.TriggerLife
	}
	return true, s.put(ctx, l, control.Step{Limit: l.tripped.owed, Before: seen.Limit, Cause: control.CauseTripped}, seen, version, to)
}

// scoreOf is how much the queues of a part are pressed by the last measurement: the one, or of all the one that is most; NaN where nobody knows.
func scoreOf(m *policy.Moving, gauges []*gauge) float64 {
	score := math.NaN()
	for _, g := range gauges {
		if (m.Queue == "" || m.Queue == g.Queue) && !g.blind && g.meter != nil && !(g.score <= score) {
			score = g.score
		}
	}
	return score
}

// movePart makes a step of how much queues are pressed, or of a signal.
func (s *Scheduler) movePart(ctx context.Context, l *loop, seen store.Adaptation, gauges []*gauge, signals *signals, version int64) error {
	last, now := l.looked, time.Now()
	l.looked = now
	if seen.Override != nil { // Redis says whether it is over.
		l.next, l.part = now.Add(min(l.Interval(), time.Second)), nil
		return s.nudge(ctx, version, seen, seen.Override.Back, store.CauseOverrideOver)
	}
	if seen.Frozen != nil {
		l.part = nil
		return nil
	}
	if l.part == nil {
		var err error
		if l.part, err = control.NewPart(l.Part, seen.Limit); err != nil {
			return err
		}
		last = now.Add(-l.Interval())
	}
	score := scoreOf(&l.Moving, gauges)
	if l.Metric() != "" {
		var err error
		if score, err = signals.read(ctx, &l.Moving); err != nil {
			return err
		}
	}
	return s.put(ctx, l, l.part.Tick(seen.Limit, score, now.Sub(last)), seen, version, store.Adapt{})
}

// cut puts in force what triggers leave of a limit, and when none acts on it any more what was before (store.Adaptation.Back): of one that nothing else
// moves what the policy says. Its own controller begins anew then.
func (s *Scheduler) cut(ctx context.Context, l *loop, seen store.Adaptation, cut control.Cut, cutting bool, version int64) error {
	l.last, l.control, l.part = store.Adaptation{}, nil, nil
	l.next = time.Now().Add(min(l.Interval(), renewEvery))
	switch {
	case seen.Push > 0 && (seen.Frozen != nil || seen.Paused): // It eases with a look.
		return s.nudge(ctx, version, seen, seen.Limit, string(control.CausePushback))
	case seen.Override != nil: // Redis says whether it is over.
		l.next = time.Now().Add(min(l.Interval(), time.Second))
		return s.nudge(ctx, version, seen, seen.Override.Back, store.CauseOverrideOver)
	case seen.Frozen != nil && seen.Back > 0 && l.Limits: // It is to stay as it is, also where nobody looks any more.
		return s.put(ctx, l, control.Step{Limit: seen.Limit, Before: seen.Limit, Cause: control.Cause(seen.Cause)}, seen, version, store.Adapt{Back: seen.Back})
	case seen.Frozen != nil || seen.Paused:
		return nil
	}
	back := cmp.Or(seen.Back, seen.Limit)
	if l.Driven {
		back = seen.Own
	}
	step, to := control.Step{Limit: seen.Clamp(back), Before: seen.Limit, Cause: control.CauseCleared}, store.Adapt{}
	if cutting {
		step.Limit, step.Cause = min(step.Limit, cut.Of(seen.Least, seen.Own)), control.CauseTrigger+control.Cause(cut.Name)
		to.Back = back
		if l.Limits {
			to.Life = store.TriggerLife
		}
	}
	if seen.Push > 0 && !step.Changed() {
		return s.nudge(ctx, version, seen, seen.Limit, string(control.CausePushback))
	}
	return s.put(ctx, l, step, seen, version, to)
}

// due returns the loops of which it is time to look at something: the limit, or what it depends on.
func due(loops []*loop, now time.Time) bool {
	return slices.ContainsFunc(loops, func(l *loop) bool {
		return !now.Before(l.next) || len(l.DependsOn) > 0 && !now.Before(l.tripped.next)
	})
}

// tellEvery is how often at most Redis is told that there was too little to change, where that is all there is to tell.
const tellEvery = time.Minute

// put brings a step into force: limits of admission for the life of to, if it has one, and with what it has come back.
func (s *Scheduler) put(ctx context.Context, l *loop, step control.Step, seen store.Adaptation, version int64, to store.Adapt) error {
	if l.tripped.any() && step.Limit > seen.Limit { // It does not grow meanwhile.
		step.Limit, step.Cause, to.Back = seen.Limit, control.CauseTripped, seen.Back
	}
	if step.Cause == control.CauseDeadBand {
		l.deadBand++
	}
	untold := l.deadBand > 0 && time.Since(l.told) >= tellEvery
	lasts := seen.Back == 0 && to.Back == 0 || !l.Limits || time.Since(l.renewed) < renewEvery
	if !step.Changed() && string(step.Cause) == seen.Cause && to.Back == seen.Back && !seen.Uneven && lasts && !untold {
		return nil
	}
	to.Owner, to.Version, to.Gate, to.Limit, to.Cause, to.DeadBand = s.owner, version, seen.Gate, step.Limit, string(step.Cause), l.deadBand
	number, err := s.store.Adapt(ctx, to)
	if number > 0 {
		l.deadBand, l.told = 0, time.Now()
	}
	switch {
	case errors.Is(err, store.ErrNotHolder), errors.Is(err, store.ErrStale), errors.Is(err, store.ErrNotAdaptive):
		l.last, l.part = store.Adaptation{}, nil // Somebody else goes on, or by another policy.
		return nil
	case err == nil:
		l.renewed = time.Now()
		if step.Changed() && number > 0 { // Else somebody has set it otherwise.
			s.config.Logger.Info().Str("adaptive", l.Name).Int("from", step.Before).Int("to", step.Limit).Str("cause", string(step.Cause)).Msg("limit moved")
		}
	}
	return err
}
