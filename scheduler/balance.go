package scheduler

import (
	"context"
	"errors"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// Shares of what all partitions divide are balanced every balanceEvery by the holder of the first partition's timer lease. Where
// one has not been looked at for neglected, though there is a reason, the holder of its own lease does it: the first may be away.
const (
	balanceEvery = 500 * time.Millisecond
	neglected    = 3 * time.Second
)

// balance balances shares until ctx ends.
func (s *Scheduler) balance(ctx context.Context) {
	b := s.store.NewBalancer()
	if b == nil {
		return
	}
	for ctx.Err() == nil {
		wait := neglected
		if s.first || s.holds() && b.Neglected(ctx, s.index, neglected) {
			wait = balanceEvery
			s.step(ctx, b)
		}
		sleep(ctx, wait)
	}
}

// step balances shares once, unless another holds the timer lease.
func (s *Scheduler) step(ctx context.Context, b store.Balancer) {
	if !s.holds() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := b.Step(ctx); err != nil && !errors.Is(err, admission.ErrUnavailable) {
		s.config.Logger.Warn().Err(err).Msg("shares of limits do not follow their use")
	}
}
