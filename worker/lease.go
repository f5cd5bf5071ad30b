package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/admission"
)

// The parts of a lease: how often it is extended, how soon a failed try is repeated, and how long a call may take.
const (
	beatsPerLease    = 3
	retriesPerLease  = 15
	timeoutsPerLease = 6
)

// cancelDelay is how long a worker that holds jobs goes without asking whether one of them was cancelled.
const cancelDelay = 500 * time.Millisecond

// classesEvery is how many looks at the clock pass between two looks at the classes of queues.
const classesEvery = 10

// keep extends the lease until ctx ends or the lease is lost. The lease that counts begins when a heartbeat that came
// through was sent, because Redis may have counted from then.
func (s *session) keep(ctx context.Context) {
	lease := s.w.config.Lease
	pace := lease / beatsPerLease // of a worker that holds nothing, and of looks at the clock
	trouble, failing := s.w.trouble("heartbeat"), false
	defer trouble.Leave()
	next, beaten, refreshed, looks := min(pace, cancelDelay), time.Now(), time.Now(), 0
	for s.sleep(ctx, next) {
		// A worker that holds nothing looks as often whether that has changed, which costs Redis nothing.
		if rest := time.Until(beaten.Add(s.idle(pace))); !failing && rest > 0 && !s.held.Any() {
			next = min(rest, cancelDelay)
			continue
		}
		err := s.beat(ctx)
		switch {
		case err == nil:
			trouble.Over()
			failing, next, beaten = false, min(pace, cancelDelay), time.Now()
			if time.Since(refreshed) >= pace {
				looks++
				s.refresh(ctx, looks%classesEvery == 0)
				s.recall(ctx)
				refreshed = time.Now()
			}
		case errors.Is(err, admission.ErrLeaseLost):
			s.loseLease("redis has taken the jobs back")
			return
		default:
			if ctx.Err() == nil {
				trouble.Note(err)
			}
			failing, next = true, jitter(lease/retriesPerLease)
		}
	}
}

// idle bounds the pause between two heartbeats of a worker that holds nothing, so that it tells how busy it is when that is due.
func (s *session) idle(pause time.Duration) time.Duration {
	if s.w.index > 0 || s.w.telling.Every() == 0 {
		return pause
	}
	return min(pause, s.w.telling.Every())
}

// inTime bounds a call of the goroutine that keeps the lease: what is answered after its end is of no use.
func (s *session) inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	end := time.Now().Add(s.w.config.Lease / timeoutsPerLease)
	if s.leaseEnd.Before(end) {
		end = s.leaseEnd
	}
	return context.WithDeadline(ctx, end)
}

// beat makes one heartbeat.
func (s *session) beat(ctx context.Context) error {
	lease := s.w.config.Lease
	ctx, cancel := s.inTime(ctx)
	defer cancel()
	sent, told := time.Now(), ""
	if s.w.index == 0 {
		told = s.w.telling.Due(sent)
	}
	beat, err := s.w.store.Heartbeat(ctx, s.name, lease, told)
	if err != nil {
		return err
	}
	if s.w.index == 0 {
		s.w.telling.Asked(beat.Load, sent)
	}
	s.leaseEnd = sent.Add(lease)
	s.guard.Reset(time.Until(s.leaseEnd) - s.margin())
	for _, c := range beat.Cancelled {
		s.held.Cancel(c.Token, &cancelledError{reason: c.Reason})
	}
	if beat.Promote && s.w.config.NoScheduler {
		s.w.promoting.Give()
	}
	return nil
}

// refresh looks again at what Redis knows better: the time, and now and then the classes. It may fail.
func (s *session) refresh(ctx context.Context, classes bool) {
	ctx, cancel := s.inTime(ctx)
	defer cancel()
	err := s.w.clock.Read(ctx, s.w.store)
	if err == nil && classes {
		err = s.w.classes.Read(ctx, s.w.store)
	}
	if err != nil && ctx.Err() == nil {
		s.logger.Warn().Err(err).Msg("clock or classes not refreshed")
	}
}

// recall has the history read where Redis holds jobs for this worker that it does not know. It takes what was lost with a master
// that was replaced: the answer of a read, or the end of a job, which that master took from this worker after its replica had it
// last.
func (s *session) recall(ctx context.Context) {
	ctx, cancel := s.inTime(ctx)
	defer cancel()
	// Among one more than there are slots, one is not known if any is not.
	tokens, err := s.w.store.Pending(ctx, s.name, s.w.pool.ID(), s.w.config.Concurrency+1, blockTime)
	if err != nil {
		return // The reader says so, or the next look succeeds.
	}
	for _, token := range tokens {
		if !s.held.Knows(token) { // It may have ended since: a history too many.
			s.unsure.Store(true)
		}
	}
}

// sleep waits on the local clock; false when the session ends first.
func (s *session) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	}
	return false
}

// jitter returns a time from half of d to d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(max(d/2, 1)) }
