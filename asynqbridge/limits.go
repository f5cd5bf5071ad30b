package asynqbridge

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// limits holds the policy that the store had when it was last read.
type limits struct {
	store    store.Deployment
	snapshot atomic.Pointer[policy.Compiled]
}

// staleReads is how many changes of the policy a call follows.
const staleReads = 3

// with calls f with the policy in force, and again when the store says that it has changed meanwhile.
func (l *limits) with(ctx context.Context, f func(*policy.Compiled) error) error {
	var err error
	var stale *policy.Compiled
	for range staleReads {
		snapshot := l.snapshot.Load()
		if snapshot == nil {
			if snapshot, err = l.readAfter(ctx, stale); err != nil {
				return fmt.Errorf("read policy: %w", err)
			}
			l.snapshot.Store(snapshot)
		}
		if err = f(snapshot); !errors.Is(err, store.ErrStale) {
			return err
		}
		if learned, bad := store.Learn(err, snapshot); learned || bad != nil {
			if err = bad; bad == nil {
				continue
			}
			return err
		}
		stale = snapshot
		l.snapshot.CompareAndSwap(snapshot, nil)
	}
	return err
}

// readAfter reads the policy after one was found to be stale, nil for none. If that is the latest all the same, a partition is
// behind, and is brought up.
func (l *limits) readAfter(ctx context.Context, stale *policy.Compiled) (*policy.Compiled, error) {
	fresh, err := l.read(ctx)
	if err == nil && stale != nil && fresh.Version() == stale.Version() {
		err = l.store.SpreadPolicy(ctx)
	}
	return fresh, err
}

func (l *limits) read(ctx context.Context) (*policy.Compiled, error) {
	text, err := l.store.Policy(ctx)
	if err != nil {
		return nil, err
	}
	return policy.PrepareStored(text)
}
