package producer

import (
	"context"
	"sync"
	"time"

	"github.com/headgate/headgate/lua"
)

const (
	// followPause is the pause after a failure to follow the policy.
	followPause = time.Second
	// flushEvery is how often the counts of decisions are stored, and lastFlush how long the last flush may take.
	flushEvery = time.Second
	lastFlush  = 2 * time.Second
)

// Run keeps the policy that the producer holds up to date until ctx ends, and counts what limits decide on meanwhile, by
// scope: lua.Store's Minutes tells. Then it returns nil. It blocks on one connection and sends two commands a second, and
// one more while there is something to count.
//
// A producer that does not run it learns of a new policy with its next call, which the store answers with that, and counts
// nothing. Counts are stored once a second, so a process that is killed takes those of its last second along; each other
// decision is counted once, but for those of a call whose reply was lost.
func (p *Producer) Run(ctx context.Context) error {
	p.tally.begin()
	defer p.tally.end()
	var both sync.WaitGroup
	both.Go(func() { p.keepCounting(ctx) })
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

// keepCounting flushes the counts once a second, and what is left when ctx has ended.
func (p *Producer) keepCounting(ctx context.Context) {
	for rest(ctx, flushEvery) {
		p.flush(ctx)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
	defer cancel()
	p.flush(ctx)
}

func (p *Producer) flush(ctx context.Context) {
	snapshot := p.limits.snapshot.Load()
	if snapshot == nil { // Then nothing was decided either.
		return
	}
	if err := p.tally.flush(ctx, p.store, snapshot); err != nil {
		p.config.Logger.Warn().Err(err).Bool("in_doubt", lua.InDoubt(err)).Msg("decisions are not counted")
	}
}
