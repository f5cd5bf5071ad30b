package looking

import (
	"context"

	"github.com/headgate/headgate/store"
)

// Holds returns every pause and suspension, by name. It is read in pages: what changes meanwhile may be missing.
func (s *Looking) Holds(ctx context.Context) ([]store.Hold, error) { return HoldsOf(ctx, s) }

// standing is what holds are read of.
type standing interface {
	Gates(ctx context.Context) ([]store.GateState, error)
	Suspensions(ctx context.Context) ([]store.Suspension, error)
}

// HoldsOf returns what stands of a partition or a deployment as holds, by name.
func HoldsOf(ctx context.Context, of standing) ([]store.Hold, error) {
	gates, err := of.Gates(ctx)
	if err != nil {
		return nil, err
	}
	suspensions, err := of.Suspensions(ctx)
	if err != nil {
		return nil, err
	}
	return store.HoldsOf(gates, suspensions), nil
}
