package redisstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

const group = "g"

// Read takes up to count jobs for a worker from its pool's ready stream, waiting up to block for the first.
// history reads again what the worker holds already and was perhaps never told: to be used after any failed
// read. A gone group means that the pool was closed, and is ErrLeaseLost's cousin: register again.
func (s *Partition) Read(ctx context.Context, worker, pool string, count int, block time.Duration, history bool) ([]store.Lease, error) {
	from := ">"
	if history {
		from = "0"
		block = -1
	}
	streams, err := connection(s).XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: group, Consumer: worker, Streams: []string{s.partition.Ready(pool), from}, Count: int64(count), Block: block,
	}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil && s.moving(ctx, worker, err) {
		return nil, fmt.Errorf("read ready stream: %w: its slot moves", admission.ErrUnavailable)
	}
	if isPoolGone(err) {
		return nil, fmt.Errorf("read ready stream: %w: %w", store.ErrPoolGone, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read ready stream: %w", redisconn.Unread(err))
	}
	var leases []store.Lease
	for _, stream := range streams {
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
func (s *Partition) Pending(ctx context.Context, worker, pool string, count int, since time.Duration) ([]string, error) {
	entries, err := connection(s).XPendingExt(ctx, &redis.XPendingExtArgs{
		Stream: s.partition.Ready(pool), Group: group, Idle: since, Start: "-", End: "+", Count: int64(count), Consumer: worker,
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
func (s *Partition) moving(ctx context.Context, worker string, err error) bool {
	if s.master == nil || !isPoolGone(err) {
		return false
	}
	registered, err := connection(s).HExists(ctx, s.partition.Workers(), worker).Result()
	return ctx.Err() == nil && (err != nil || registered)
}

// lease decodes an entry. What cannot be read is in the lease's Err; the error is that of Redis.
func (s *Partition) lease(ctx context.Context, m redis.XMessage) (store.Lease, error) {
	key, _ := m.Values["j"].(string)
	raw, _ := m.Values["r"].(string)
	uncounted, _ := m.Values["u"].(string)
	lease := store.Lease{Token: m.ID, Period: periodOf(m), Uncounted: uncounted}
	lease.Record, lease.Err = decodeRecord(key, raw)
	if lease.Err != nil {
		if k, err := store.DecodeKey(key); err == nil {
			lease.Job.Tenant, lease.Job.ID = k.Tenant, k.ID
		}
		return lease, nil
	}
	lease.Plain = lease.Plain && lease.Period == 0
	if lease.Large {
		payload, err := connection(s).Get(ctx, s.partition.Large(key)).Bytes()
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

// periodOf reads the period of an entry; 0 for none.
func periodOf(m redis.XMessage) uint64 {
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

// isPoolGone reports whether a read failed because the pool's stream or group is gone.
func isPoolGone(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && (redis.HasErrorPrefix(reply, "NOGROUP") || strings.Contains(reply.Error(), "UNBLOCKED"))
}

// errEmptyStream is an answer that Redis never gives, but a proxy might: XREAD of one stream tells of entries, or of nothing.
var errEmptyStream = errors.New("an answer to XREAD has no entries")

// messagesOf returns what was read of one stream, an entry or more.
func messagesOf(streams []redis.XStream) ([]redis.XMessage, error) {
	if len(streams) == 0 || len(streams[0].Messages) == 0 {
		return nil, errEmptyStream
	}
	return streams[0].Messages, nil
}

// readOne blocks on a stream for its next entry and returns the position after it.
func (s *Partition) readOne(ctx context.Context, stream, last string, wait time.Duration) (string, error) {
	streams, err := connection(s).XRead(ctx, &redis.XReadArgs{Streams: []string{stream, last}, Count: 1, Block: wait}).Result()
	if errors.Is(err, redis.Nil) {
		return last, nil
	}
	if err != nil {
		return last, fmt.Errorf("wait for wake: %w", redisconn.Unread(err))
	}
	entries, err := messagesOf(streams)
	if err != nil {
		return last, fmt.Errorf("wait for wake: %w", redisconn.Unread(err))
	}
	return entries[0].ID, nil
}

// Time returns the clock of Redis.
func (s *Partition) Time(ctx context.Context) (time.Time, error) {
	t, err := connection(s).Time(ctx).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("read redis time: %w", redisconn.Unread(err))
	}
	return t, nil
}
