package looking

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Vitals reads them in one round trip.
func (s *Looking) Vitals(ctx context.Context) (store.Vitals, error) {
	pipe := redisconn.Client(s.conn).Pipeline()
	now := pipe.Time(ctx)
	first := pipe.ZRangeWithScores(ctx, s.conn.Partition.Due(), 0, 0)
	info := pipe.Info(ctx)
	bounds := s.boundsIn(ctx, pipe)
	if _, err := pipe.Exec(ctx); err != nil {
		return store.Vitals{}, fmt.Errorf("read vitals: %w", redisconn.Unread(err))
	}
	v := store.Vitals{Late: lateness(now.Val(), first.Val()), Bounds: bounds()}
	var err error
	if v.Memory, v.MaxMemory, err = memoryIn(info.Val()); err != nil {
		return store.Vitals{}, fmt.Errorf("read vitals: %w", err)
	}
	return v, nil
}

// Memory reads what of it Redis uses, and may use.
func (s *Looking) Memory(ctx context.Context) (used, most int64, err error) {
	info, err := redisconn.Client(s.conn).Info(ctx, "memory").Result()
	if err != nil {
		return 0, 0, fmt.Errorf("read memory: %w", redisconn.Unread(err))
	}
	if used, most, err = memoryIn(info); err != nil {
		return 0, 0, fmt.Errorf("read memory: %w", err)
	}
	return used, most, nil
}

// memoryIn reads an INFO.
func memoryIn(info string) (used, most int64, err error) {
	fields := redisconn.ParseInfo(info)
	for to, name := range map[*int64]string{&used: "used_memory", &most: "maxmemory"} {
		if text := fields[name]; text != "" {
			if *to, err = strconv.ParseInt(text, 10, 64); err != nil {
				return 0, 0, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return used, most, nil
}

func lateness(now time.Time, first []redis.Z) time.Duration {
	if len(first) == 0 {
		return 0
	}
	return max(now.Sub(time.UnixMicro(int64(first[0].Score))), 0)
}

// boundsIn asks in a pipeline for what is used; the answer is there once it is executed.
func (s *Looking) boundsIn(ctx context.Context, pipe redis.Pipeliner) func() []store.BoundUse {
	state := pipe.HMGet(ctx, s.conn.Partition.State(), "nq", "nd")
	breakers := pipe.SCard(ctx, s.conn.Partition.Breakers())
	wide := pipe.ZRevRangeWithScores(ctx, s.conn.Partition.Base()+"wide", 0, 0)
	return func() []store.BoundUse {
		lanes := int64(0) // Few are not counted.
		for _, z := range wide.Val() {
			lanes = int64(z.Score)
		}
		return store.BoundsUsed(redisconn.Whole(redisconn.TextAt(state.Val(), 0)), redisconn.Whole(redisconn.TextAt(state.Val(), 1)), lanes, breakers.Val())
	}
}
