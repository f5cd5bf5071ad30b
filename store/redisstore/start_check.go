package redisstore

import (
	"context"

	"github.com/headgate/headgate/internal/redisconn"
)

// check refuses a Redis that could not keep the laws, and a deployment that this process cannot work on.
// It returns the stores of all partitions.
func (s *Partition) check(ctx context.Context) ([]*Partition, error) {
	if err := redisconn.CheckRedis(ctx, redisconn.Client(s.conn)); err != nil {
		return nil, err
	}
	return s.checkPartitions(ctx)
}
