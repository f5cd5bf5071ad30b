package scheduler

import (
	"context"
	"time"
)

// A scheduler says every beatEvery that it lives, and counts as live for beatLife.
const (
	beatEvery = 5 * time.Second
	beatLife  = 3 * beatEvery
)

// live says that the scheduler lives until ctx ends, and then that it has gone. Nothing but lists of schedulers depends on it.
func (s *Scheduler) live(ctx context.Context) {
	trouble := s.trouble("say that the scheduler lives")
	defer trouble.Leave()
	for ctx.Err() == nil {
		if err := s.beat(ctx, beatLife); err != nil {
			trouble.Failed(ctx, err)
			continue
		}
		trouble.Over()
		sleep(ctx, beatEvery)
	}
	if err := s.beat(context.WithoutCancel(ctx), 0); err != nil {
		s.config.Logger.Debug().Err(err).Msg("the end of the scheduler is not known: it counts as live for a while")
	}
}

func (s *Scheduler) beat(ctx context.Context, life time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.part.Alive(ctx, s.owner, life)
}
