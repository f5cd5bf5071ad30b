package scheduler

import (
	"context"
	"time"

	"github.com/headgate/headgate/store"
)

// moveEvery is how often it is looked whether spilled jobs are to be moved to the second Redis, or back.
const moveEvery = time.Second

// moveSpilled moves spilled jobs between the Redis of the partition and the second one, if this process has one. Of several that have, one
// moves at a time, whoever holds the timer lease: not every scheduler needs to reach the second Redis.
func (s *Scheduler) moveSpilled(ctx context.Context) {
	mover := s.part.NewMover(s.owner)
	if mover == nil {
		return
	}
	trouble := s.trouble("move spilled jobs")
	defer trouble.Leave()
	var second outcome
	for ctx.Err() == nil {
		moves, err := s.moveOnce(ctx, mover)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			trouble.Failed(ctx, err)
			continue
		}
		trouble.Over()
		s.tellMoves(&second, moves)
		if !moves.More {
			sleep(ctx, max(moveEvery, min(moves.Held, 5*moveEvery)))
		}
	}
}

// outcome is what was last told of the second Redis.
type outcome struct{ text string }

// tellMoves logs what changes with the second Redis, and each job whose body it has lost.
func (s *Scheduler) tellMoves(last *outcome, moves store.Moves) {
	text := ""
	if moves.Trouble != nil {
		text = moves.Trouble.Error()
	}
	switch log := s.config.Logger; {
	case text != "" && last.text == "":
		log.Warn().Err(moves.Trouble).Msg("spilled jobs are not moved: what is in the second redis waits there, and no more goes to it")
	case text == "" && last.text != "" && moves.Held == 0:
		log.Info().Msg("spilled jobs are moved to the second redis again, and back")
	case text == "" && moves.Held > 0:
		return // Somebody else moves, and tells of it.
	}
	last.text = text
	if moves.Missing > 0 {
		s.config.Logger.Error().Int("jobs", moves.Missing).Msg("the second redis has lost the bodies of spilled jobs: each left as record_gone")
	}
}

// moveTimeout bounds a portion: several calls of both.
const moveTimeout = 4 * time.Second

func (s *Scheduler) moveOnce(ctx context.Context, mover store.Mover) (store.Moves, error) {
	ctx, cancel := context.WithTimeout(ctx, moveTimeout)
	defer cancel()
	return mover.Move(ctx)
}
