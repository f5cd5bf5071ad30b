package redisstore

import (
	"context"
	"slices"
	"strings"

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
	var all []store.Hold
	for _, g := range gates {
		if g.Paused() {
			all = append(all, store.Hold{Name: g.Name, What: store.HeldDispatch, Author: g.Author, Reason: g.Reason, Since: g.Since, Until: g.Until})
		}
	}
	for _, p := range suspensions {
		all = append(all, store.Hold{Name: p.Name, What: store.HeldEnqueue, Author: p.Author, Reason: p.Reason, Since: p.Since, Until: p.Until})
	}
	slices.SortStableFunc(all, func(a, b store.Hold) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return all, nil
}
