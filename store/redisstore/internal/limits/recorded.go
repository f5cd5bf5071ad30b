package limits

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// LastHour is LastMinutes of the hour that is kept.
func (s *Limits) LastHour(ctx context.Context, budget time.Duration) ([]store.Recorded, error) {
	return s.LastMinutes(ctx, HourMinutes, budget)
}

// HourMinutes is how many minutes the hour that is kept has, the one under way included.
const HourMinutes = int(store.CountedFor/time.Minute) + 1

// LastMinutes are those of one partition: no scope is counted in two.
func (s *Limits) LastMinutes(ctx context.Context, minutes int, budget time.Duration) ([]store.Recorded, error) {
	began := time.Now()
	now, err := s.conn.Time(ctx)
	if err != nil {
		return nil, err
	}
	var hour []store.Recorded
	last := now.Unix() / 60
	for minute := last; minute > last-int64(minutes) && time.Since(began) < budget; minute-- {
		fields, err := redisconn.Client(s.conn).HGetAll(ctx, s.conn.Partition.Counts(minute)).Result()
		if err != nil {
			return nil, fmt.Errorf("read counts: %w", redisconn.Unread(err))
		}
		if len(fields) == 0 {
			continue
		}
		one := store.Recorded{At: time.Unix(minute*60, 0), Scopes: make(map[admission.Scope]store.Minute, len(fields))}
		one.Lasted = max(min(now.Sub(one.At), time.Minute), time.Microsecond)
		for scope, text := range fields {
			one.Scopes[admission.Scope(scope)] = minuteOf(minute, text)
		}
		hour = append(hour, one)
	}
	slices.Reverse(hour)
	return hour, nil
}

// CountedScopes returns of how many scopes something was counted in the last full minute.
func (s *Limits) CountedScopes(ctx context.Context) (n int64, err error) {
	now, err := s.conn.Time(ctx)
	if err != nil {
		return 0, err
	}
	n, err = redisconn.Client(s.conn).HLen(ctx, s.conn.Partition.Counts(now.Unix()/60-1)).Result()
	if err != nil {
		return 0, fmt.Errorf("read counts: %w", redisconn.Unread(err))
	}
	return n, nil
}
