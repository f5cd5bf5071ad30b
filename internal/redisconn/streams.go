package redisconn

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Group is the group of each ready stream.
const Group = "g"

// IsPoolGone reports whether a read failed because the pool's stream or group is gone.
func IsPoolGone(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && (redis.HasErrorPrefix(reply, "NOGROUP") || strings.Contains(reply.Error(), "UNBLOCKED"))
}

// ErrEmptyStream is an answer that Redis never gives, but a proxy might: XREAD of one stream tells of entries, or of nothing.
var ErrEmptyStream = errors.New("an answer to XREAD has no entries")

// MessagesOf returns what was read of one stream, an entry or more.
func MessagesOf(streams []redis.XStream) ([]redis.XMessage, error) {
	if len(streams) == 0 || len(streams[0].Messages) == 0 {
		return nil, ErrEmptyStream
	}
	return streams[0].Messages, nil
}

// Time returns the clock of Redis, or that of a test.
func (c *Conn) Time(ctx context.Context) (time.Time, error) {
	if us, err := strconv.ParseInt(c.Now, 10, 64); err == nil {
		return time.UnixMicro(us), nil
	}
	t, err := Client(c).Time(ctx).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("read redis time: %w", Unread(err))
	}
	return t, nil
}
