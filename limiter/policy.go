package limiter

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/headgate/headgate/admission"
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

// leader is the limiter of the first partition, whose policy says what is declared.
func (l *Limiter) leader() *Limiter {
	if l.parts != nil {
		return l.parts[0]
	}
	return l
}

// known returns the policy in force, and reads it where there is none, unless Redis is known to be away.
func (l *Limiter) known(ctx context.Context) (*policy.Compiled, error) {
	if inForce := l.policy.Load(); inForce != nil {
		return inForce, nil
	}
	if l.line.isClosed() {
		return nil, ErrClosed
	}
	now := l.clock.now()
	call, change, ok := l.breaker.TryAcquireAt(now)
	l.tell(change)
	if !ok {
		l.notIn(now)
		return nil, errShut
	}
	limited, cancel := context.WithTimeout(ctx, l.config.Timeout)
	defer cancel()
	inForce, err := l.current(limited)
	if ctx.Err() != nil {
		l.tell(call.IgnoreAt(l.clock.now()))
		return nil, context.Cause(ctx)
	}
	l.leave(&call, err)
	return inForce, err
}

// redeclared returns the policy in force where it is another than the one in which a class or a dimension is missing: it asks once in heardLife, so that
// callers who name what nobody declares cost no more.
func (l *Limiter) redeclared(ctx context.Context, missing *policy.Compiled) *policy.Compiled {
	now, due := l.clock.now(), l.declaredAt.Load()
	if l.config.Policy == nil && int64(now) >= due && int64(now) >= l.shut.Load() && l.declaredAt.CompareAndSwap(due, int64(now.Add(heardLife))) {
		limited, cancel := context.WithTimeout(ctx, l.config.Timeout)
		defer cancel()
		if version, err := l.part.PolicyInForce(limited); err == nil && version != missing.Version() {
			_ = l.reload(limited, missing) // Without it the caller is told what it was.
		}
	}
	return l.policy.Load()
}

// errUndeclared is the error of a dimension that is no more.
func errUndeclared(owner string) error {
	return &admission.FieldError{Field: "also", Value: strconv.Quote(owner[len(admission.DimensionMark):]), Allowed: "dimensions that the policy declares"}
}
