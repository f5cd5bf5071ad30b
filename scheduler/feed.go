package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/callback"
	"github.com/headgate/headgate/store"
)

// Anomaly is a rate that is not usual.
type Anomaly = store.Anomaly

// TriggerEvent is a trigger of the policy that begins to act, or acts no more.
type TriggerEvent struct {
	// ID grows with each event.
	ID, Name string
	Active   bool
	// Why says by what it turned.
	Why string
	At  time.Time
}

// feed is what somebody is told in its order, of a stream of the first partition.
type feed[T any] struct {
	// follower names the place up to which it was told, what says what it is of.
	follower, what string
	// follows says whether there may be anything to tell.
	follows func() bool
	read    func(ctx context.Context, after string, count int) (store.Stretch[T], error)
	// event returns the ID of an entry and what to tell of it, nil for nothing; name names it for people.
	event func(entry *T) (id string, tell func(ctx context.Context) error)
	name  func(entry *T) string
}

// feedPage is how many entries are read at a time.
const feedPage = store.MaxAnomalyNotes

func (s *Scheduler) anomalies() *feed[Anomaly] {
	return &feed[Anomaly]{
		follower: "on_anomaly", what: "anomaly", follows: s.adapting.watching.Load, read: s.part.AnomaliesAfter,
		event: func(a *Anomaly) (string, func(context.Context) error) {
			return a.ID, func(ctx context.Context) error { return s.config.OnAnomaly(ctx, *a) }
		},
		name: func(a *Anomaly) string { return a.Kind + " of " + a.Of + " " + a.Name },
	}
}

// triggerEvents are of the audit, which has each begin and end.
func (s *Scheduler) triggerEvents() *feed[store.AuditRecord] {
	return &feed[store.AuditRecord]{
		follower: "on_trigger", what: "trigger", follows: s.adapting.pulling.Load, read: s.part.AuditAfter,
		event: func(r *store.AuditRecord) (string, func(context.Context) error) {
			if r.Action != store.AuditTrigger && r.Action != store.AuditTriggerEnd {
				return r.ID, nil
			}
			e := TriggerEvent{ID: r.ID, Name: r.Name, Active: r.Action == store.AuditTrigger, Why: r.Reason, At: r.At}
			return r.ID, func(ctx context.Context) error { return s.config.OnTrigger(ctx, e) }
		},
		name: func(r *store.AuditRecord) string { return r.Name },
	}
}

// telling is what a follower of a feed knows. Only its goroutine uses it. The zero telling has not begun.
type telling struct {
	// position is after the last entry that was told, or given up; empty before it began.
	position string
	// refused is since when the next one has been refused, zero for not at all.
	refused time.Time
	retelling
}

// followFeed tells a feed until ctx ends, while there may be anything to tell.
func followFeed[T any](ctx context.Context, s *Scheduler, f *feed[T]) {
	trouble := s.trouble("follow " + f.follower)
	defer trouble.Leave()
	var t telling
	for {
		sleep(ctx, followEvery)
		if ctx.Err() != nil {
			return
		}
		if !s.holds() || !f.follows() {
			t = telling{}
			continue
		}
		if err := tellFeed(ctx, s, f, &t); err != nil {
			trouble.Failed(ctx, err)
			continue
		}
		trouble.Over()
	}
}

// tellFeed tells what is new in its order, up to the first that is refused, and notes the place.
func tellFeed[T any](ctx context.Context, s *Scheduler, f *feed[T], t *telling) error {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if t.position == "" {
		if err := beginFeed(bounded, s, f, t); err != nil {
			return err
		}
	}
	if time.Now().Before(t.at) {
		return nil
	}
	fresh, err := f.read(bounded, t.position, feedPage)
	if err != nil {
		return err
	}
	before := t.position
	for i := range fresh.Entries {
		id, tell := f.event(&fresh.Entries[i])
		if !s.mayTell(ctx) || tell != nil && !s.tellOne(ctx, t, f.what, id, f.name(&fresh.Entries[i]), tell) {
			break
		}
		t.position, t.refused, t.retelling = id, time.Time{}, retelling{}
	}
	if t.position == before {
		return nil
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout) // What was told is noted, even at the end.
	defer cancel()
	return s.part.NoteEventsFollowed(end, f.follower, t.position)
}

// beginFeed finds the place that an earlier follower has left. The first ever begins with what comes next.
func beginFeed[T any](ctx context.Context, s *Scheduler, f *feed[T], t *telling) error {
	place, err := s.part.EventsFollowed(ctx, f.follower)
	if err != nil || place != "" {
		t.position = place
		return err
	}
	for {
		page, err := f.read(ctx, place, store.MaxAnomalies)
		if err != nil {
			return err
		}
		if len(page.Entries) == 0 {
			break
		}
		place = page.Position
	}
	if place == "" {
		place = "0-0"
	}
	if err := s.part.NoteEventsFollowed(ctx, f.follower, place); err != nil {
		return err
	}
	t.position = place
	return nil
}

// tellOne tells one entry, and reports whether the next is to follow: it was taken note of, or is given up.
func (s *Scheduler) tellOne(ctx context.Context, t *telling, what, id, name string, tell func(context.Context) error) bool {
	err := callback.Try(func() error { return tell(ctx) })
	if err == nil {
		return true
	}
	if ctx.Err() != nil {
		return false // It is the next follower's.
	}
	now := time.Now()
	if t.refused.IsZero() {
		t.refused, t.pause = now, followEvery/2
	}
	t.pause = min(2*t.pause, longestRetell)
	t.at = now.Add(t.pause)
	if wish, ok := errors.AsType[*RetryError](err); ok {
		t.at = now.Add(max(t.pause, min(wish.After, longestWish)))
	}
	if t.at.Sub(t.refused) > s.config.OnBreakerRetry {
		s.config.Logger.Error().Err(err).Str(what, name).Str("id", id).Msg(what + " not taken note of, given up")
		return true
	}
	s.config.Logger.Warn().Err(err).Str(what, name).Time("again", t.at).Msg(what + " not taken note of, telling it again")
	return false
}
