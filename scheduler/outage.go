package scheduler

import (
	"context"
	"math/rand/v2"
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
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// failed waits after a failure.
func (o *outage) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if o.failures == 0 {
		o.since = time.Now()
		o.logger.Error().Err(err).Str("call", o.what).Msg("scheduler: redis does not answer, trying again")
	}
	pause := min(lastPause, firstPause<<min(o.failures, 10))
	o.failures++
	sleep(ctx, pause/2+rand.N(pause/2))
}

// over notes a success.
func (o *outage) over() {
	if o.failures == 0 {
		return
	}
	o.logger.Info().Str("call", o.what).Int("failures", o.failures).Dur("outage", time.Since(o.since)).Msg("scheduler: redis answers again")
	o.failures = 0
}
