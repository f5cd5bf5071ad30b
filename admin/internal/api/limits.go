package api

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// limits holds the policy by which decisions are made, as it was last read. A script that knows a newer one says so, and
// nothing is decided until it is read.
type limits struct {
	store    store.Deployment
	snapshot atomic.Pointer[policy.Compiled]
	// reading lets one call read for all that find the same snapshot stale: they come by the hundred.
	reading singleflight.Group
}

// The bounds of with.
const (
	// staleAttempts is how many policies a decision may find to be stale one after the other.
	staleAttempts = 5
	// readTimeout bounds a read that calls share.
	readTimeout = 5 * time.Second
)

// with calls do with the policy in force. Where do finds that it is stale it is read anew and do called again.
func (l *limits) with(ctx context.Context, do func(*policy.Compiled) error) error {
	snapshot := l.snapshot.Load()
	for attempt := 1; ; attempt++ {
		if snapshot == nil {
			var err error
			if snapshot, err = l.reload(ctx, nil); err != nil {
				return err
			}
		}
		err := do(snapshot)
		if !errors.Is(err, store.ErrStale) || attempt == staleAttempts {
			return err
		}
		if learned, bad := store.Learn(err, snapshot); bad != nil {
			return bad
		} else if learned {
			continue
		}
		if snapshot, err = l.reload(ctx, snapshot); err != nil {
			return err
		}
	}
}

// reload returns a policy that was read after one was found to be stale. If that is the latest all the same, a partition is behind,
// and is brought up.
func (l *limits) reload(ctx context.Context, stale *policy.Compiled) (*policy.Compiled, error) {
	key := "none"
	if stale != nil {
		key = strconv.FormatInt(stale.Version(), 10)
	}
	read := l.reading.DoChan(key, func() (any, error) {
		if known := l.snapshot.Load(); known != stale {
			return known, nil
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout) // Whoever asked first may go away.
		defer cancel()
		fresh, err := l.read(ctx)
		if err == nil {
			l.snapshot.Store(fresh)
			if stale != nil && fresh.Version() == stale.Version() {
				err = l.store.SpreadPolicy(ctx)
			}
		}
		return fresh, err
	})
	select {
	case done := <-read:
		fresh, _ := done.Val.(*policy.Compiled)
		return fresh, done.Err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// follow reads each new version of the policy until ctx ends. What goes wrong is told, and tried again after a pause.
func (l *limits) follow(ctx context.Context, told func(version int64), failed func(error)) {
	reader := l.store.NewPolicyReader()
	defer reader.Close()
	for ctx.Err() == nil {
		if err := l.followOnce(ctx, reader, told); err != nil && ctx.Err() == nil {
			failed(err)
			pause := time.NewTimer(store.PolicyPoll)
			select {
			case <-pause.C:
			case <-ctx.Done():
			}
			pause.Stop()
		}
	}
}

func (l *limits) followOnce(ctx context.Context, reader store.PolicyReader, told func(version int64)) error {
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
