package worker

import (
	"context"
	"time"

	"github.com/headgate/headgate/worker/internal/fleet"
)

const (
	// cancelGrace is how long a handler may take to notice that its ctx has ended.
	cancelGrace = 2 * time.Second
	// endGrace is how long those may take that were waiting for Redis to take note of how their job ended.
	endGrace = 100 * time.Millisecond
	// reclaimTimeout bounds the last words to a Redis that does not answer: the lease ends by itself.
	reclaimTimeout = 5 * time.Second
)

// drain ends a session in order:
//
//  1. Nothing is read any more, and Redis is told that no slot is free, so it sends nothing after.
//  2. Handlers get DrainTimeout. Those that are left are cancelled.
//  3. What is still held is released, whether its handler has noticed or not.
//  4. Reclaim ends the registration, and takes back what a read may have been given that nobody was told of. It comes
//     before the reader is waited for: where this was the pool's last worker, it also ends the blocked read.
//
// The lease is extended all the while. Where Redis is away it ends, and with it the drain, whatever step that is at: the jobs are
// then Redis's, and nobody would hear what else is to be said. So a drain takes DrainTimeout, or what is left of the lease
// if that is longer, and the graces and calls of a few seconds below.
func (s *session) drain(leased context.Context, cancelJobs context.CancelCauseFunc) {
	n := s.held.Close()
	s.registering <- struct{}{}
	s.logger.Info().Int("running", n).Msg("worker drains")
	s.shrink(leased, n)
	if !s.awaitHandlers() {
		if !s.isLost() {
			s.logger.Warn().Int("running", s.held.Close()).Msg("drain time-out: handlers are cancelled, their jobs handed back")
		}
		cancelJobs(ErrDraining)
		if !s.w.await(s.held.None(), cancelGrace) {
			rest := s.held.ClaimRest()
			for _, lease := range rest {
				s.logger.Error().Str("type", lease.Job.Type).Str("job", lease.Job.ID).Str("tenant", lease.Job.Tenant).
					Msg("handler ignores the end of its ctx")
			}
			s.release(rest, ReasonShutdown)
		}
	}
	cancelJobs(ErrDraining)
	s.reclaim(leased)
}

// awaitHandlers waits until nothing is held, DrainTimeout at most, and no longer than the lease.
func (s *session) awaitHandlers() bool {
	timer := time.NewTimer(s.w.config.DrainTimeout)
	defer timer.Stop()
	select {
	case <-s.held.None():
		return true
	case <-timer.C:
	case <-s.lost:
	}
	return false
}

// shrink leaves the worker as many slots as it has running jobs. It may fail: jobs then wait for Reclaim.
func (s *session) shrink(ctx context.Context, slots int) {
	ctx, cancel := context.WithTimeout(ctx, fleet.CallTimeout)
	defer cancel()
	more, err := s.w.store.Register(ctx, s.name, s.w.pool, slots, s.w.config.Lease)
	if err != nil {
		s.logger.Warn().Err(err).Msg("slots not given up at once")
	}
	if more {
		s.w.promoting.Give()
	}
}

func (s *session) reclaim(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reclaimTimeout)
	defer cancel()
	trouble := s.w.trouble("reclaim")
	defer trouble.Leave()
	for ctx.Err() == nil {
		more, err := s.reclaimOnce(ctx)
		if err != nil {
			trouble.Failed(ctx, err)
			continue
		}
		trouble.Over()
		if !more {
			s.logger.Info().Msg("worker drained")
			return
		}
	}
	s.logger.Error().Msg("registration not ended: it ends with its lease")
}

func (s *session) reclaimOnce(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, fleet.CallTimeout)
	defer cancel()
	return s.w.store.Reclaim(ctx, s.name)
}
