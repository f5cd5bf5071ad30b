package store

import (
	"context"
	"time"

	"github.com/headgate/headgate/internal/keyspace"
)

// ManyPartitions reports whether the store is of one partition among several: what a fleet may do so many times at once is
// then leased over all of them (LeaseProbe).
func (s *Store) ManyPartitions() bool { return s.whole != nil }

// LeaseProbe asks for the right to run a probe of a downstream's breaker, of which there are limit at a time over all
// partitions, for as long as lease. It ends with ReturnProbe, or by itself. The same token again renews it.
func (s *Store) LeaseProbe(ctx context.Context, downstream, token string, limit int, lease time.Duration) (bool, error) {
	home := s.ofDownstream(downstream)
	reply, err := home.run(ctx, "probing", home.now, downstream, token, limit, micros(lease))
	return err == nil && reply[0] == "leased", err
}

// ReturnProbe ends a lease of LeaseProbe.
func (s *Store) ReturnProbe(ctx context.Context, downstream, token string) error {
	home := s.ofDownstream(downstream)
	_, err := home.run(ctx, "probing", home.now, downstream, token, 0, 0)
	return err
}

// ofDownstream returns the store of the partition that a downstream's name picks.
func (s *Store) ofDownstream(downstream string) *Store {
	all := s.all
	if s.whole != nil {
		all = s.whole.all
	}
	if all == nil {
		return s
	}
	return all[keyspace.Of(downstream, len(all))]
}
