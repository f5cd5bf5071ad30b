package producer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/policy"
)

// flight is the tickets of one admit call, resent as often as need be. Only its leader touches it.
type flight struct {
	tickets []*ticket
	// sentFirst is when the first attempt was made that may have arrived; zero before.
	sentFirst time.Time
	// doubted says that an attempt may have been carried out without an answer.
	doubted bool
	// failures counts the attempts without an answer; failure is the last one's error.
	failures int
	failure  error
}

// Pauses between the attempts of a flight: even in [0, d), d doubling from the first to the last.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 200 * time.Millisecond
)

// Failures of flights that no caller is left to see, or that only a panic explains.
var (
	errAbandoned = errors.New("flight abandoned")
	errPanicked  = errors.New("the sending goroutine panicked")
)

// travel takes a ticket through the line. A nil error means that each entry has a verdict or an error of its own.
func (p *Producer) travel(ctx context.Context, t *ticket) error {
	if p.line.join(t) {
		return p.lead(ctx, t)
	}
	select {
	case <-t.turn:
		if p.line.isSettled(t) {
			return t.failure
		}
		if ctx.Err() == nil {
			return p.lead(ctx, t)
		}
	case <-ctx.Done():
	}
	return p.leave(ctx, t)
}

// leave is the way out of a caller whose ctx has ended while it was not leading.
func (p *Producer) leave(ctx context.Context, t *ticket) error {
	was, orphan := p.line.leave(t)
	if orphan != nil {
		p.line.land(orphan, errAbandoned)
	}
	switch was {
	case settled:
		return t.failure
	case queued:
		return notSent(ctx)
	case leading, flying:
	}
	return unknown(context.Cause(ctx))
}

// lead flies: one attempt after the other, until there is an answer, no attempt is allowed any more, or ctx ends.
// Then another caller of the flight, if one is left, goes on in its place.
func (p *Producer) lead(ctx context.Context, t *ticket) error {
	f := p.line.board(t)
	over := false
	defer func() {
		if !over { // By a panic: nobody may wait for ever.
			p.line.land(f, unknown(errPanicked))
		}
	}()
	for {
		err := p.attempt(ctx, f)
		if err == nil || !p.mayRepeat(f, err) {
			over = true
			err = f.outcome(err)
			p.line.land(f, err)
			return err
		}
		if pause(ctx, f.failures) {
			continue
		}
		over = true
		err = f.outcome(fmt.Errorf("%w: %w", context.Cause(ctx), err))
		if !p.line.handOver(f, t) {
			p.line.land(f, errAbandoned)
		}
		return err
	}
}

// pause waits before the next attempt; false when ctx ended first. The jitter is full: all producers lost Redis in
// the same moment.
func pause(ctx context.Context, failures int) bool {
	timer := time.NewTimer(rand.N(min(lastPause, firstPause<<min(failures-1, 10))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// attempt makes one admit call for the jobs of the flight. Where the policy has changed since it was read, nothing
// was done: it is read anew and the call repeated, up to maxStale times.
func (p *Producer) attempt(ctx context.Context, f *flight) error {
	for stale := 0; ; stale++ {
		snapshot, err := p.limits.current(ctx)
		if err != nil {
			return err
		}
		entries, candidates := f.candidates(snapshot)
		if len(entries) == 0 {
			return nil
		}
		if f.sentFirst.IsZero() {
			f.sentFirst = time.Now()
		}
		if err := p.checkWindow(f); err != nil {
			return err
		}
		verdicts, err := p.store.Admit(ctx, snapshot.Version(), candidates)
		if errors.Is(err, lua.ErrStale) && stale < maxStale {
			if err := p.refresh(ctx, snapshot); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return err
		}
		for i, e := range entries {
			e.verdict = verdicts[i]
		}
		note(p.tally, entries)
		p.shadow(ctx, snapshot, entries)
		return nil
	}
}

// maxStale is how often an admit call is repeated because the policy has changed.
const maxStale = 2

// refresh reads the policy anew for whoever was told that another than snapshot is in force. If snapshot is the latest all the
// same, the partition is behind, and is brought up.
func (p *Producer) refresh(ctx context.Context, snapshot *policy.Compiled) error {
	if err := p.limits.reload(ctx, snapshot); err != nil {
		return err
	}
	if p.limits.snapshot.Load().Version() != snapshot.Version() {
		return nil
	}
	return p.store.SpreadPolicy(ctx)
}
