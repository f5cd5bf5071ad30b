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

// trips halves a limit whose breaker has opened, and reports whether it did.
func (s *Scheduler) trips(ctx context.Context, l *loop, seen store.Adaptation, version int64) (did bool, err error) {
	opened, err := l.tripped.watch(ctx, s.store, l.DependsOn, time.Now())
	if err != nil || !opened || seen.Frozen != nil || seen.Override != nil {
		return false, err
	}
	half := seen.Clamp(seen.Limit / 2)
	if half == seen.Limit {
		return false, nil
	}
	return true, s.put(ctx, l, control.Step{Limit: half, Before: seen.Limit, Cause: control.CauseTripped}, seen, version, 0)
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

// movePart makes a step of how much queues are pressed.
func (s *Scheduler) movePart(ctx context.Context, l *loop, seen store.Adaptation, gauges []*gauge, version int64) error {
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
	return s.put(ctx, l, l.part.Tick(seen.Limit, scoreOf(&l.Moving, gauges), now.Sub(last)), seen, version, 0)
}

// cut puts in force what triggers leave of a limit, and what was before when none acts on it any more: of one that nothing else moves what the policy
// says. Its own controller begins anew then.
func (s *Scheduler) cut(ctx context.Context, l *loop, seen store.Adaptation, cut control.Cut, cutting bool, version int64) error {
	l.last, l.control, l.part = store.Adaptation{}, nil, nil
	switch {
	case seen.Push > 0:
		return s.nudge(ctx, version, seen, seen.Limit, string(control.CausePushback))
	case seen.Override != nil:
		return s.nudge(ctx, version, seen, seen.Override.Back, store.CauseOverrideOver)
	case seen.Frozen != nil:
		return nil
	}
	l.uncut = cmp.Or(l.uncut, seen.Limit)
	if l.Driven {
		l.uncut = seen.Own
	}
	step, life := control.Step{Limit: seen.Clamp(l.uncut), Before: seen.Limit, Cause: control.CauseCleared}, time.Duration(0)
	if cutting {
		step.Limit, step.Cause = min(step.Limit, cut.Of(seen.Least, seen.Own)), control.CauseTrigger+control.Cause(cut.Name)
		if l.Limits {
			life = store.TriggerLife
		}
	}
	err := s.put(ctx, l, step, seen, version, life)
	if err == nil && !cutting {
		l.uncut = 0
	}
	return err
}

// due returns the loops of which it is time to look at something: the limit, or what it depends on.
func due(loops []*loop, now time.Time) bool {
	return slices.ContainsFunc(loops, func(l *loop) bool {
		return !now.Before(l.next) || len(l.DependsOn) > 0 && !now.Before(l.tripped.next)
	})
}

// put brings a step into force, of limits of admission for a life, if there is one.
func (s *Scheduler) put(ctx context.Context, l *loop, step control.Step, seen store.Adaptation, version int64, life time.Duration) error {
	if l.tripped.any() && step.Limit > seen.Limit { // It does not grow meanwhile.
		step.Limit, step.Cause = seen.Limit, control.CauseTripped
	}
	lasts := life == 0 || time.Since(l.renewed) < renewEvery
	if !step.Changed() && string(step.Cause) == seen.Cause && !seen.Uneven && lasts {
		return nil
	}
	l.renewed = time.Now()
	_, err := s.store.Adapt(ctx, store.Adapt{Owner: s.owner, Version: version, Gate: seen.Gate, Limit: step.Limit, Cause: string(step.Cause), Life: life})
	switch {
	case errors.Is(err, store.ErrNotHolder), errors.Is(err, store.ErrStale), errors.Is(err, store.ErrNotAdaptive):
		l.last, l.part = store.Adaptation{}, nil // Somebody else goes on, or by another policy.
		return nil
	case err == nil && step.Changed():
		s.config.Logger.Info().Str("adaptive", l.Name).Int("from", step.Before).Int("to", step.Limit).Str("cause", string(step.Cause)).Msg("limit moved")
	}
	return err
}
