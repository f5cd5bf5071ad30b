package worker

import (
	"context"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/lua"
)

// The shared gate of a downstream follows the breaker: dispatch to all workers stops while it is open, and is one
// probe at a time while it is half-open.
//
//	breaker      gate                                             until
//	open         shut                                             the cooldown's end + gateSlack
//	half-open    as many units as the breaker takes probes        a lease from now; renewed three times a lease
//	closed       none
//
// A gate that is not renewed opens, so that a worker that died with its breaker open leaves nothing behind that stops
// or throttles the others for ever. This worker itself sets the half-open gate as the cooldown ends, before
// the shut one does.
type gateNote struct {
	// state is that of the breaker for which the gate was set; closed is no gate.
	state breaker.State
	since breaker.Instant
	// renewAt is when the gate is to be set again though nothing has changed; zero for never.
	renewAt breaker.Instant
}

const (
	gateSlack   = 2 * time.Second
	gateRetry   = 200 * time.Millisecond
	gateRenewal = 3 // times a lease
)

// run sets gates until ctx ends. The work is here because a handler should not wait for it.
func (b *breakers) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	failing := false
	for {
		next, err := b.setGates(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			b.logger.Warn().Err(err).Msg("gate of a downstream not set, trying again")
		}
		failing = err != nil
		timer.Reset(next)
		select {
		case <-b.changed:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// setGates brings every gate in line with its breaker, and returns when to look again.
func (b *breakers) setGates(ctx context.Context) (next time.Duration, err error) {
	next = time.Hour
	for _, g := range b.attended() {
		wait, failed := b.setGate(ctx, g)
		if failed != nil {
			err, wait = failed, gateRetry
		}
		next = min(next, wait)
	}
	return next, err
}

func (b *breakers) attended() []*guard {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]*guard, 0, len(b.mu.attention))
	for g := range b.mu.attention {
		all = append(all, g)
	}
	return all
}

// setGate brings one gate in line. It also notices what time alone changes: the end of a cooldown, a lost probe.
func (b *breakers) setGate(ctx context.Context, g *guard) (next time.Duration, err error) {
	b.noted(g, g.breaker.AdvanceAt(b.instant()))
	now := b.instant()
	snapshot := g.breaker.SnapshotAt(now)
	note := gateNote{state: snapshot.State, since: snapshot.Since}
	changed := note.state != g.gate.state || note.since != g.gate.since
	if changed || g.gate.renewAt != 0 && now >= g.gate.renewAt {
		if note.state == breaker.HalfOpen {
			note.renewAt = now.Add(b.gateLease / gateRenewal)
		}
		if err := b.send(ctx, g, snapshot, now); err != nil {
			return 0, err
		}
		g.gate = note
	}
	if note.state == breaker.Closed {
		b.forget(g, snapshot.Since)
		return time.Hour, nil
	}
	next = time.Hour
	if wait, ok := g.breaker.NextChangeAt(now); ok {
		next = wait
	}
	if g.gate.renewAt != 0 {
		next = min(next, g.gate.renewAt.Sub(now))
	}
	return max(next, time.Millisecond), nil
}

// forget ends the attention to a guard that is still closed since that instant, or was opened and closed again.
func (b *breakers) forget(g *guard, since breaker.Instant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := g.breaker.SnapshotAt(b.instant()); s.State == breaker.Closed && s.Since == since {
		delete(b.mu.attention, g)
	}
}

func (b *breakers) send(ctx context.Context, g *guard, snapshot breaker.Snapshot, now breaker.Instant) error {
	gate := lua.Gate{Name: lua.DownstreamGate(g.name), Limit: lua.Unlimited, Then: lua.Unlimited}
	switch snapshot.State {
	case breaker.Open:
		gate.Limit, gate.For, gate.Reason = 0, max(snapshot.Until.Sub(now), 0)+gateSlack, "breaker open: "+snapshot.Cause.String()
	case breaker.HalfOpen:
		gate.Limit, gate.For, gate.Reason = g.breaker.Config().MaxProbes, b.gateLease, "breaker half-open"
	case breaker.Closed:
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, more, err := b.store.SetGate(ctx, gate)
	if err == nil && more {
		b.promoting.give()
	}
	return err
}
