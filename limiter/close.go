package limiter

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// Close lets nobody ask any more, waits for the calls under way, and gives back what is left on lease; the limiter counts as
// gone. After an error it may be called again: Redis takes a lease back once. What is not given back is lost to the scope.
func (l *Limiter) Close(ctx context.Context) error {
	if l.parts != nil {
		return l.closeParts(ctx)
	}
	l.line.close()
	l.reports.close()
	if l.policy.Load() == nil {
		return nil // It never asked.
	}
	all := l.ways.returns(l.clock.now())
	var bad []error
	for first := true; first || len(all) > 0; first = false {
		some := all[:min(len(all), store.MaxBatchJobs)]
		all = all[len(some):]
		err := l.giveBack(ctx, some)
		if errors.Is(err, store.ErrStale) && l.renew(ctx, l.policy.Load(), err) == nil {
			err = l.giveBack(ctx, some)
		}
		if err != nil {
			bad = append(bad, fmt.Errorf("give leases back: %w", err))
			l.ways.keep(some)
		}
	}
	l.report(ctx, true)
	return errors.Join(bad...)
}

// giveBack makes one call for some of what is left, or for nothing but to say that the limiter is gone.
func (l *Limiter) giveBack(ctx context.Context, some []leftover) error {
	inForce := l.policy.Load()
	grant := store.Grant{Version: inForce.Version(), Member: l.member, Lease: leaseLife, Beat: -1}
	for _, r := range append([]leftover{{way: &way{}}}, some...) { // The first asks for nothing, so that there is a question.
		w, err := l.ways.open(l.clock.now(), r.way.asked, inForce)
		if err != nil {
			continue // Its class is gone, and its bucket too.
		}
		if r.tokens > 0 {
			grant.Accounts = append(grant.Accounts, store.Account{Question: len(grant.Questions), Level: r.scope.level, Back: r.tokens})
		}
		grant.Questions = append(grant.Questions, w.question(0))
	}
	_, err := l.part.Grant(ctx, &grant)
	if err == nil {
		l.counts.gaveBack(some)
	}
	return err
}

// leftover is what is left on lease of a scope when a limiter closes.
type leftover struct {
	way    *way
	scope  *scope
	tokens admission.Tokens
}

// returns forgets all ways, and takes what is left of each lease.
func (m *ways) returns(now breaker.Instant) (all []leftover) {
	defer m.front.clear()
	for at, w := range m.known.All() {
		m.known.Delete(at)
		for _, s := range w.scopes {
			if tokens := s.drain(); tokens > 0 && now < breaker.Instant(s.until.Load()) && !s.isStock() {
				all = append(all, leftover{w, s, tokens})
			}
		}
	}
	return all
}

// keep undoes returns, for the next try.
func (m *ways) keep(all []leftover) {
	for _, r := range all {
		r.scope.putBack(r.tokens)
		m.known.Store(r.way.asked, r.way)
	}
}
