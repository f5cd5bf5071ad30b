package store

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
func (s *Store) check(ctx context.Context) error {
	if err := redisconn.CheckRedis(ctx, connection(s)); err != nil {
		return err
	}
	if err := s.checkPartitions(ctx); err != nil {
		return err
	}
	return s.checkData(ctx)
}

func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}
