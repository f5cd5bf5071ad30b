package mirror

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/store"
)

const (
	day      = 24 * time.Hour
	dayWords = "2006-01-02"
)

// copyUsage writes what differs of today and yesterday when it is time, and now and then of all days that are kept: what is told of a job counts on
// the day on which it entered.
func (s *session) copyUsage(ctx context.Context) error {
	now := time.Now()
	if now.Before(s.usageAt.Add(s.config.Usage)) {
		return nil
	}
	today, err := s.from.Partitions()[0].Time(ctx)
	if err != nil {
		return &redisError{err}
	}
	today = today.UTC().Truncate(day)
	first, old := today.Add(-day), !now.Before(s.oldAt.Add(oldEvery))
	if old {
		first = today.Add(-store.UsageDays * day)
	}
	known := map[int64]map[[2]string]store.Used{}
	for at := first; !at.After(today); at = at.Add(day) {
		kept, err := s.copyDay(ctx, at)
		if err != nil {
			return err
		}
		if !at.Before(today.Add(-day)) {
			known[store.DayOf(at)] = kept
		}
	}
	s.known = known
	key := placeKey{Usage, 0}
	was := s.places[key]
	if err := s.commit(ctx, key, place{position: today.Format(dayWords), ordinal: store.DayOf(today)}, s.lostDays(key, was, today), 0, nil); err != nil {
		return err
	}
	if s.usageAt = now; old {
		s.oldAt = now
	}
	return nil
}

// lostDays are those between the last that was copied and the first that is kept.
func (s *session) lostDays(key placeKey, was place, today time.Time) *Gap {
	lost := store.DayOf(today) - store.UsageDays - was.ordinal - 1
	if !was.there || lost <= 0 {
		return nil
	}
	return &Gap{Source: key.source, After: was.position, Lost: lost, Reason: GapTrimmed}
}

// copyDay writes what differs of a day, and returns what the database has of it then.
func (s *session) copyDay(ctx context.Context, at time.Time) (map[[2]string]store.Used, error) {
	rows, err := s.from.Usage(ctx, store.UsageQuery{Day: at})
	if err != nil {
		return nil, &redisError{err}
	}
	had, there := s.known[store.DayOf(at)]
	if !there && len(rows) > 0 {
		if had, err = s.readDay(ctx, at); err != nil {
			return nil, err
		}
	}
	if had == nil {
		had = map[[2]string]store.Used{}
	}
	rows = slices.DeleteFunc(rows, func(u store.DayUsage) bool { return had[[2]string{u.Tenant, u.Queue}] == u.Used })
	for some := range slices.Chunk(rows, portion) {
		if err := s.writeDay(ctx, some); err != nil {
			return nil, err
		}
		for _, u := range some {
			had[[2]string{u.Tenant, u.Queue}] = u.Used
		}
		s.note(Usage, func(of *SourceStats) { of.Rows += uint64(len(some)) })
	}
	return had, nil
}

func (s *session) readDay(ctx context.Context, at time.Time) (map[[2]string]store.Used, error) {
	ctx, cancel := context.WithTimeout(ctx, s.patience)
	defer cancel()
	rows, err := s.conn.QueryContext(ctx, s.dialect.Text(`SELECT tenant, queue, jobs, calls, reserved, refunded, added FROM headgate_usage WHERE day = ?`), at.Format(dayWords))
	if err != nil {
		return nil, &databaseError{fmt.Errorf("read usage: %w", err)}
	}
	defer rows.Close()
	had := map[[2]string]store.Used{}
	for rows.Next() {
		var of [2]string
		var u store.Used
		if err := rows.Scan(&of[0], &of[1], &u.Jobs, &u.Calls, &u.Reserved, &u.Refunded, &u.Added); err != nil {
			return nil, &databaseError{fmt.Errorf("read usage: %w", err)}
		}
		had[of] = u
	}
	if err := rows.Err(); err != nil {
		return nil, &databaseError{fmt.Errorf("read usage: %w", err)}
	}
	return had, nil
}

func (s *session) writeDay(ctx context.Context, rows []store.DayUsage) error {
	return s.transact(ctx, func(ctx context.Context) error {
		put, err := s.conn.PrepareContext(ctx, insert(s.dialect, "headgate_usage", true, 3, "day", "tenant", "queue", "jobs", "calls", "reserved", "refunded", "added", "committed"))
		if err != nil {
			return err
		}
		defer put.Close()
		for i := range rows {
			u := &rows[i]
			_, err := put.ExecContext(ctx, u.Day.UTC().Format(dayWords), text(u.Tenant), text(u.Queue), u.Jobs, u.Calls, int64(u.Reserved), int64(u.Refunded),
				int64(u.Added), int64(u.Committed()))
			if err != nil {
				return err
			}
		}
		return nil
	})
}
