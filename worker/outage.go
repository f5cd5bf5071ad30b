package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// outage is one goroutine's dealings with a Redis that is away. It logs the first failure and the recovery, and
// makes the pauses between tries longer and longer.
type outage struct {
	logger   zerolog.Logger
	what     string
	failures int
	since    time.Time
}

// The pauses are even in [d/2, d), d doubling from the first to the last.
const (
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
)

// failed waits after a failure.
func (o *outage) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if o.failures == 0 {
		o.since = time.Now()
		o.logger.Error().Err(err).Str("call", o.what).Msg("redis does not answer, trying again")
	}
	timer := time.NewTimer(jitter(min(lastPause, firstPause<<min(o.failures, 10))))
	defer timer.Stop()
	o.failures++
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// over notes a success.
func (o *outage) over() {
	if o.failures == 0 {
		return
	}
	o.logger.Info().Str("call", o.what).Int("failures", o.failures).Dur("outage", time.Since(o.since)).Msg("redis answers again")
	o.failures = 0
}

// sampled lets one warning through in a while. Its zero value is ready; several goroutines may use it.
type sampled struct {
	next atomic.Int64 // when the next one may pass, in nanoseconds since the Unix epoch
}

const sampledEvery = time.Second

func (s *sampled) allow() bool {
	now := time.Now().UnixNano()
	next := s.next.Load()
	return now >= next && s.next.CompareAndSwap(next, now+int64(sampledEvery))
}
