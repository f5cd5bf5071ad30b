package looking

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

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
