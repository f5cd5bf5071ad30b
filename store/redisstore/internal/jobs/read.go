package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Read takes up to count jobs for a worker from its pool's ready stream, waiting up to block for the first.
// history reads again what the worker holds already and was perhaps never told: to be used after any failed
// read. A gone group means that the pool was closed, and is ErrLeaseLost's cousin: register again.
func (s *Jobs) Read(ctx context.Context, worker, pool string, count int, block time.Duration, history bool) ([]store.Lease, error) {
	from := ">"
	if history {
		from = "0"
		block = -1
	}
	streams, err := redisconn.Client(s.conn).XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: redisconn.Group, Consumer: worker, Streams: []string{s.conn.Partition.Ready(pool), from}, Count: int64(count), Block: block,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil && s.moving(ctx, worker, err) {
		return nil, fmt.Errorf("read ready stream: %w: its slot moves", admission.ErrUnavailable)
	}
	if redisconn.IsPoolGone(err) {
		return nil, fmt.Errorf("read ready stream: %w: %w", store.ErrPoolGone, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read ready stream: %w", redisconn.Unread(err))
	}
	var leases []store.Lease
	for _, stream := range streams {
		leases = slices.Grow(leases, len(stream.Messages))
		for _, m := range stream.Messages {
			if len(m.Values) == 0 {
				continue // removed while it was still listed as held
			}
			lease, err := s.lease(ctx, m)
			if err != nil {
				return leases, err
			}
			leases = append(leases, lease)
		}
	}
	return leases, nil
}

// Pending returns the tokens of up to count jobs that a worker of a pool holds for so long, to the millisecond: the oldest first.
func (s *Jobs) Pending(ctx context.Context, worker, pool string, count int, since time.Duration) ([]string, error) {
	entries, err := redisconn.Client(s.conn).XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: s.conn.Partition.Ready(pool), Group: redisconn.Group, Idle: since, Start: "-", End: "+", Count: int64(count), Consumer: worker,
	}).Result()
	if err != nil {
		return nil, fmt.Errorf("read what %q holds: %w", worker, redisconn.Unread(err))
	}
	tokens := make([]string, len(entries))
	for i := range entries {
		tokens[i] = entries[i].ID
	}
	return tokens, nil
}

// moving reports whether a pool that seems gone has only left this node of a cluster: its worker is still registered, or nobody
// can tell, while ctx lasts.
func (s *Jobs) moving(ctx context.Context, worker string, err error) bool {
	if !s.conn.Cluster() || !redisconn.IsPoolGone(err) {
		return false
	}
	registered, err := redisconn.Client(s.conn).HExists(ctx, s.conn.Partition.Workers(), worker).Result()
	return ctx.Err() == nil && (err != nil || registered)
}

// lease decodes an entry. What cannot be read is in the lease's Err; the error is that of Redis.
func (s *Jobs) lease(ctx context.Context, m redis.XMessage) (store.Lease, error) {
	key, _ := m.Values["j"].(string)
	raw, _ := m.Values["r"].(string)
	uncounted, _ := m.Values["u"].(string)
	lease := store.Lease{Token: m.ID, Period: PeriodOf(m), Uncounted: uncounted}
	lease.Record, lease.Err = codec.DecodeRecord(key, raw)
	if lease.Err == nil && lease.Away {
		lease.Err = fmt.Errorf("read payload of %q: %w", key, store.ErrAway)
	}
	if lease.Err != nil {
		if k, err := store.DecodeKey(key); err == nil {
			lease.Job.Tenant, lease.Job.ID = k.Tenant, k.ID
		}
		return lease, nil
	}
	lease.Plain = lease.Plain && lease.Period == 0
	if lease.Large {
		payload, err := redisconn.Client(s.conn).Get(ctx, s.conn.Partition.Large(key)).Bytes()
		switch {
		case errors.Is(err, redis.Nil):
			lease.Err = fmt.Errorf("read payload of %q: %w", key, store.ErrPayloadGone)
		case err != nil:
			return store.Lease{}, fmt.Errorf("read payload of %q: %w", key, redisconn.Unread(err))
		}
		lease.Job.Payload = payload
	}
	return lease, nil
}

// PeriodOf reads the period of an entry; 0 for none.
func PeriodOf(m redis.XMessage) uint64 {
	text, ok := m.Values["p"].(string)
	if !ok {
		return 0
	}
	period, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return period
}

// payload returns a job's payload, also a large one; store.ErrAway where it is in the second Redis.
func (s *Jobs) payload(ctx context.Context, key admission.Key) ([]byte, error) {
	if err := store.ValidateKey(key); err != nil {
		return nil, err
	}
	raw := store.EncodeKey(key)
	rec, err := redisconn.Client(s.conn).HGet(ctx, s.conn.Partition.Jobs(), raw).Result()
	if redisconn.IsNil(err) {
		return nil, fmt.Errorf("read payload of %s: %w", key, admission.ErrUnknownJob)
	}
	if err != nil {
		return nil, fmt.Errorf("read payload of %s: %w", key, redisconn.Unread(err))
	}
	lease, err := s.lease(ctx, redis.XMessage{Values: map[string]any{"j": raw, "r": rec}})
	if err != nil {
		return nil, err
	}
	return lease.Job.Payload, lease.Err
}
