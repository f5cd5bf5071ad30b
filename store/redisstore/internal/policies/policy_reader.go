package policies

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Reader tells one goroutine of new versions of the policy. It blocks on the audit, to which the script that stores
// a version adds an entry, and asks for the version in force each PolicyPoll all the same: that is two commands in this time.
type Reader struct {
	store    *Policies
	line     redisconn.OwnLine
	Position string
	Poll     time.Duration // PolicyPoll but in tests
}

// NewPolicyReader returns a PolicyReader, which is to be closed. It sends nothing yet.
func (s *Policies) NewPolicyReader() store.PolicyReader {
	return &Reader{store: s, line: redisconn.NewLine(s.conn), Poll: store.PolicyPoll}
}

// Close ends its connection.
func (r *Reader) Close() error { return r.line.Close() }

// Next waits until another version than known is in force, and returns it. When ctx ends meanwhile it returns known and
// no error.
func (r *Reader) Next(ctx context.Context, known int64) (int64, error) {
	for ctx.Err() == nil {
		if r.Position == "" {
			last, err := redisconn.Client(r.store.conn).XRevRangeN(ctx, r.store.conn.Partition.Audit(), "+", "-", 1).Result()
			if err != nil {
				return known, fmt.Errorf("follow policy: %w", redisconn.Unread(err))
			}
			r.Position = "0-0"
			if len(last) > 0 {
				r.Position = last[0].ID
			}
		}
		version, err := r.inForce(ctx)
		if err != nil {
			return known, err
		}
		if version != known {
			return version, nil
		}
		if err := r.line.Block(ctx, r.Poll, r.Await); err != nil {
			return known, fmt.Errorf("follow policy: %w", redisconn.Unread(err))
		}
	}
	return known, nil
}

// Await blocks until the audit has an entry after the position, the poll's time at most. An audit that has begun anew, with
// smaller ids, is what the poll is for.
func (r *Reader) Await(ctx context.Context, on redis.Cmdable) error {
	streams, err := on.XRead(ctx, &redis.XReadArgs{Streams: []string{r.store.conn.Partition.Audit(), r.Position}, Block: r.Poll}).Result()
	if redisconn.IsNil(err) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := redisconn.MessagesOf(streams)
	if err != nil {
		return err
	}
	r.Position = entries[len(entries)-1].ID
	return nil
}

func (r *Reader) inForce(ctx context.Context) (int64, error) {
	return r.store.PolicyInForce(ctx)
}

// PolicyInForce returns the version that is in force, 0 for the built-in policy.
func (s *Policies) PolicyInForce(ctx context.Context) (int64, error) {
	text, err := redisconn.Client(s.conn).HGet(ctx, s.conn.Partition.State(), "pv").Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, fmt.Errorf("read the policy's version: %w", redisconn.Unread(err))
	}
	return redisconn.Whole(text), nil
}
