package worker

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/worker/internal/fleet"
	"github.com/headgate/headgate/worker/internal/inhand"
)

// A blocked read takes blockTime, and blockSlack more at worst. Nothing interrupts it, so it may be that late to
// hear of a shutdown.
const (
	blockTime  = time.Second
	blockSlack = time.Second
)

// read takes jobs from the ready stream, as many as there are free slots, and starts them. A read that failed may
// have been carried out: Redis then takes its jobs for held, and only the history tells of them. So the history is
// read before anything new, and where recall has found that Redis holds jobs for this worker that it does not know.
func (s *session) read(ctx, jobs context.Context) {
	trouble := s.w.trouble("read ready stream")
	defer trouble.Leave()
	doubt := false
	for {
		s.w.guard.Hold(ctx)
		free, ok := s.w.slots.Wait(ctx)
		if !ok {
			break
		}
		doubt = s.unsure.Swap(false) || doubt
		leases, err := s.take(ctx, free, doubt)
		late, more := s.accept(ctx, jobs, leases, free)
		if doubt {
			s.held.EndHistory()
		}
		s.release(late.drained, ReasonShutdown)
		s.release(late.shut, ReasonGuard)
		if errors.Is(err, store.ErrPoolGone) {
			if ctx.Err() == nil { // Else this worker's own Reclaim has closed it.
				s.loseLease("the pool is closed")
			}
			return
		}
		if doubt = err != nil || doubt && more; err != nil {
			trouble.Failed(ctx, err)
			continue
		}
		trouble.Over()
	}
	if doubt {
		s.handBack(jobs)
	}
}

// take reads once.
func (s *session) take(ctx context.Context, count int, history bool) ([]store.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, blockTime+blockSlack)
	defer cancel()
	if !history {
		return s.w.store.Read(ctx, s.name, s.w.pool.ID(), count, blockTime, false)
	}
	s.held.BeginHistory()
	// What this consumer holds, with those whose ends are on their way: one that is not known is among so many.
	return s.w.store.Read(ctx, s.name, s.w.pool.ID(), s.w.config.Concurrency+s.w.slots.InHand(), blockTime, true)
}

// tooLate are jobs that were read and are not to be started: because a drain has begun, or because the guard has shut the slots.
type tooLate struct{ drained, shut []store.Lease }

// accept starts the jobs that were read, as many as there are free slots, and returns those for which it is too late. more says
// that a history may have others still.
func (s *session) accept(ctx, jobs context.Context, leases []store.Lease, free int) (late tooLate, more bool) {
	shut, started := s.w.guard != nil && s.w.slots.IsShut(), false
	for i := range leases {
		lease := &leases[i]
		if ctx.Err() != nil {
			s.held.Close()
		}
		if free == 0 && !s.held.Knows(lease.Token) {
			return late, true
		}
		switch s.held.Add(lease) {
		case inhand.Added:
			free, more = free-1, true
			if shut {
				if s.held.Claim(lease.Token) { // Else a drain has it.
					late.shut = append(late.shut, *lease)
				}
				continue
			}
			s.w.guard.Count(1)
			s.w.slots.Take()
			s.w.shared.took(s.w)
			go s.handle(jobs, lease) // Run waits for it by its slot.
			started = true
		case inhand.TooLate:
			late.drained = append(late.drained, *lease)
		case inhand.Known:
		}
	}
	if started {
		runtime.Gosched() // Handlers begin before the next read is written, which takes longer than to begin them.
	}
	return late, more
}

// handBack releases what the last read of all may have brought without anybody being told. What is missed here,
// Reclaim finds.
func (s *session) handBack(jobs context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(jobs), fleet.CallTimeout) // the last act of a reader whose ctx ended
	defer cancel()
	leases, err := s.take(ctx, s.w.config.Concurrency, true)
	if err != nil && !errors.Is(err, store.ErrPoolGone) { // Where that is gone, so is all that was held.
		s.logger.Warn().Err(err).Msg("history not read at shutdown, left to reclaim")
	}
	var late []store.Lease
	for i := range leases {
		if s.held.Add(&leases[i]) == inhand.TooLate {
			late = append(late, leases[i])
		}
	}
	s.held.EndHistory()
	s.release(late, ReasonShutdown)
}
