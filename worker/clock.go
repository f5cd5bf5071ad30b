package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/lua"
)

// redisClock estimates the clock of Redis: a sample, carried on by the monotonic clock of this machine. It is wrong
// by half a round trip of the sample at most, and by what Redis's own clock was stepped since.
type redisClock struct {
	sample atomic.Pointer[clockSample]
}

type clockSample struct {
	local time.Time // with its monotonic reading: the middle of the round trip
	redis time.Time
}

// read takes a sample.
func (c *redisClock) read(ctx context.Context, store *lua.Store) error {
	sent := time.Now()
	now, err := store.Time(ctx)
	if err != nil {
		return err
	}
	c.sample.Store(&clockSample{local: sent.Add(time.Since(sent) / 2), redis: now})
	return nil
}

// now must not be called before the first sample.
func (c *redisClock) now() time.Time {
	s := c.sample.Load()
	return s.redis.Add(time.Since(s.local))
}
