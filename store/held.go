package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
)

// Held returns the lease of a job that a worker of a pool holds, for a caller that remembers nothing but its names; a
// payload that is Large is left out. The error matches headgate.ErrLeaseLost where the worker does not hold that job by
// that token.
func (s *Store) Held(ctx context.Context, pool, worker, token string, key admission.Key) (Lease, error) {
	lost := fmt.Errorf("lease %s of %s: %w", token, key, admission.ErrLeaseLost)
	if !isToken(token) {
		return Lease{}, lost
	}
	s = s.of(key.Tenant)
	ready := s.partition.Ready(pool)
	pipe := connection(s).Pipeline()
	pending := pipe.XPendingExt(ctx, &redis.XPendingExtArgs{Stream: ready, Group: group, Start: token, End: token, Count: 1, Consumer: worker})
	entries := pipe.XRange(ctx, ready, token, token)
	if _, err := pipe.Exec(ctx); IsPoolGone(err) {
		return Lease{}, lost
	} else if err != nil {
		return Lease{}, fmt.Errorf("read lease: %w", redisconn.Unread(err))
	}
	if len(pending.Val()) == 0 || len(entries.Val()) == 0 {
		return Lease{}, lost
	}
	entry := entries.Val()[0]
	name, _ := entry.Values["j"].(string)
	if name != encodeKey(key) {
		return Lease{}, lost
	}
	raw, _ := entry.Values["r"].(string)
	record, err := decodeRecord(name, raw)
	return Lease{Token: token, Period: periodOf(entry), Record: record}, err
}

// isToken reports whether a text is the id of a stream's entry, two numbers of 64 bits: Redis refuses others.
func isToken(token string) bool {
	at, n, _ := strings.Cut(token, "-")
	_, badAt := strconv.ParseUint(at, 10, 64)
	_, badN := strconv.ParseUint(n, 10, 64)
	return badAt == nil && badN == nil
}
