package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/rs/zerolog"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// Follow hears of the transitions of the fleet's breakers until ctx ends, also of downstreams that this worker has never
// called. After a failure it reads the breakers anew, since it may have missed some.
func (b *Breakers) Follow(ctx context.Context) {
	trouble := b.Watch.Trouble("follow breakers", FirstPause, LastPause)
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
func (b *Breakers) followOnce(ctx context.Context, reader store.EventReader, position string) (next string, err error) {
	events, next, err := reader.Read(ctx, position, followBlock)
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
func (b *Breakers) learn(ctx context.Context) error {
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
		if !known[g.Name] {
			g.Forget()
		}
	}
	b.knows.Store(true)
	return nil
}

// Learned reports whether every breaker was read at least once.
func (b *Breakers) Learned() bool { return b.knows.Load() }

// Ask reads the state of one breaker.
func (b *Breakers) Ask(ctx context.Context, g *Guard) {
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	state, err := b.store.Breaker(ctx, g.Name)
	switch {
	case err == nil:
		b.learned(&state)
	case errors.Is(err, store.ErrNoBreaker):
		g.Forget()
	case ctx.Err() == nil:
		b.logger.Warn().Err(err).Str("downstream", g.Name).Msg("circuit breaker not read: its job is handed back")
	}
}

func (b *Breakers) learned(s *store.BreakerState) {
	view := View{State: s.State, Period: s.Period, forced: s.Forced}
	if g := b.GuardOf(s.Downstream); g != nil {
		b.setRest(&view, g, s.For)
		b.Hear(g, view)
	}
}

// heard takes note of a transition.
func (b *Breakers) heard(e *store.BreakerEvent) {
	g := b.GuardOf(e.Downstream)
	if g == nil {
		return
	}
	level := zerolog.InfoLevel
	if e.To == breaker.Open {
		level = zerolog.WarnLevel
	}
	b.logger.WithLevel(level).Str("downstream", e.Downstream).Stringer("from", e.From).Stringer("to", e.To).Str("cause", e.Cause).
		Str("reason", e.Reason).Int("workers", e.Workers).Msg("circuit breaker changed")
	view := View{State: e.To, Period: e.Period, forced: e.Cause == breaker.CauseForced.String()}
	b.setRest(&view, g, e.For)
	b.Hear(g, view)
}

// ViewOf is what the answer to a report says, which never counts a state as forced that is open.
func (b *Breakers) ViewOf(word store.BreakerWord) View {
	view := View{State: word.State, Period: word.Period, forced: word.Forced}
	if word.For >= 0 {
		view.Until = b.Instant().Add(word.For)
	}
	return view
}

// setRest notes for how long a state lasts, negative for nobody knows. Redis says it as a duration: its clock need not be this
// machine's. Of itself none lasts longer than OpenMax, whatever was read.
func (b *Breakers) setRest(view *View, g *Guard, rest time.Duration) {
	if !view.forced {
		rest = min(rest, g.Local().Config().OpenMax)
	}
	if rest >= 0 {
		view.Until = b.Instant().Add(rest)
	}
}

// Hear takes a word on the fleet's breaker. Whatever it is, this worker no longer stands alone with an older judgement.
func (b *Breakers) Hear(g *Guard, view View) {
	if !g.hear(b.Instant(), view) {
		return
	}
	if g.Local().State() == breaker.Closed {
		b.lonely(g, false)
	}
	if b.Changed != nil {
		b.Changed(g.Name)
	}
}

// The pauses between two tries of a call while Redis is away.
const (
	FirstPause = 20 * time.Millisecond
	LastPause  = time.Second
)

// followBlock is how long a read of transitions waits.
const followBlock = time.Second
