package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Alive notes that a scheduler lives for so long from now, zero that it has gone.
func (s *Jobs) Alive(ctx context.Context, scheduler string, life time.Duration) error {
	_, err := s.conn.Run(ctx, "alive", s.conn.Now, scheduler, codec.Micros(life))
	return err
}

// Schedulers returns the schedulers that live, by name, and whoever holds the timer lease. Each partition has its own.
func (s *Jobs) Schedulers(ctx context.Context) ([]store.SchedulerState, error) {
	owner, end, err := s.TimerLease(ctx)
	if err != nil {
		return nil, err
	}
	now, err := s.conn.Time(ctx)
	if err != nil {
		return nil, err
	}
	found, err := redisconn.Client(s.conn).ZRangeWithScores(ctx, s.conn.Partition.Schedulers(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list schedulers: %w", redisconn.Unread(err))
	}
	var all []store.SchedulerState
	for _, z := range found {
		name, _ := z.Member.(string)
		if until := time.UnixMicro(int64(z.Score)); until.After(now) {
			all = append(all, store.SchedulerState{Name: name, AliveUntil: until})
		}
	}
	if owner != "" {
		at := slices.IndexFunc(all, func(one store.SchedulerState) bool { return one.Name == owner })
		if at < 0 {
			at, all = len(all), append(all, store.SchedulerState{Name: owner})
		}
		all[at].LeaseEnd = end
	}
	slices.SortFunc(all, func(a, b store.SchedulerState) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
