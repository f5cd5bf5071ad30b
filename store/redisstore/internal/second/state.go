package second

import (
	"context"
	"fmt"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// stateTries is how often both Redises are looked at until nothing moves between them meanwhile.
const stateTries = 5

// StateOf reads what a partition says of the bodies that are in a second Redis, and how many that has, if it is known, answers, and can be
// counted while the first says the same.
func StateOf(ctx context.Context, first *redisconn.Conn, of *Redis) (store.SpillState, error) {
	before, err := stated(ctx, first)
	if of == nil || err != nil {
		return before, err
	}
	for range stateTries {
		n, err := clientOf(of).HLen(ctx, keysOf(first.Partition)[1]).Result()
		if err != nil {
			return before, nil //nolint:nilerr // The second Redis is away: how much it holds is not known.
		}
		after, err := stated(ctx, first)
		if err != nil {
			return after, err
		}
		if after.Away == before.Away && after.Copies == before.Copies {
			after.Held = n
			return after, nil
		}
		before = after
	}
	return before, nil
}

// stated reads what the first Redis says.
func stated(ctx context.Context, first *redisconn.Conn) (store.SpillState, error) {
	pipe := redisconn.Client(first).Pipeline()
	state := redisconn.ReadState(ctx, pipe, first.Partition, "nf", "mok", "mbad")
	copies := pipe.SCard(ctx, first.Partition.Base()+"copies")
	if _, err := pipe.Exec(ctx); err != nil {
		return store.SpillState{}, fmt.Errorf("read spilled jobs that were moved: %w", redisconn.Unread(err))
	}
	values := state.Val()
	s := store.SpillState{Away: redisconn.Whole(redisconn.TextAt(values, 0)), Copies: copies.Val(), Trouble: redisconn.TextAt(values, 2), Held: -1}
	if us := redisconn.Whole(redisconn.TextAt(values, 1)); us > 0 {
		s.Moved = time.UnixMicro(us)
	}
	return s, nil
}
