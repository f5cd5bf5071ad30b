package jobs

import (
	"context" //nolint:gosec // a short name, not a secret
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Register makes a worker known with its slots and its lease. The same call again only renews the lease.
func (s *Jobs) Register(ctx context.Context, worker string, pool store.Pool, slots int, lease time.Duration) (more bool, err error) {
	reply, err := s.conn.Run(ctx, "register", s.conn.Now, worker, pool.ID(), pool.Mode(), pool.Text(), slots, codec.Micros(lease))
	if err != nil {
		return false, err
	}
	return reply[0] == "more", nil
}

// Heartbeat extends a worker's lease. It returns ErrLeaseLost when the lease was taken back: the worker must stop
// what it runs and register under a new name.
func (s *Jobs) Heartbeat(ctx context.Context, worker string, lease time.Duration, load string) (store.Beat, error) {
	args := []any{s.conn.Now, worker, codec.Micros(lease)}
	if load != "" {
		args = append(args, load)
	}
	reply, err := s.conn.Run(ctx, "heartbeat", args...)
	if err != nil {
		return store.Beat{}, err
	}
	if reply[0] == "lost" {
		return store.Beat{}, admission.ErrLeaseLost
	}
	beat := store.Beat{Promote: reply[0] == "promote"}
	if last := len(reply) - 1; last%2 == 1 {
		beat.Load = time.Duration(redisconn.Whole(reply[last])) * time.Microsecond
		reply = reply[:last]
	}
	for i := 1; i+1 < len(reply); i += 2 {
		beat.Cancelled = append(beat.Cancelled, store.Cancellation{Token: reply[i], Reason: reply[i+1]})
	}
	return beat, nil
}

// Reclaim takes back what a worker holds and ends its registration; more means that it is to be called again.
func (s *Jobs) Reclaim(ctx context.Context, worker string) (more bool, err error) {
	reply, err := s.conn.Run(ctx, "reclaim", s.conn.Now, worker)
	if err != nil {
		return false, err
	}
	return reply[0] == "more", nil
}
