package jobs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
	"github.com/headgate/headgate/store/redisstore/internal/second"
)

// Second is a second Redis, nil for none.
type Second = second.Redis

// DialSecond returns the second Redis at an address, nil for "".
func DialSecond(url string, settings *tls.Config) (*Second, error) { return second.Dial(url, settings) }

// NewMover implements store.Timers.
func (s *Jobs) NewMover(owner string) store.Mover {
	if s.second == nil {
		return nil
	}
	return second.NewMover(s.conn, s.second, owner)
}

// Payload returns a job's payload, also a large one, or one that is in the second Redis. A job that does not live is headgate.ErrUnknownJob.
func (s *Jobs) Payload(ctx context.Context, key admission.Key) ([]byte, error) {
	payload, err := s.payload(ctx, key)
	if s.second == nil || !errors.Is(err, store.ErrAway) {
		return payload, err
	}
	raw := store.EncodeKey(key)
	stub, err := redisconn.Client(s.conn).HGet(ctx, s.conn.Partition.Jobs(), raw).Result()
	if err != nil {
		return nil, fmt.Errorf("read payload of %s: %w", key, redisconn.Unread(err))
	}
	rec, err := codec.DecodeRecord(raw, stub)
	if err != nil || !rec.Away { // It has come back meanwhile.
		return s.payload(ctx, key)
	}
	body, large, err := s.second.Read(ctx, s.conn.Partition, second.CopyName(raw, rec.Seq))
	if err != nil {
		return nil, fmt.Errorf("read payload of %s: %w", key, err)
	}
	if rec, err = codec.DecodeRecord(raw, body); err != nil || !rec.Large {
		return rec.Job.Payload, err
	}
	return []byte(large), nil
}

// SpillState returns what is known of spilled jobs whose bodies are in the second Redis.
func (s *Jobs) SpillState(ctx context.Context) (store.SpillState, error) {
	return second.StateOf(ctx, s.conn, s.second)
}
