package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
)

// SchedulerState is a scheduler that lives.
type SchedulerState struct {
	Name string
	// AliveUntil is until when it counts as live unless it is heard of again; zero for one that has only promoted.
	AliveUntil time.Time
	// LeaseEnd is until when it holds the timer lease; zero unless it does.
	LeaseEnd time.Time
}

// Alive notes that a scheduler lives for so long from now, zero that it has gone.
func (s *Store) Alive(ctx context.Context, scheduler string, life time.Duration) error {
	_, err := s.run(ctx, "alive", s.now, scheduler, micros(life))
	return err
}

// Schedulers returns the schedulers that live, by name, and whoever holds the timer lease. Each partition has its own.
func (s *Store) Schedulers(ctx context.Context) ([]SchedulerState, error) {
	if s.all != nil {
		return s.schedulersOfAll(ctx)
	}
	owner, end, err := s.TimerLease(ctx)
	if err != nil {
		return nil, err
	}
	now, err := s.Time(ctx)
	if err != nil {
		return nil, err
	}
	found, err := connection(s).ZRangeWithScores(ctx, s.partition.Schedulers(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list schedulers: %w", redisconn.Unread(err))
	}
	var all []SchedulerState
	for _, z := range found {
		name, _ := z.Member.(string)
		if until := time.UnixMicro(int64(z.Score)); until.After(now) {
			all = append(all, SchedulerState{Name: name, AliveUntil: until})
		}
	}
	if owner != "" {
		at := slices.IndexFunc(all, func(one SchedulerState) bool { return one.Name == owner })
		if at < 0 {
			at, all = len(all), append(all, SchedulerState{Name: owner})
		}
		all[at].LeaseEnd = end
	}
	slices.SortFunc(all, func(a, b SchedulerState) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}
