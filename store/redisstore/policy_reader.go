package redisstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// policyReader tells one goroutine of new versions of the policy. It blocks on the audit, to which the script that stores
// a version adds an entry, and asks for the version in force each PolicyPoll all the same: that is two commands in this time.
type policyReader struct {
	store    *Partition
	line     ownLine
	position string
	poll     time.Duration // PolicyPoll but in tests
}

// NewPolicyReader returns a PolicyReader, which is to be closed. It sends nothing yet.
func (s *Partition) NewPolicyReader() store.PolicyReader { return s.newPolicyReader() }

func (s *Partition) newPolicyReader() *policyReader {
	return &policyReader{store: s, line: ownLine{store: s}, poll: store.PolicyPoll}
}

// Close ends its connection.
func (r *policyReader) Close() error { return r.line.close() }

// Next waits until another version than known is in force, and returns it. When ctx ends meanwhile it returns known and
// no error.
func (r *policyReader) Next(ctx context.Context, known int64) (int64, error) {
	for ctx.Err() == nil {
		if r.position == "" {
			last, err := connection(r.store).XRevRangeN(ctx, r.store.partition.Audit(), "+", "-", 1).Result()
			if err != nil {
				return known, fmt.Errorf("follow policy: %w", redisconn.Unread(err))
			}
			r.position = "0-0"
			if len(last) > 0 {
				r.position = last[0].ID
			}
		}
		version, err := r.inForce(ctx)
		if err != nil {
			return known, err
		}
		if version != known {
			return version, nil
		}
		if err := r.line.block(ctx, r.poll, r.await); err != nil {
			return known, fmt.Errorf("follow policy: %w", redisconn.Unread(err))
		}
	}
	return known, nil
}

// await blocks until the audit has an entry after the position, the poll's time at most. An audit that has begun anew, with
// smaller ids, is what the poll is for.
func (r *policyReader) await(ctx context.Context, on redis.Cmdable) error {
	streams, err := on.XRead(ctx, &redis.XReadArgs{Streams: []string{r.store.partition.Audit(), r.position}, Block: r.poll}).Result()
	if redisconn.IsNil(err) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := messagesOf(streams)
	if err != nil {
		return err
	}
	r.position = entries[len(entries)-1].ID
	return nil
}

func (r *policyReader) inForce(ctx context.Context) (int64, error) {
	return r.store.PolicyInForce(ctx)
}

// PolicyInForce returns the version that is in force, 0 for the built-in policy.
func (s *Partition) PolicyInForce(ctx context.Context) (int64, error) {
	text, err := connection(s).HGet(ctx, s.partition.State(), "pv").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, fmt.Errorf("read the policy's version: %w", redisconn.Unread(err))
	}
	return redisconn.Whole(text), nil
}
