package redisstore

import (
	"context"
	"time"
)

// LeaseRight implements Partition.
func (s *Partition) LeaseRight(ctx context.Context, right, token string, limit int, lease time.Duration) (bool, error) {
	reply, err := s.run(ctx, "probing", s.now, right, token, limit, micros(lease))
	return err == nil && reply[0] == "leased", err
}

// ReturnRight implements Partition.
func (s *Partition) ReturnRight(ctx context.Context, right, token string) error {
	_, err := s.run(ctx, "probing", s.now, right, token, 0, 0)
	return err
}

// LeaseRight implements Deployment: the name of a right picks the partition that keeps it.
func (d *many) LeaseRight(ctx context.Context, right, token string, limit int, lease time.Duration) (bool, error) {
	return d.of(right).LeaseRight(ctx, right, token, limit, lease)
}

// ReturnRight implements Deployment.
func (d *many) ReturnRight(ctx context.Context, right, token string) error {
	return d.of(right).ReturnRight(ctx, right, token)
}
