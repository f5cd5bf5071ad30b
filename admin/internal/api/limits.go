package api

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/policy"
)

// limits holds the policy by which decisions are made, as it was last read. A script that knows a newer one says so, and
// nothing is decided until it is read.
type limits struct {
	store    *lua.Store
	snapshot atomic.Pointer[policy.Compiled]
}

// with calls do with the policy in force. Where do finds that it is stale it is read anew and do called once more.
func (l *limits) with(ctx context.Context, do func(*policy.Compiled) error) error {
	snapshot := l.snapshot.Load()
	for again := false; ; again = true {
		if snapshot == nil {
			var err error
			if snapshot, err = l.read(ctx); err != nil {
				return err
			}
			l.snapshot.Store(snapshot)
		}
		err := do(snapshot)
		if !errors.Is(err, lua.ErrStale) || again {
			return err
		}
		snapshot = nil
	}
}

// follow reads each new version of the policy until ctx ends. What goes wrong is told, and tried again after a pause.
func (l *limits) follow(ctx context.Context, told func(version int64), failed func(error)) {
	reader := l.store.NewPolicyReader()
	defer reader.Close()
	for ctx.Err() == nil {
		if err := l.followOnce(ctx, reader, told); err != nil && ctx.Err() == nil {
			failed(err)
			pause := time.NewTimer(lua.PolicyPoll)
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
			pause.Stop()
		}
	}
}

func (l *limits) followOnce(ctx context.Context, reader *lua.PolicyReader, told func(version int64)) error {
	known := int64(-1) // Nothing was read yet: whatever is in force is new.
	if snapshot := l.snapshot.Load(); snapshot != nil {
		known = snapshot.Version()
	}
	version, err := reader.Next(ctx, known)
	if err != nil || version == known {
		return err
	}
	fresh, err := l.read(ctx)
	if err != nil {
		return err
	}
	l.snapshot.Store(fresh)
	told(fresh.Version())
	return nil
}

// readable reports a stored policy that is of no use.
func (l *limits) readable(ctx context.Context) error {
	_, err := l.read(ctx)
	return err
}

func (l *limits) read(ctx context.Context) (*policy.Compiled, error) {
	text, err := l.store.Policy(ctx)
	if err != nil {
		return nil, err
	}
	return policy.PrepareStored(text)
}
