package limiter

import (
	"context"
	"fmt"

	"github.com/headgate/headgate/admission"
)

// Guarantee is the bound in force at one scope, over all limiters of the deployment that have the same Config.
type Guarantee struct {
	Scope admission.Scope
	// Unlimited says that the scope has no limit, and the rest is zero.
	Unlimited bool
	// Rate and Burst are the policy's: over all time at most Burst + Rate·t is admitted.
	Rate  admission.TokensPerSecond
	Burst admission.Tokens
	// Window is that of a limit of windows. Of fixed ones at most Burst is admitted in each, and so twice as much in as long a time that a beginning
	// lies in; of sliding ones in any time that is as long.
	Window admission.Window
	// Parts is how many partitions of the deployment divide the limit among them: a check has no more than the part of its
	// tenant's. It is 1 but for the global scope.
	Parts int
	// Leased is how much more than that may be admitted in a window: what limiters may hold as it begins. Zero with
	// Config.Strict, which keeps it within Burst, and with Config.Exact.
	Leased admission.Tokens
	// Strict is Config.Strict.
	Strict bool
	// Outage is what becomes of checks without Redis. What is admitted then comes on top, and is taken off afterwards up to Burst.
	Outage Outage
}

// Guarantee returns the bound in force at a scope. It asks Redis only where the policy was never read.
func (l *Limiter) Guarantee(ctx context.Context, name admission.Scope) (Guarantee, error) {
	tenant, queue, class, err := name.Parts()
	if err != nil {
		return Guarantee{}, err
	}
	if l.parts != nil {
		return l.parts[l.store.PartitionOf(tenant)].Guarantee(ctx, name)
	}
	inForce, err := l.current(ctx)
	if err != nil {
		return Guarantee{}, err
	}
	g := Guarantee{Scope: name, Strict: l.config.Strict, Outage: l.config.outageOf(name)}
	limit := inForce.LimitsFor(tenant, queue, class)[name.Level()]
	if limit.Disabled || limit.Tokens == 0 {
		return Guarantee{Scope: name, Unlimited: true}, nil
	}
	parts := l.ways.partsAt(name.Level())
	g.Rate, g.Burst, g.Parts, g.Window = limit.Rate(), limit.Burst, int(parts), limit.Window
	g.Leased = l.config.beyond(parts * leasable(&limit, &l.config, parts))
	return g, nil
}

// String prints the bound.
func (g Guarantee) String() string {
	if g.Unlimited {
		return fmt.Sprintf("%s: no limit", g.Scope)
	}
	window := fmt.Sprintf("%d more", g.Leased)
	if g.Leased == 0 {
		window = "no more"
	}
	parts := ""
	if g.Parts > 1 {
		parts = fmt.Sprintf(" in %d parts", g.Parts)
	}
	if g.Window.Grain() > 0 {
		return fmt.Sprintf("%s: at most %d%s%s; without redis: %s, and up to %d taken off on return", g.Scope, g.Burst, g.Window.Words(), parts, g.Outage, g.Burst)
	}
	if !g.Window.IsZero() {
		return fmt.Sprintf("%s: at most %d%s%s, and twice that in as long a time around a beginning; without redis: %s, and up to %d taken off on return",
			g.Scope, g.Burst, g.Window.Words(), parts, g.Outage, g.Burst)
	}
	return fmt.Sprintf("%s: over all time at most %d + %g/s%s, in any window %s; without redis: %s, and up to %d taken off on return",
		g.Scope, g.Burst, float64(g.Rate), parts, window, g.Outage, g.Burst)
}
