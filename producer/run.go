package producer

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/lua"
)

// followPause is the pause after a failure to follow the policy.
const followPause = time.Second

// Run keeps the policy that the producer holds up to date until ctx ends, and counts what limits decide on meanwhile, by
// scope: lua.Store's Minutes tells. Then it returns nil. It blocks on one connection and sends two commands a second, and
// one more while there is something to count.
//
// A producer that does not run it learns of a new policy with its next call, which the store answers with that, and counts
// nothing. Counts are stored once a second, so a process that is killed takes those of its last second along; each other
// decision is counted once, but for those of a call whose reply was lost.
func (p *Producer) Run(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() {
		p.tally.Run(ctx, p.store, p.limits.snapshot.Load, func(err error) {
			p.config.Logger.Warn().Err(err).Bool("in_doubt", lua.InDoubt(err)).Msg("decisions are not counted")
		})
	})
	if p.config.Policy == nil {
		p.keepFollowing(ctx)
	}
	both.Wait()
	return nil
}

func (p *Producer) keepFollowing(ctx context.Context) {
	reader := p.store.NewPolicyReader()
	defer reader.Close()
	for ctx.Err() == nil {
		if err := p.limits.follow(ctx, reader); err != nil && ctx.Err() == nil {
			p.config.Logger.Warn().Err(err).Msg("policy is not followed; calls notice a new one all the same")
			rest(ctx, followPause)
		}
	}
}
