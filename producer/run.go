package producer

import (
	"context"
	"time"
)

// followPause is the pause after a failure to follow the policy.
const followPause = time.Second

// Run keeps the policy that the producer holds up to date until ctx ends, and then returns nil. It blocks on one
// connection and sends two commands a second. A producer that does not run it learns of a new policy with its next call,
// which the store answers with that.
func (p *Producer) Run(ctx context.Context) error {
	if p.config.Policy != nil {
		<-ctx.Done()
		return nil
	}
	reader := p.store.NewPolicyReader()
	defer reader.Close()
	for ctx.Err() == nil {
		if err := p.limits.follow(ctx, reader); err != nil && ctx.Err() == nil {
			p.config.Logger.Warn().Err(err).Msg("policy is not followed; calls notice a new one all the same")
			rest(ctx, followPause)
		}
	}
	return nil
}
