package store

import (
	"context"
	"fmt"

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

// fullest returns that which is used the most.
func fullest(uses []BoundUse) (most BoundUse) {
	for i, u := range uses {
		if i == 0 || u.part() > most.part() {
			most = u
		}
	}
	return most
}

func (u BoundUse) part() float64 { return float64(u.Used) / float64(u.Most) }

// boundWarn is from which part of a bound on the doctor warns.
const boundWarn = 0.75

// refusedAt says what becomes of what is beyond a bound, and what to do before.
var refusedAt = map[string][2]string{
	"queues": {"beyond, jobs that would make another are refused", "name the queues that are meant in the policy: those are never refused; look who makes the others: headgate queue list"},
	"lanes": {
		"beyond, jobs of that tenant that would make another are refused", "look which downstreams its jobs name: headgate explain tenant",
	},
	"breakers": {
		"beyond, the one that is closed and was quiet for longest is forgotten for each that comes", "look which downstreams jobs name: headgate breaker list",
	},
	"dead letters": {
		"beyond, one of the tenant that has the most goes for each that comes", "redrive or purge them, or set keep_dead: headgate dead list",
	},
}

func (d *doctor) bounds(uses []BoundUse) {
	u := fullest(uses)
	text := fmt.Sprintf("%d of %d %s are there", u.Used, u.Most, u.Bound)
	if u.part() < boundWarn {
		d.add("bounds", HealthOK, text+", the fullest bound", "")
		return
	}
	d.add("bounds", HealthWarn, text+": "+refusedAt[u.Bound][0], refusedAt[u.Bound][1])
}
