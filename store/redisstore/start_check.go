package redisstore

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
)

// checkTimeout bounds the start-up checks.
const checkTimeout = 2 * time.Second

// check refuses a Redis that could not keep the laws, and a deployment that this process cannot work on.
// It returns the stores of all partitions.
func (s *Partition) check(ctx context.Context) ([]*Partition, error) {
	if err := redisconn.CheckRedis(ctx, connection(s)); err != nil {
		return nil, err
	}
	return s.checkPartitions(ctx)
}

func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
