package inhand

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/store"
)

// RedisClock estimates the clock of Redis: a sample, carried on by the monotonic clock of this machine. It is wrong
// by half a round trip of the sample at most, and by what Redis's own clock was stepped since.
type RedisClock struct {
	sample atomic.Pointer[clockSample]
}

type clockSample struct {
	local time.Time // with its monotonic reading: the middle of the round trip
	redis time.Time
}

// FirstSamples is how many samples are taken at first, of which the one with the shortest round trip counts: the
// first of all includes the making of a connection.
const FirstSamples = 5

// Read takes a sample, or the best of a few if there was none.
func (c *RedisClock) Read(ctx context.Context, store store.Partition) error {
	tries, best := 1, time.Duration(math.MaxInt64)
	if c.sample.Load() == nil {
		tries = FirstSamples
	}
	for range tries {
		sent := time.Now()
		now, err := store.Time(ctx)
		if err != nil {
			return err
		}
		if trip := time.Since(sent); trip < best {
			best = trip
			c.sample.Store(&clockSample{local: sent.Add(trip / 2), redis: now})
		}
	}
	return nil
}

// Now must not be called before the first sample.
func (c *RedisClock) Now() time.Time {
	s := c.sample.Load()
	return s.redis.Add(time.Since(s.local))
}
