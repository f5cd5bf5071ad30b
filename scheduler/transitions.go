package scheduler

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/callback"
	"github.com/headgate/headgate/store"
)

// Transition is one change of the circuit breaker that a downstream has for the whole fleet.
type Transition = store.BreakerEvent

// RetryError is an answer of OnBreaker that says when the transition is to be told again.
type RetryError struct {
	// After is how long to wait, 1 h at most; less than the usual pause is not heard.
	After time.Duration
	// Err is why; it may be nil.
	Err error
}

// Error returns the text of Err, if there is one.
func (e *RetryError) Error() string {
	if e.Err == nil {
		return "tell it again after " + e.After.String()
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *RetryError) Unwrap() error { return e.Err }

// Stats counts what a Scheduler has done since it was made.
type Stats struct {
	// TransitionsTold counts transitions of which OnBreaker took note, TransitionsRefused its errors,
	// TransitionsGivenUp transitions that are not told any more though it never took note of them.
	TransitionsTold, TransitionsRefused, TransitionsGivenUp uint64
}

// Stats returns the counters as they are now.
func (s *Scheduler) Stats() Stats {
	return Stats{TransitionsTold: s.told.Load(), TransitionsRefused: s.refused.Load(), TransitionsGivenUp: s.givenUp.Load()}
}

// The transitions stand in a stream. The follower tells what comes and keeps in Redis the place up to which all were told:
// the last that it has read, or the one before the first that is to be told again.
const (
	breakerFollower = "on_breaker"
	// longestWish is the longest pause that a *RetryError can ask for.
	longestWish = time.Hour
	// maxRefused is how many transitions wait to be told again. The oldest gives way.
	maxRefused = 1000
)

// hearing is what a follower of transitions knows. Only its goroutine uses it. The zero hearing has not begun.
type hearing struct {
	// position is after the last transition that was read; empty before it began.
	position string
	// refused are to be told again, in their order.
	refused []*refusal
	// noted is the place that stands in Redis.
	noted string
}

// refusal is a transition of which OnBreaker has not taken note.
type refusal struct {
	Transition

	// before is the position before it.
	before string
	// first is when it was refused first.
	first time.Time
	retelling
}

// followBreakers tells OnBreaker about transitions until ctx ends.
func (s *Scheduler) followBreakers(ctx context.Context) {
	trouble := s.trouble("follow breakers")
	defer trouble.Leave()
	events := s.part.NewEventReader()
	defer events.Close()
	var h hearing
	for ctx.Err() == nil {
		if !s.holds() {
			h = hearing{}
			sleep(ctx, followEvery)
			continue
		}
		if err := s.hear(ctx, events, &h); err != nil {
			trouble.Failed(ctx, err)
			continue
		}
		trouble.Over()
	}
}

// hear waits for transitions, tells them, then tells one again if it is time, and notes the place.
func (s *Scheduler) hear(ctx context.Context, events store.EventReader, h *hearing) error {
	if h.position == "" {
		if err := s.beginHearing(ctx, h); err != nil {
			return err
		}
		if err := s.noteHeard(ctx, h); err != nil { // Whoever comes next begins here, not where it comes.
			return err
		}
	}
	fresh, behind, err := events.Read(ctx, h.position, h.wait(time.Now()))
	if err != nil && behind != "" {
		h.position = behind // One that cannot be read is told by nobody, and keeps none behind it.
	}
	for i := range fresh {
		if !s.mayTell(ctx) {
			break // The rest is not read, so it is another's.
		}
		s.tellTransition(ctx, h, &refusal{Transition: fresh[i], before: h.position})
		h.position = fresh[i].ID
	}
	if due := h.due(time.Now()); due != nil && s.mayTell(ctx) {
		s.tellTransition(ctx, h, due)
	}
	return errors.Join(err, s.noteHeard(ctx, h))
}

// beginHearing finds the place that an earlier follower has left. The first ever begins with what comes next.
func (s *Scheduler) beginHearing(ctx context.Context, h *hearing) error {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	place, err := s.part.EventsFollowed(bounded, breakerFollower)
	h.noted = place
	if err == nil && place == "" {
		_, place, err = s.part.BreakerEvents(bounded, "", 0)
	}
	h.position = place
	return err
}

// noteHeard writes the place to Redis if it has changed; also at the end of ctx.
func (s *Scheduler) noteHeard(ctx context.Context, h *hearing) error {
	place := h.position
	if len(h.refused) > 0 {
		place = h.refused[0].before
	}
	if place == h.noted {
		return nil
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout) // What was told is noted, even at the end.
	defer cancel()
	err := s.part.NoteEventsFollowed(bounded, breakerFollower, place)
	if err == nil {
		h.noted = place
	}
	return err
}

// tellTransition tells one transition, and keeps it for another time if that is refused.
func (s *Scheduler) tellTransition(ctx context.Context, h *hearing, r *refusal) {
	err := callback.Try(func() error { return s.config.OnBreaker(ctx, r.Transition) })
	if err == nil {
		s.told.Add(1)
		h.forget(r)
		return
	}
	if !slices.Contains(h.refused, r) {
		h.refused = append(h.refused, r)
	}
	if ctx.Err() != nil {
		return // It is the next follower's.
	}
	s.refused.Add(1)
	if !r.again(time.Now(), err, s.config.OnBreakerRetry) {
		s.giveUp(h, r, err)
		return
	}
	s.config.Logger.Warn().Err(err).Str("downstream", r.Downstream).Stringer("to", r.To).Time("again", r.at).
		Msg("transition of a circuit breaker not taken note of, telling it again")
	if len(h.refused) > maxRefused {
		s.giveUp(h, h.refused[0], err)
	}
}

// again says when it is told again; false if that would be too late.
func (r *refusal) again(now time.Time, err error, most time.Duration) bool {
	if r.first.IsZero() {
		r.first, r.pause = now, followEvery/2
	}
	r.pause = min(2*r.pause, longestRetell)
	r.at = now.Add(r.pause)
	if wish, ok := errors.AsType[*RetryError](err); ok {
		r.at = now.Add(max(r.pause, min(wish.After, longestWish)))
	}
	return r.at.Sub(r.first) <= most
}

// giveUp counts a transition that nobody took note of.
func (s *Scheduler) giveUp(h *hearing, r *refusal, err error) {
	h.forget(r)
	s.givenUp.Add(1)
	s.config.Logger.Error().Err(err).Str("downstream", r.Downstream).Stringer("to", r.To).Str("id", r.ID).
		Msg("transition of a circuit breaker not taken note of, given up")
}

// wait is how long the follower may wait for the next transition; negative for not at all.
func (h *hearing) wait(now time.Time) time.Duration {
	wait := blockTime
	for _, r := range h.refused {
		wait = min(wait, r.at.Sub(now))
	}
	if wait < time.Millisecond {
		return -1 // A wait of no millisecond would have no end.
	}
	return wait
}

// due returns the transition that has waited longest to be told again, nil for none.
func (h *hearing) due(now time.Time) (due *refusal) {
	for _, r := range h.refused {
		if !now.Before(r.at) && (due == nil || r.at.Before(due.at)) {
			due = r
		}
	}
	return due
}

// forget drops a transition that is not to be told again.
func (h *hearing) forget(r *refusal) {
	h.refused = slices.DeleteFunc(h.refused, func(other *refusal) bool { return other == r })
}
