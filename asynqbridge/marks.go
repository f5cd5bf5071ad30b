package asynqbridge

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
)

// marks lets hand-overs begin while asynq's lists of pending tasks are short.
type marks struct {
	redis     redis.UniversalClient
	logger    zerolog.Logger
	low, high int
	every     time.Duration
	// wanted says that a queue has somebody waiting.
	wanted chan struct{}
	queues map[string]*mark
}

// mark is one queue's. Its pending tasks and out together are never above high, as far as this process adds to them.
type mark struct {
	pending string // the key
	// credits are hand-overs that may begin.
	credits chan struct{}
	// out is the credits given whose hand-over has not ended, waiting the hand-overs without one.
	out, waiting atomic.Int64
}

func newMarks(client redis.UniversalClient, config ReleaserConfig) *marks {
	m := &marks{
		redis: client, logger: config.Logger, low: config.Low, high: config.High, every: config.Every,
		wanted: make(chan struct{}, 1), queues: make(map[string]*mark, len(config.Queues)),
	}
	for _, queue := range config.Queues {
		m.queues[queue] = &mark{pending: "asynq:{" + queue + "}:pending", credits: make(chan struct{}, config.High)}
	}
	return m
}

// wait returns true once a hand-over to the queue may begin, which done must end; false if ctx or stopping ended first.
func (m *marks) wait(ctx context.Context, stopping <-chan struct{}, queue string) bool {
	own := m.queues[queue]
	own.waiting.Add(1)
	defer own.waiting.Add(-1)
	select {
	case m.wanted <- struct{}{}:
	default:
	}
	select {
	case <-own.credits:
		return true
	case <-ctx.Done():
	case <-stopping:
	}
	return false
}

func (m *marks) done(queue string) { m.queues[queue].out.Add(-1) }

// run gives credits until ctx ends. Nothing is read while nobody waits.
func (m *marks) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-m.wanted:
		case <-ctx.Done():
			return
		}
		for m.give(ctx) {
			timer.Reset(m.every)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		}
	}
}

// readTimeout bounds the reading of asynq's lists.
const readTimeout = time.Second

// give reads the lengths of all lists for which somebody waits, in one round trip, and gives credits to those at the low
// mark or below. It reports whether anybody waited.
func (m *marks) give(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	pipe := m.redis.Pipeline()
	type reading struct {
		mark   *mark
		out    int64
		length *redis.IntCmd
	}
	var readings []reading
	for _, own := range m.queues {
		if own.waiting.Load() > 0 { // out is read first: what is handed over meanwhile counts twice rather than never
			readings = append(readings, reading{mark: own, out: own.out.Load(), length: pipe.LLen(ctx, own.pending)})
		}
	}
	if len(readings) == 0 {
		return false
	}
	if _, err := pipe.Exec(ctx); err != nil && ctx.Err() == nil {
		m.logger.Warn().Err(err).Msg("asynq's pending tasks not counted")
		return true
	}
	for _, r := range readings {
		length, err := r.length.Result()
		if err != nil || length > int64(m.low) {
			continue
		}
		for range int64(m.high) - length - r.out {
			r.mark.out.Add(1)
			r.mark.credits <- struct{}{}
		}
	}
	return true
}
