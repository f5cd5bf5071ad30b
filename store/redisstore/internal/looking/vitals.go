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
	fields := redisconn.ParseInfo(info.Val())
	for to, name := range map[*int64]string{&v.Memory: "used_memory", &v.MaxMemory: "maxmemory"} {
		if text := fields[name]; text != "" {
			var err error
			if *to, err = strconv.ParseInt(text, 10, 64); err != nil {
				return store.Vitals{}, fmt.Errorf("read vitals: %s: %w", name, err)
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
