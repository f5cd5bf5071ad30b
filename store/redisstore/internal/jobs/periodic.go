package jobs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
)

// LastTick returns the last tick of a periodic job that was noted. Where none was, first is noted and returned: what is
// missed from then on can be told.
func (s *Jobs) LastTick(ctx context.Context, name string, first time.Time) (time.Time, error) {
	pipe := redisconn.Client(s.conn).Pipeline()
	pipe.HSetNX(ctx, s.conn.Partition.Periodic(), name, first.UnixMicro())
	last := pipe.HGet(ctx, s.conn.Partition.Periodic(), name)
	if _, err := pipe.Exec(ctx); err != nil {
		return time.Time{}, fmt.Errorf("read last tick of %s: %w", name, redisconn.Unread(err))
	}
	us, err := last.Int64()
	if err != nil {
		return time.Time{}, fmt.Errorf("read last tick of %s: %w", name, err)
	}
	return time.UnixMicro(us), nil
}

// NoteTick notes a tick that was enqueued, unless a later one is noted. Reading and writing are two commands, so of two
// callers at a time the earlier tick may remain: the note is a hint for ticks that were missed. That one tick is not
// enqueued twice is for its job's id and unique key to see to.
func (s *Jobs) NoteTick(ctx context.Context, name string, tick time.Time) error {
	noted, err := redisconn.Client(s.conn).HGet(ctx, s.conn.Partition.Periodic(), name).Int64()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("note tick of %s: %w", name, redisconn.Unread(err))
	}
	if noted >= tick.UnixMicro() {
		return nil
	}
	if err := redisconn.Client(s.conn).HSet(ctx, s.conn.Partition.Periodic(), name, tick.UnixMicro()).Err(); err != nil {
		return fmt.Errorf("note tick of %s: %w", name, redisconn.Unread(err))
	}
	return nil
}
