package asynqbridge

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/policy"
)

// limits holds the policy that the store had when it was last read.
type limits struct {
	store    *lua.Store
	snapshot atomic.Pointer[policy.Compiled]
}

// staleReads is how many changes of the policy a call follows.
const staleReads = 3

// with calls f with the policy in force, and again when the store says that it has changed meanwhile.
func (l *limits) with(ctx context.Context, f func(*policy.Compiled) error) error {
	var err error
	for range staleReads {
		snapshot := l.snapshot.Load()
		if snapshot == nil {
			if snapshot, err = l.read(ctx); err != nil {
				return fmt.Errorf("read policy: %w", err)
			}
			l.snapshot.Store(snapshot)
		}
		if err = f(snapshot); !errors.Is(err, lua.ErrStale) {
			return err
		}
		l.snapshot.CompareAndSwap(snapshot, nil)
	}
	return err
}

func (l *limits) read(ctx context.Context) (*policy.Compiled, error) {
	text, err := l.store.Policy(ctx)
	if err != nil {
		return nil, err
	}
	return policy.PrepareStored(text)
}
