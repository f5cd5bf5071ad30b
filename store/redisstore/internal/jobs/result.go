package jobs

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// Result returns what a completed job has left (Finish.Result), for as long as it is kept. The error matches
// headgate.ErrUnknownJob when there is none: the job has not completed, gave no result, or its time is over.
func (s *Jobs) Result(ctx context.Context, key admission.Key) ([]byte, error) {
	result, err := redisconn.Client(s.conn).Get(ctx, s.conn.Partition.Result(store.EncodeKey(key))).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("read result of %s: %w", key, admission.ErrUnknownJob)
	}
	if err != nil {
		return nil, fmt.Errorf("read result of %s: %w", key, redisconn.Unread(err))
	}
	return result, nil
}
