package sessions

import (
	"context"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// gate is a downstream's breaker in one partition.
type gate struct {
	part       int
	downstream string
}

func (l *leased) gate() gate { return gate{l.index, l.Job.Service()} }

// gates are the breakers of what a page of leases calls.
type gates map[gate]store.BreakerState

// read reads the one of a lease, unless it is known or there is none.
func (g gates) read(ctx context.Context, l *leased) error {
	at := l.gate()
	if _, known := g[at]; known || at.downstream == "" {
		return nil
	}
	state, err := l.part.Breaker(ctx, at.downstream)
	if err = unless(store.ErrNoBreaker, err); err == nil {
		g[at] = state
	}
	return err
}

// pass reports whether a job may be handed out (law L10): one of a downstream that is not well only as a probe.
func (g gates) pass(l *leased) bool {
	state, known := g[l.gate()]
	switch {
	case !known || state.State == breaker.Closed:
		return true
	case state.State == breaker.HalfOpen:
		return l.Period == state.Period
	}
	return false
}

// probeSlack is for how long a probe counts beyond the time in which it should have ended.
const probeSlack = 2 * time.Second

// leaseProbe reports whether a job that its partition lets through as a probe is one of those that the fleet may have at a time:
// each partition has a half-open breaker, and all of them together as many probes as one (law L11).
func (a *Sessions) leaseProbe(ctx context.Context, s session, l *leased, state store.BreakerState) bool {
	if state.State != breaker.HalfOpen || len(a.parts) == 1 {
		return true
	}
	ok, err := a.config.Store.LeaseRight(ctx, l.Job.Service(), s.probeToken(l), state.Limit, state.ProbeTimeout+probeSlack)
	if err != nil {
		a.config.Missed("a probe is not leased, its job goes back", err)
	}
	return ok && err == nil
}

// returnProbe gives back what leaseProbe may have taken for a job that has ended. A lease that is not given back ends by itself.
func (a *Sessions) returnProbe(ctx context.Context, s session, l *leased) {
	if l.Period == 0 || l.Job.Downstream == "" || len(a.parts) == 1 {
		return
	}
	if err := a.config.Store.ReturnRight(ctx, l.Job.Service(), s.probeToken(l)); err != nil {
		a.config.Missed("a probe is not given back", err)
	}
}

// probeToken names a probe, the same to every server.
func (s session) probeToken(l *leased) string { return s.worker + "#" + l.name() }
