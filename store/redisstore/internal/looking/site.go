package looking

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/codec"
)

// Gates returns every gate, by name. Rates are listed without what is left of them. It is read in pages, so gates that change
// meanwhile may be missing.
func (s *Looking) Gates(ctx context.Context) ([]store.GateState, error) {
	stored, err := s.conn.WholeHash(ctx, s.conn.Partition.Gates(), "")
	if err != nil {
		return nil, err
	}
	limits := DefaultLimits(stored)
	gates := make([]store.GateState, 0, len(stored))
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		if kind, _ := store.GateName(name).Split(); kind == store.KindReserve {
			continue
		}
		g, err := codec.ParseGate(name, stored[name], limits)
		if err != nil {
			return nil, err
		}
		gates = append(gates, g)
	}
	return gates, s.putRecorded(ctx, gates, stored, limits)
}

// putRecorded gives gates of tenants the limits that their records say, where records give caps.
func (s *Looking) putRecorded(ctx context.Context, gates []store.GateState, stored map[string]string, limits map[string]int) error {
	var ofTenants []*store.GateState
	for i := range gates {
		if kind, _ := gates[i].Name.Split(); kind == store.KindTenant && !gates[i].Name.OfEach() {
			ofTenants = append(ofTenants, &gates[i])
		}
	}
	if len(ofTenants) == 0 {
		return nil
	}
	state, err := redisconn.Client(s.conn).HMGet(ctx, s.conn.Partition.State(), "ng", "tc").Result()
	if err != nil {
		return fmt.Errorf("read caps: %w", redisconn.Unread(err))
	}
	if counts, _, _ := strings.Cut(redisconn.TextAt(state, 0), "|"); !strings.Contains(counts, "c") {
		return nil
	}
	caps := codec.RecordedCaps{Tiers: codec.ParseTierCaps(redisconn.TextAt(state, 1)), Each: limits[string(store.TenantGate(store.Every))]}
	for some := range slices.Chunk(ofTenants, store.ListPortion) {
		tenants := make([]string, len(some))
		for i, g := range some {
			_, tenants[i] = g.Name.Split()
		}
		records, err := redisconn.Client(s.conn).HMGet(ctx, s.conn.Partition.Records(), tenants...).Result()
		if err != nil {
			return fmt.Errorf("read records of tenants: %w", redisconn.Unread(err))
		}
		for i, g := range some {
			caps.Put(g, stored[string(g.Name)], redisconn.TextAt(records, i))
		}
	}
	return nil
}

// DefaultLimits picks the gates of all that have none of their own out of what is stored.
func DefaultLimits(stored map[string]string) map[string]int {
	limits := map[string]int{}
	for name, value := range stored {
		if store.GateName(name).OfEach() {
			limit, _, _ := strings.Cut(value, "|")
			limits[name], _ = strconv.Atoi(limit)
		}
	}
	return limits
}

// Suspensions returns every Suspension, by name.
func (s *Looking) Suspensions(ctx context.Context) ([]store.Suspension, error) {
	stored, err := s.conn.WholeHash(ctx, s.conn.Partition.Base()+"suspended", "")
	if err != nil {
		return nil, err
	}
	all := make([]store.Suspension, 0, len(stored))
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		p, err := codec.ParseSuspension(name, stored[name])
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// Workers returns every registered worker, by pool and name.
func (s *Looking) Workers(ctx context.Context) ([]store.WorkerState, error) {
	stored, err := redisconn.Client(s.conn).HGetAll(ctx, s.conn.Partition.Workers()).Result()
	if err != nil {
		return nil, fmt.Errorf("read workers: %w", redisconn.Unread(err))
	}
	pools, err := s.pools(ctx)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(stored))
	ends, err := s.leaseEnds(ctx, names)
	if err != nil {
		return nil, err
	}
	workers := make([]store.WorkerState, 0, len(stored))
	for i, name := range names {
		w := store.WorkerState{Name: name, LeaseEnd: ends[i]}
		parts := strings.Split(stored[name], "|")
		if len(parts) != 3 {
			return nil, fmt.Errorf("read worker %s: %w", name, redisconn.ErrUnknownReply)
		}
		w.Pool = parts[0]
		if w.Slots, err = strconv.Atoi(parts[1]); err != nil {
			return nil, fmt.Errorf("read worker %s: %w", name, err)
		}
		if p, ok := pools[w.Pool]; ok {
			w.Queues, w.Held = p.Pool.Queues, p.Held[name]
		}
		workers = append(workers, w)
	}
	slices.SortStableFunc(workers, func(a, b store.WorkerState) int { return cmp.Compare(a.Pool, b.Pool) })
	return workers, nil
}

// leaseEnds returns when the lease of each worker ends.
func (s *Looking) leaseEnds(ctx context.Context, workers []string) ([]time.Time, error) {
	ends := make([]time.Time, len(workers))
	if len(workers) == 0 {
		return ends, nil
	}
	timers := make([]string, len(workers))
	for i, name := range workers {
		timers[i] = "w" + name
	}
	scores, err := redisconn.Client(s.conn).ZMScore(ctx, s.conn.Partition.Due(), timers...).Result()
	if err != nil {
		return nil, fmt.Errorf("read leases: %w", redisconn.Unread(err))
	}
	for i, score := range scores {
		if score > 0 {
			ends[i] = time.UnixMicro(int64(score))
		}
	}
	return ends, nil
}

// pools returns every pool by id. An entry of a stream that no worker has read is in nobody's count.
func (s *Looking) pools(ctx context.Context) (map[string]*codec.PoolState, error) {
	state, err := redisconn.Client(s.conn).HGetAll(ctx, s.conn.Partition.State()).Result()
	if err != nil {
		return nil, fmt.Errorf("read pools: %w", redisconn.Unread(err))
	}
	all := map[string]*codec.PoolState{}
	for field, value := range state {
		id, ok := strings.CutPrefix(field, "pool:")
		if !ok {
			continue
		}
		p := codec.ParsePool(value)
		pending, err := redisconn.Client(s.conn).XPending(ctx, s.conn.Partition.Ready(id), redisconn.Group).Result()
		switch {
		case err == nil:
			for worker, n := range pending.Consumers {
				p.Held[worker] = int(n)
			}
		case redisconn.IsPoolGone(err) || redisconn.IsNil(err):
			continue // The pool was closed since the state was read.
		default:
			return nil, fmt.Errorf("read pool %s: %w", id, redisconn.Unread(err))
		}
		all[id] = p
	}
	return all, nil
}
