package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
)

// Recorded is what was counted in one minute.
type Recorded struct {
	// At is when it began, Lasted how much of it was over when it was read.
	At     time.Time
	Lasted time.Duration
	Scopes map[admission.Scope]Minute
}

// LastHour is LastMinutes of the hour that is kept.
func (s *Store) LastHour(ctx context.Context, budget time.Duration) ([]Recorded, error) {
	return s.LastMinutes(ctx, int(CountedFor/time.Minute)+1, budget)
}

// LastMinutes returns those of the last minutes, the one under way included, in which something was counted, the earliest first, with
// all scopes of each, at most TopScopes and those that the policy observes. It begins with the latest, and after budget reads no more.
func (s *Store) LastMinutes(ctx context.Context, minutes int, budget time.Duration) ([]Recorded, error) {
	parts, err := gather(s, func(part *Store) ([]Recorded, error) { return part.lastMinutes(ctx, minutes, budget) })
	if err != nil {
		return nil, err
	}
	hour := parts[0]
	for _, minute := range slices.Concat(parts[1:]...) {
		at, found := slices.BinarySearchFunc(hour, minute, func(a, b Recorded) int { return a.At.Compare(b.At) })
		if !found {
			hour = slices.Insert(hour, at, minute)
			continue
		}
		maps.Copy(hour[at].Scopes, minute.Scopes)
	}
	return hour, nil
}

// lastMinutes is LastMinutes of one partition: no scope is counted in two.
func (s *Store) lastMinutes(ctx context.Context, minutes int, budget time.Duration) ([]Recorded, error) {
	began := time.Now()
	now, err := s.Time(ctx)
	if err != nil {
		return nil, err
	}
	var hour []Recorded
	last := now.Unix() / 60
	for minute := last; minute > last-int64(minutes) && time.Since(began) < budget; minute-- {
		fields, err := connection(s).HGetAll(ctx, s.partition.Counts(minute)).Result()
		if err != nil {
			return nil, fmt.Errorf("read counts: %w", redisconn.Unread(err))
		}
		if len(fields) == 0 {
			continue
		}
		one := Recorded{At: time.Unix(minute*60, 0), Scopes: make(map[admission.Scope]Minute, len(fields))}
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
func (s *Store) CountedScopes(ctx context.Context) (n int64, err error) {
	parts, err := gather(s, func(part *Store) (int64, error) {
		now, err := part.Time(ctx)
		if err != nil {
			return 0, err
		}
		n, err := connection(part).HLen(ctx, part.partition.Counts(now.Unix()/60-1)).Result()
		if err != nil {
			return 0, fmt.Errorf("read counts: %w", redisconn.Unread(err))
		}
		return n, nil
	})
	for _, of := range parts {
		n += of
	}
	return n, err
}

// Connections returns how many connections the client has to Redis; 0 of a client that does not tell.
func (s *Store) Connections() int {
	if pool, ok := s.client.(interface{ PoolStats() *redis.PoolStats }); ok {
		return int(pool.PoolStats().TotalConns)
	}
	return 0
}
