package policies

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/internal/redisconn"
)

// PolicyEdit returns the version in force in a partition and the edit that stored it.
func (s *Policies) PolicyEdit(ctx context.Context) (version int64, edit string, err error) {
	values, err := redisconn.Client(s.conn).HMGet(ctx, s.conn.Partition.State(), "pv", "pe").Result()
	if err != nil {
		return 0, "", fmt.Errorf("read policy version: %w", redisconn.Unread(err))
	}
	return redisconn.Whole(redisconn.TextAt(values, 0)), redisconn.TextAt(values, 1), nil
}

// SpreadPolicy does what is left of an edit in a partition whose process has died.
func (s *Policies) SpreadPolicy(ctx context.Context) error {
	left, err := redisconn.Client(s.conn).HMGet(ctx, s.conn.Partition.State(), "pg", "pr").Result()
	if err != nil {
		return fmt.Errorf("read policy: %w", redisconn.Unread(err))
	}
	if redisconn.TextAt(left, 0) != "" {
		if err := s.finishOthers(ctx); err != nil {
			return err
		}
	}
	if redisconn.TextAt(left, 0)+redisconn.TextAt(left, 1) == "" {
		return nil
	}
	return s.countBounds(ctx)
}
