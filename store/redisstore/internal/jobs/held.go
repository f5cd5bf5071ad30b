package jobs

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Held returns the lease of a job that a worker of a pool holds, for a caller that remembers nothing but its names; a
// payload that is Large is left out. The error matches headgate.ErrLeaseLost where the worker does not hold that job by
// that token.
func (s *Jobs) Held(ctx context.Context, pool, worker, token string, key admission.Key) (store.Lease, error) {
	lost := fmt.Errorf("lease %s of %s: %w", token, key, admission.ErrLeaseLost)
	if !store.IsToken(token) {
		return store.Lease{}, lost
	}
	ready := s.conn.Partition.Ready(pool)
	pipe := redisconn.Client(s.conn).Pipeline()
	pending := pipe.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: ready, Group: redisconn.Group, Start: token, End: token, Count: 1, Consumer: worker})
	entries := pipe.XRange(ctx, ready, token, token)
	if _, err := pipe.Exec(ctx); redisconn.IsPoolGone(err) {
		return store.Lease{}, lost
	} else if err != nil {
		return store.Lease{}, fmt.Errorf("read lease: %w", redisconn.Unread(err))
	}
	if len(pending.Val()) == 0 || len(entries.Val()) == 0 {
		return store.Lease{}, lost
	}
	entry := entries.Val()[0]
	name, _ := entry.Values["j"].(string)
	if name != store.EncodeKey(key) {
		return store.Lease{}, lost
	}
	raw, _ := entry.Values["r"].(string)
	record, err := codec.DecodeRecord(name, raw)
	return store.Lease{Token: token, Period: PeriodOf(entry), Record: record}, err
}
