package producer

import (
	"context"
	"sync"
	"time"
)

// followPause is the pause after a failure to follow the policy.
const followPause = time.Second

// Run keeps the policy that the producer holds up to date until ctx ends, and stores what was counted once more. Then it returns
// nil. It blocks on one connection and sends two commands a second.
//
// A producer that does not run it learns of a new policy with its next call, which the store answers with that. What limits decide on
// is counted either way, by scope (store.Deployment's Minutes tells, and with it metrics, dry runs and forecasts), and stored a second after
// the first decision that is not stored, in one command. So a process that is killed takes the counts of its last second along, of more than a thousand scopes those
// of some more, and one that ends without Run calls Flush or FlushOrLog; each other decision is counted once, but for those of a call whose reply was lost.
func (p *Producer) Run(ctx context.Context) error {
	var both sync.WaitGroup
	both.Go(func() {
		p.counting.Run(ctx, p.counting.store, p.limits.snapshot.Load, p.counted)
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
