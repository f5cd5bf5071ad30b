package limiter

import (
	"context"
	"errors"
	"sync"

	"github.com/headgate/headgate/store"
)

// A Limiter of several partitions has one of each, which knows the tenants of its own: their scopes are as with one partition.
// Of the global limit each has an even part, from which it leases by itself, so the parts of the bound add up to the bound.
// One partition that is away is an outage to its tenants alone.

// divide makes l a limiter of several partitions.
func (l *Limiter) divide(stores []store.Partition) error {
	for i, of := range stores {
		part := &Limiter{store: l.store, part: of, config: l.config, member: l.member, clock: l.clock, editions: l.editions, counts: l.counts}
		part.config.MaxScopes = max(1, l.config.MaxScopes/len(stores))
		part.config.Logger = l.config.Logger.With().Int("partition", i).Logger()
		part.policy.Store(l.policy.Load())
		if err := part.prepare(len(stores)); err != nil {
			return err
		}
		l.parts = append(l.parts, part)
	}
	return nil
}

// checkParts is Check for several partitions. What names no tenant is of no partition: the next in turn answers it, and while
// one is known to refuse, that after it.
func (l *Limiter) checkParts(ctx context.Context, r Request) (Verdict, error) {
	if r.Tenant != "" {
		return l.parts[l.store.PartitionOf(r.Tenant)].Check(ctx, r)
	}
	first := int(l.turn.Add(1) % uint64(len(l.parts))) //nolint:gosec // partitions are few
	var soonest Verdict
	for i := range l.parts {
		v, err := l.parts[(first+i)%len(l.parts)].Check(ctx, r)
		if err != nil || v.Source != Cached {
			return v, err
		}
		if i == 0 || v.RetryAfter < soonest.RetryAfter {
			soonest = v
		}
	}
	return soonest, nil
}

// closeParts is Close for several partitions.
func (l *Limiter) closeParts(ctx context.Context) error {
	errs := make([]error, len(l.parts))
	var closing sync.WaitGroup
	for i, part := range l.parts {
		closing.Go(func() { errs[i] = part.Close(ctx) })
	}
	closing.Wait()
	return errors.Join(errs...)
}
