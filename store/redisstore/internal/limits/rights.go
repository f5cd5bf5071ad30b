package limits

import (
	"context"
	"time"

	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// LeaseRight implements Partition.
func (s *Limits) LeaseRight(ctx context.Context, right, token string, limit int, lease time.Duration) (bool, error) {
	reply, err := s.conn.Run(ctx, "probing", s.conn.Now, right, token, limit, codec.Micros(lease))
	return err == nil && reply[0] == "leased", err
}

// ReturnRight implements Partition.
func (s *Limits) ReturnRight(ctx context.Context, right, token string) error {
	_, err := s.conn.Run(ctx, "probing", s.conn.Now, right, token, 0, 0)
	return err
}
