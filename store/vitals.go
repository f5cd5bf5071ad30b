package store

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
)

// Vitals is what tells at a glance whether the store and its timers are well.
type Vitals struct {
	// Late is for how long the timer that is due first has been, 0 where none is.
	Late time.Duration
	// Memory is what Redis uses, MaxMemory its bound, in bytes; 0 for no bound, and both where it does not tell.
	Memory, MaxMemory int64
	// Bounds are what is used of what is kept at most, each of the partition that has the most.
	Bounds []BoundUse
}

// Vitals reads them in one round trip.
func (s *Store) Vitals(ctx context.Context) (Vitals, error) {
	if s.all != nil {
		return s.vitalsOfAll(ctx)
	}
	pipe := connection(s).Pipeline()
	now := pipe.Time(ctx)
	first := pipe.ZRangeWithScores(ctx, s.partition.Due(), 0, 0)
	info := pipe.Info(ctx)
	bounds := s.boundsIn(ctx, pipe)
	if _, err := pipe.Exec(ctx); err != nil {
		return Vitals{}, fmt.Errorf("read vitals: %w", redisconn.Unread(err))
	}
	v := Vitals{Late: lateness(now.Val(), first.Val()), Bounds: bounds()}
	fields := redisconn.ParseInfo(info.Val())
	for to, name := range map[*int64]string{&v.Memory: "used_memory", &v.MaxMemory: "maxmemory"} {
		if text := fields[name]; text != "" {
			var err error
			if *to, err = strconv.ParseInt(text, 10, 64); err != nil {
				return Vitals{}, fmt.Errorf("read vitals: %s: %w", name, err)
			}
		}
	}
	return v, nil
}

func lateness(now time.Time, first []redis.Z) time.Duration {
	if len(first) == 0 {
		return 0
	}
	return max(now.Sub(time.UnixMicro(int64(first[0].Score))), 0)
}
