package worker

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// follow hears of the transitions of the fleet's breakers until ctx ends, also of downstreams that this worker has never
// called. After a failure it reads the breakers anew, since it may have missed some.
func (b *breakers) follow(ctx context.Context) {
	trouble := b.watch.Trouble("follow breakers", firstPause, lastPause)
	defer trouble.Leave()
	events := b.store.NewEventReader()
	defer events.Close()
	position := ""
	for ctx.Err() == nil {
		next, err := b.followOnce(ctx, events, position)
		if err != nil {
			position = ""
			trouble.Failed(ctx, err)
			continue
		}
		trouble.Over()
		position = next
	}
}

// followOnce reads the breakers if there is no position yet, and else waits for transitions.
func (b *breakers) followOnce(ctx context.Context, reader store.EventReader, position string) (next string, err error) {
	events, next, err := reader.Read(ctx, position, blockTime)
	if err != nil {
		return "", err
	}
	if position == "" {
		return next, b.learn(ctx)
	}
	for i := range events {
		b.heard(&events[i])
	}
	return next, nil
}

// learn reads the state of every breaker.
func (b *breakers) learn(ctx context.Context) error {
	states, err := b.store.Breakers(ctx)
	if err != nil {
		return err
	}
	known := make(map[string]bool, len(states))
	for i := range states {
		known[states[i].Downstream] = true
		b.learned(&states[i])
	}
	for _, g := range b.all() {
		if !known[g.name] {
			g.forget()
		}
	}
	return nil
}

// ask reads the state of one breaker.
func (b *breakers) ask(ctx context.Context, g *guard) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	state, err := b.store.Breaker(ctx, g.name)
	switch {
	case err == nil:
		b.learned(&state)
	case errors.Is(err, store.ErrNoBreaker):
		g.forget()
	case ctx.Err() == nil:
		b.logger.Warn().Err(err).Str("downstream", g.name).Msg("circuit breaker not read: its job is handed back")
	}
}

func (b *breakers) learned(s *store.BreakerState) {
	view := fleetView{state: s.State, period: s.Period, forced: s.Forced}
	if g := b.guardOf(s.Downstream); g != nil {
		b.setRest(&view, g, s.For)
		b.hear(g, view)
	}
}

// heard takes note of a transition.
func (b *breakers) heard(e *store.BreakerEvent) {
	g := b.guardOf(e.Downstream)
	if g == nil {
		return
	}
	level := zerolog.InfoLevel
	if e.To == breaker.Open {
		level = zerolog.WarnLevel
	}
	b.logger.WithLevel(level).Str("downstream", e.Downstream).Stringer("from", e.From).Stringer("to", e.To).Str("cause", e.Cause).
		Str("reason", e.Reason).Int("workers", e.Workers).Msg("circuit breaker changed")
	view := fleetView{state: e.To, period: e.Period, forced: e.Cause == breaker.CauseForced.String()}
	b.setRest(&view, g, e.For)
	b.hear(g, view)
}

// viewOf is what the answer to a report says, which never counts a state as forced that is open.
func (b *breakers) viewOf(word store.BreakerWord) fleetView {
	view := fleetView{state: word.State, period: word.Period, forced: word.Forced}
	if word.For >= 0 {
		view.until = b.instant().Add(word.For)
	}
	return view
}

// setRest notes for how long a state lasts, negative for nobody knows. Redis says it as a duration: its clock need not be this
// machine's. Of itself none lasts longer than OpenMax, whatever was read.
func (b *breakers) setRest(view *fleetView, g *guard, rest time.Duration) {
	if !view.forced {
		rest = min(rest, g.local().Config().OpenMax)
	}
	if rest >= 0 {
		view.until = b.instant().Add(rest)
	}
}

// hear takes a word on the fleet's breaker. Whatever it is, this worker no longer stands alone with an older judgement.
func (b *breakers) hear(g *guard, view fleetView) {
	if !g.hear(b.instant(), view) {
		return
	}
	if g.local().State() == breaker.Closed {
		b.lonely(g, false)
	}
	if b.changed != nil {
		b.changed(g.name)
	}
}
