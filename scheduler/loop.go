package scheduler

import (
	"context"
	"time"

	"github.com/headgate/headgate/store"
)

// breather is the pause after roundsInARow calls that all left work, so that others get through to Redis.
const breather = time.Millisecond

// loop promotes, and waits for the next reason to. It leaves a deployment that was migrated.
func (s *Scheduler) loop(ctx context.Context, leave context.CancelCauseFunc) {
	trouble := s.trouble("promote")
	defer trouble.Leave()
	rounds := 0
	for ctx.Err() == nil {
		p, err := s.promote(ctx)
		if store.IsOutdated(err) {
			leave(err)
			return
		}
		if err != nil {
			trouble.Failed(ctx, err)
			continue
		}
		trouble.Over()
		if p.More {
			if rounds++; rounds%roundsInARow == 0 {
				sleep(ctx, breather)
			}
			continue
		}
		rounds = 0
		s.wait(ctx, p)
	}
}

// wait returns when it is time to promote again.
func (s *Scheduler) wait(ctx context.Context, p store.Promotion) {
	if p.Held {
		// A wake is the holder's business. It may be told of a timer that the lease outlasts, so no longer than that.
		sleep(ctx, min(p.Next, s.config.TimerLease))
		return
	}
	wait := s.config.TimerLease * 3 / 4
	if p.Next >= 0 {
		wait = min(wait, p.Next)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.woken:
	case <-ctx.Done():
	}
}

// watch turns entries of the wake stream into tokens of woken.
func (s *Scheduler) watch(ctx context.Context) {
	trouble := s.trouble("wait for wake")
	defer trouble.Leave()
	position := "0-0" // Before the first entry: one that stands there already costs one look too many, and none is missed.
	for ctx.Err() == nil {
		next, err := s.block(ctx, position)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			trouble.Failed(ctx, err)
			continue
		}
		trouble.Over()
		if next == position {
			continue
		}
		position = next
		select {
		case s.woken <- struct{}{}:
		default:
		}
	}
}

// A blocked read takes blockTime, and blockSlack more at worst. Nothing interrupts it, so Run ends that late.
const (
	blockTime  = time.Second
	blockSlack = time.Second
)

func (s *Scheduler) block(ctx context.Context, position string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, blockTime+blockSlack)
	defer cancel()
	return s.part.WaitWake(ctx, position, blockTime)
}

// sleep waits on the local clock.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
