package stage

import (
	"context"
	"time"

	"github.com/headgate/headgate/store"
)

// clock estimates the clock of Redis: the best of some samples, carried on by the monotonic clock of this machine. It
// is wrong by half a round trip of that sample at most, and by what either clock was stepped since.
type clock struct {
	local, redis time.Time
}

// clockSamples is enough for one to meet a connection that is open and a machine that is not busy.
const clockSamples = 9

func readClock(ctx context.Context, store store.Deployment) (clock, error) {
	var best clock
	shortest := time.Duration(-1)
	for range clockSamples {
		sent := time.Now()
		now, err := store.Time(ctx)
		if err != nil {
			return clock{}, err
		}
		trip := time.Since(sent)
		if shortest < 0 || trip < shortest {
			shortest, best = trip, clock{local: sent.Add(trip / 2), redis: now}
		}
	}
	return best, nil
}

func (c clock) now() time.Time { return c.redis.Add(time.Since(c.local)) }
