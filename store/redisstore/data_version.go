package redisstore

import (
	"context"
	"fmt"
	"strconv"

	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
)

// DataVersion is the newest version of the layout of data that this release knows. It is raised when an older release could no
// longer work on the same data.
const DataVersion = redisconn.DataVersion

// checkData refuses a deployment whose data this release does not know, and marks a new one.
func (s *Partition) checkData(ctx context.Context) error {
	key := s.conn.Partition.State()
	values, err := redisconn.Client(s.conn).HMGet(ctx, key, redisconn.DataField, keyspace.Core[0], keyspace.CoreField).Result()
	if err != nil {
		return fmt.Errorf("read version of the data: %w", redisconn.Unread(err))
	}
	text := redisconn.TextAt(values, 0)
	if text == "" {
		version := DataVersion
		if redisconn.TextAt(values, 1) != "" && redisconn.TextAt(values, 2) == "" {
			version = redisconn.TextData // Scripts have begun, and have not packed.
		}
		// A Redis that is full or a replica does not take it: the next start writes it, and until then its absence says the same.
		_ = redisconn.Client(s.conn).HSetNX(ctx, key, redisconn.DataField, version).Err()
		return nil
	}
	stored, err := strconv.Atoi(text)
	if err != nil {
		return fmt.Errorf("version of the data is %q in %s: %w", text, key, err)
	}
	return redisconn.CheckData(stored)
}
