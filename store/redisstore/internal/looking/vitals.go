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
