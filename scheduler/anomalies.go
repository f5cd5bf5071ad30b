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

// anomalyFollower names the place up to which OnAnomaly was told.
const anomalyFollower = "on_anomaly"

// telling is what a follower of anomalies knows. Only its goroutine uses it. The zero telling has not begun.
type telling struct {
	// position is after the last anomaly that was told, or given up; empty before it began.
	position string
	// refused is since when the next one has been refused, zero for not at all.
	refused time.Time
	retelling
}

// followAnomalies tells OnAnomaly about anomalies until ctx ends, while rates are watched.
func (s *Scheduler) followAnomalies(ctx context.Context) {
	trouble := s.trouble("follow anomalies")
	defer trouble.Leave()
	var t telling
	for {
		sleep(ctx, followEvery)
		if ctx.Err() != nil {
			return
		}
		if !s.holds() || !s.adapting.watching.Load() {
			t = telling{}
			continue
		}
		if err := s.tellAnomalies(ctx, &t); err != nil {
			trouble.Failed(ctx, err)
			continue
		}
		trouble.Over()
	}
}

// tellAnomalies tells what is new in its order, up to the first that is refused, and notes the place.
func (s *Scheduler) tellAnomalies(ctx context.Context, t *telling) error {
	bounded, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if t.position == "" {
		if err := s.beginTelling(bounded, t); err != nil {
			return err
		}
	}
	if time.Now().Before(t.at) {
		return nil
	}
	fresh, err := s.part.AnomaliesAfter(bounded, t.position, store.MaxAnomalyNotes)
	if err != nil {
		return err
	}
	before := t.position
	for i := range fresh.Entries {
		if !s.mayTell(ctx) || !s.tellAnomaly(ctx, t, &fresh.Entries[i]) {
			break
		}
		t.position, t.refused, t.retelling = fresh.Entries[i].ID, time.Time{}, retelling{}
	}
	if t.position == before {
		return nil
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout) // What was told is noted, even at the end.
	defer cancel()
	return s.part.NoteEventsFollowed(end, anomalyFollower, t.position)
}

// beginTelling finds the place that an earlier follower has left. The first ever begins with what comes next.
func (s *Scheduler) beginTelling(ctx context.Context, t *telling) error {
	place, err := s.part.EventsFollowed(ctx, anomalyFollower)
	if err != nil || place != "" {
		t.position = place
		return err
	}
	all, err := s.part.AnomaliesAfter(ctx, "", store.MaxAnomalies)
	if err != nil {
		return err
	}
	if place = all.Position; place == "" {
		place = "0-0"
	}
	if err := s.part.NoteEventsFollowed(ctx, anomalyFollower, place); err != nil {
		return err
	}
	t.position = place
	return nil
}

// tellAnomaly tells one, and reports whether the next is to follow: it was taken note of, or is given up.
func (s *Scheduler) tellAnomaly(ctx context.Context, t *telling, a *Anomaly) bool {
	err := callback.Try(func() error { return s.config.OnAnomaly(ctx, *a) })
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
		s.config.Logger.Error().Err(err).Str("kind", a.Kind).Str("of", a.Of).Str("name", a.Name).Str("id", a.ID).Msg("anomaly not taken note of, given up")
		return true
	}
	s.config.Logger.Warn().Err(err).Str("kind", a.Kind).Str("of", a.Of).Str("name", a.Name).Time("again", t.at).Msg("anomaly not taken note of, telling it again")
	return false
}
