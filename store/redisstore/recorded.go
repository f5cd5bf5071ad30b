package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// LastHour is LastMinutes of the hour that is kept.
func (s *Partition) LastHour(ctx context.Context, budget time.Duration) ([]store.Recorded, error) {
	return s.LastMinutes(ctx, hourMinutes, budget)
}

const hourMinutes = int(store.CountedFor/time.Minute) + 1

// LastMinutes returns those of the last minutes, the one under way included, in which something was counted, the earliest first, with
// all scopes of each, at most TopScopes and those that the policy observes. It begins with the latest, and after budget reads no more.
func (d *many) LastMinutes(ctx context.Context, minutes int, budget time.Duration) ([]store.Recorded, error) {
	parts, err := gather(d, func(part *Partition) ([]store.Recorded, error) { return part.LastMinutes(ctx, minutes, budget) })
	if err != nil {
		return nil, err
	}
	hour := parts[0]
	for _, minute := range slices.Concat(parts[1:]...) {
		at, found := slices.BinarySearchFunc(hour, minute, func(a, b store.Recorded) int { return a.At.Compare(b.At) })
		if !found {
			hour = slices.Insert(hour, at, minute)
			continue
		}
		maps.Copy(hour[at].Scopes, minute.Scopes)
	}
	return hour, nil
}

// lastMinutes is LastMinutes of one partition: no scope is counted in two.
func (s *Partition) LastMinutes(ctx context.Context, minutes int, budget time.Duration) ([]store.Recorded, error) {
	began := time.Now()
	now, err := s.Time(ctx)
	if err != nil {
		return nil, err
	}
	var hour []store.Recorded
	last := now.Unix() / 60
	for minute := last; minute > last-int64(minutes) && time.Since(began) < budget; minute-- {
		fields, err := connection(s).HGetAll(ctx, s.partition.Counts(minute)).Result()
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
func (s *Partition) CountedScopes(ctx context.Context) (n int64, err error) {
	now, err := s.Time(ctx)
	if err != nil {
		return 0, err
	}
	n, err = connection(s).HLen(ctx, s.partition.Counts(now.Unix()/60-1)).Result()
	if err != nil {
		return 0, fmt.Errorf("read counts: %w", redisconn.Unread(err))
	}
	return n, nil
}

// CountedScopes implements Deployment.
func (d *many) CountedScopes(ctx context.Context) (n int64, err error) {
	parts, err := gather(d, func(part *Partition) (int64, error) { return part.CountedScopes(ctx) })
	for _, of := range parts {
		n += of
	}
	return n, err
}

// Connections returns how many connections the client has to Redis; 0 of a client that does not tell.
func (s *Partition) Connections() int {
	if pool, ok := s.client.(interface{ PoolStats() *redis.PoolStats }); ok {
		return int(pool.PoolStats().TotalConns)
	}
	return 0
}
