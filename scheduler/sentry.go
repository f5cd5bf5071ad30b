package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/internal/anomaly"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

const (
	// ratesLate is how long after its end a minute is looked at: processes store what they counted once a second, within two.
	ratesLate = 5 * time.Second
	// ratesPortion is how many minutes are read in a turn, by who begins: it needs an hour of them.
	ratesPortion = 5
	// oldAlarm is how many minutes ago an alarm may have been to be told: who begins sees those of the hour before, too.
	oldAlarm = 3
	// maxUntold is how many alarms wait for a store that is away. The oldest give way.
	maxUntold = 4 * store.MaxAnomalyNotes
)

// sentry watches rates. The zero sentry begins with the hour that is kept.
type sentry struct {
	detector anomaly.Detector
	next     time.Time
	untold   []store.Anomaly
	// on are the alarms of the last minute: each is logged as it begins.
	on    map[alarmKey]bool
	near  near
	chart chart
}

// alarmKey is what an alarm is of.
type alarmKey struct {
	kind anomaly.Kind
	name anomaly.Name
}

// sentryOf returns the sentry of a policy, the one that is there already if it is to go on; nil where the policy asks for none.
func sentryOf(compiled *policy.Compiled, known *sentry) *sentry {
	switch {
	case !compiled.Watched():
		return nil
	case known != nil:
		known.near.policy = compiled
		return known
	}
	return &sentry{near: near{policy: compiled}}
}

// watchRates looks at the minutes that are over since the last time, if there are any, and has the store keep the alarms that are on.
func (s *Scheduler) watchRates(ctx context.Context, d *sentry) error {
	if d == nil || time.Now().Before(d.next) {
		return nil
	}
	now, err := s.part.Time(ctx)
	if err != nil {
		return err
	}
	last := now.Add(-ratesLate).Unix()/60 - 1
	if d.detector.Last() > last+1 { // The clock of Redis was set back.
		*d = sentry{near: near{policy: d.near.policy}}
	}
	var unseen error
	minute := max(d.detector.Last()+1, last-anomaly.History+1)
	justOver := d.detector.Last() == last-1
	for end := min(last, minute+ratesPortion-1); minute <= end; minute++ {
		rates, err := s.store.Rates(ctx, time.Unix(minute*60, 0))
		if err != nil {
			return err
		}
		alarms := d.detector.Observe(minuteOf(minute, &rates))
		if d.near.policy.Foresees() {
			d.chart.observe(minute, &rates, justOver)
		}
		if last-minute < oldAlarm {
			s.raise(d, alarms)
		}
		if minute == last {
			unseen = s.watchLimits(ctx, d, minute, rates.Scopes)
		}
	}
	if minute > last {
		d.next = time.Now().Add(time.Unix((last+2)*60, 0).Add(ratesLate).Sub(now))
	}
	return errors.Join(unseen, s.noteAlarms(ctx, d), s.keepRates(ctx, d))
}

// raise logs the alarms that begin, and has all of them told.
func (s *Scheduler) raise(d *sentry, alarms []anomaly.Alarm) {
	on := make(map[alarmKey]bool, len(alarms))
	for _, a := range alarms {
		key := alarmKey{a.Kind, a.Name}
		if on[key] = true; !d.on[key] {
			s.config.Logger.Warn().Str("kind", string(a.Kind)).Str("of", string(a.Of)).Str("name", a.Name.Name).Float64("rate", a.Rate).Float64("usual", a.Usual).
				Float64("score", a.Score).Msg("rate is not usual")
		}
		d.untold = append(d.untold, store.Anomaly{
			Kind: string(a.Kind), Of: string(a.Of), Name: a.Name.Name, Minute: time.Unix(a.At*60, 0), Rate: a.Rate, Usual: a.Usual, Deviation: a.Deviation, Score: a.Score,
		})
	}
	d.on, d.untold = on, d.untold[max(0, len(d.untold)-maxUntold):]
}

// noteAlarms has the store keep what is untold. Sent again it does no harm.
func (s *Scheduler) noteAlarms(ctx context.Context, d *sentry) error {
	for len(d.untold) > 0 {
		n := min(len(d.untold), store.MaxAnomalyNotes)
		if _, err := s.store.NoteAnomalies(ctx, d.untold[:n]); err != nil {
			d.next = time.Time{}
			return err
		}
		d.untold = d.untold[n:]
	}
	return nil
}

// minuteOf is what a detector sees of a minute.
func minuteOf(at int64, r *store.Rates) anomaly.Minute {
	m := anomaly.Minute{At: at, Counts: make(map[anomaly.Name]anomaly.Decided, 1+len(r.Tenants)+len(r.Queues))}
	m.Unknown = map[anomaly.Subject]bool{anomaly.Tenant: r.Crowded, anomaly.Queue: !r.Watched}
	if r.All != (store.Decided{}) {
		m.Counts[anomaly.Name{Of: anomaly.Deployment}] = anomaly.Decided{Admitted: r.All.Allowed, Refused: r.All.Refused}
	}
	for of, counts := range map[anomaly.Subject]map[string]store.Decided{anomaly.Tenant: r.Tenants, anomaly.Queue: r.Queues} {
		for name, one := range counts {
			key := anomaly.Name{Of: of, Name: name}
			m.Counts[key] = anomaly.Decided{Admitted: one.Allowed, Refused: one.Refused}
			if one.Partial && r.Crowded { // Else it came anew, and what it had in the minute was counted from its first on.
				if m.Unsure == nil {
					m.Unsure = map[anomaly.Name]bool{}
				}
				m.Unsure[key] = true
			}
		}
	}
	return m
}
