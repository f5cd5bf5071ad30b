package store

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
)

// BoundUse is how much is used of what a partition keeps at most.
type BoundUse struct {
	// Bound is "queues", names that are known, "dead letters", "breakers", or "lanes" of the tenant that has the most in a class of a queue.
	Bound      string
	Used, Most int64
}

// Bounds of a partition, as fragments/made.lua, letter.lua, lane.lua and breaker.lua have them.
const (
	mostQueues   = 4096
	mostLetters  = 100_000
	mostLanes    = 4096
	mostBreakers = 4096
)

// boundsIn asks in a pipeline for what is used; the answer is there once it is executed.
func (s *Store) boundsIn(ctx context.Context, pipe redis.Pipeliner) func() []BoundUse {
	state := pipe.HMGet(ctx, s.partition.State(), "nq", "nd")
	breakers := pipe.SCard(ctx, s.partition.Breakers())
	wide := pipe.ZRevRangeWithScores(ctx, s.partition.Base()+"wide", 0, 0)
	return func() []BoundUse {
		lanes := BoundUse{"lanes", 0, mostLanes} // Few are not counted.
		for _, z := range wide.Val() {
			lanes.Used = int64(z.Score)
		}
		return []BoundUse{
			{"queues", redisconn.Whole(redisconn.TextAt(state.Val(), 0)), mostQueues}, {"dead letters", redisconn.Whole(redisconn.TextAt(state.Val(), 1)), mostLetters}, lanes,
			{"breakers", breakers.Val(), mostBreakers},
		}
	}
}
