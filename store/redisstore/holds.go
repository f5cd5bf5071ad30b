package redisstore

import (
	"context"

	"github.com/headgate/headgate/store"
)

// Holds returns every pause and suspension, by name. It is read in pages: what changes meanwhile may be missing.
func (s *Partition) Holds(ctx context.Context) ([]store.Hold, error) { return holdsOf(ctx, s) }

func holdsOf(ctx context.Context, of store.Gates) ([]store.Hold, error) {
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
