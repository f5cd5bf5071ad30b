package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
)

// DataVersion is the newest version of the layout of data that this release knows. It is raised when an older release could no
// longer work on the same data.
const DataVersion = redisconn.DataVersion

// checkData refuses a deployment whose data this release does not know, and marks a new one.
func (s *Partition) checkData(ctx context.Context) error {
	key := s.conn.Partition.State()
	text, err := redisconn.Client(s.conn).HGet(ctx, key, redisconn.DataField).Result()
	if errors.Is(err, redis.Nil) {
		// A Redis that is full or a replica does not take it: the next start writes it, and until then its absence says the same.
		_ = redisconn.Client(s.conn).HSetNX(ctx, key, redisconn.DataField, redisconn.FirstData).Err()
		return nil
	}
	if err != nil {
		return fmt.Errorf("read version of the data: %w", redisconn.Unread(err))
	}
	stored, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("version of the data is %q in %s: %w", text, key, err)
	}
	return redisconn.CheckData(stored)
}
