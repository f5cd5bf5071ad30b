package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Bounds of a partition, as fragments/made.lua, letter.lua, lane.lua and breaker.lua have them.
const (
	mostQueues   = 4096
	mostLetters  = 100_000
	mostLanes    = 4096
	mostBreakers = 4096
)

// boundsIn asks in a pipeline for what is used; the answer is there once it is executed.
func (s *Partition) boundsIn(ctx context.Context, pipe redis.Pipeliner) func() []store.BoundUse {
	state := pipe.HMGet(ctx, s.partition.State(), "nq", "nd")
	breakers := pipe.SCard(ctx, s.partition.Breakers())
	wide := pipe.ZRevRangeWithScores(ctx, s.partition.Base()+"wide", 0, 0)
	return func() []store.BoundUse {
		lanes := store.BoundUse{Bound: "lanes", Used: 0, Most: mostLanes} // Few are not counted.
		for _, z := range wide.Val() {
			lanes.Used = int64(z.Score)
		}
		return []store.BoundUse{
			{Bound: "queues", Used: redisconn.Whole(redisconn.TextAt(state.Val(), 0)), Most: mostQueues}, {Bound: "dead letters", Used: redisconn.Whole(redisconn.TextAt(state.Val(), 1)), Most: mostLetters}, lanes,
			{Bound: "breakers", Used: breakers.Val(), Most: mostBreakers},
		}
	}
}
