package limiter

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// current returns the policy in force and reads it where there is none.
func (l *Limiter) current(ctx context.Context) (*policy.Compiled, error) {
	if inForce := l.policy.Load(); inForce != nil {
		return inForce, nil
	}
	if err := l.reload(ctx, nil); err != nil {
		return nil, err
	}
	return l.policy.Load(), nil
}

// renew has the next call go by what is in force, after one was answered that its limits are stale: by the records that the answer brings, or the
// policy.
func (l *Limiter) renew(ctx context.Context, stale *policy.Compiled, answer error) error {
	if learned, err := store.Learn(answer, stale); learned || err != nil {
		return err
	}
	return l.reload(ctx, stale)
}

// reload replaces a policy that is out of date by what the store holds. Nothing is done if somebody else has.
func (l *Limiter) reload(ctx context.Context, stale *policy.Compiled) error {
	if l.config.Policy != nil {
		return fmt.Errorf("the limits are fixed at version %d of the policy, the store has another: %w", stale.Version(), store.ErrStale)
	}
	if l.policy.Load() != stale {
		return nil
	}
	text, err := l.part.Policy(ctx)
	if err != nil {
		return err
	}
	fresh, err := l.editions.prepare(text)
	if err != nil {
		return err
	}
	if l.policy.CompareAndSwap(stale, fresh) {
		l.cut()
		l.config.Logger.Info().Int64("version", fresh.Version()).Msg("policy read")
	}
	return nil
}

// editions lets limiters whose partitions hold the same text have one policy of it.
type editions struct {
	mu struct {
		sync.Mutex
		text []byte
		last *policy.Compiled
	}
}

// prepare is policy.PrepareStored, or what that made of the same text the last time.
func (e *editions) prepare(text []byte) (*policy.Compiled, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.last != nil && bytes.Equal(e.mu.text, text) {
		return e.mu.last, nil
	}
	fresh, err := policy.PrepareStored(text)
	if err == nil {
		e.mu.text, e.mu.last = text, fresh
	}
	return fresh, err
}
