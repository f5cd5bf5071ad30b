package redisstore

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
)

// parseGate reads what gate.lua describes. limits are those of the gates of all that have none of their own.
func parseGate(name, value string, limits map[string]int) (store.GateState, error) {
	g := store.GateState{Name: store.GateName(name), Then: store.Unlimited}
	parts := strings.SplitN(value, "|", 5)
	bad := func(err error) (store.GateState, error) {
		return store.GateState{}, fmt.Errorf("read gate %s: %w", name, cmp.Or(err, redisconn.ErrUnknownReply))
	}
	kind, _ := g.Name.Split()
	var err error
	switch {
	case len(parts) < 2:
		return bad(nil)
	case kind == store.KindTenantRate || kind == store.KindDownstreamRate:
		return parseRate(g, parts)
	case parts[0] == "*":
		g.Limit = limits[store.DefaultGate(g.Name)]
	default:
		g.Limit, err = strconv.Atoi(parts[0])
		g.NoShare, g.Limit = g.Limit < 0, max(0, g.Limit)
	}
	if err != nil {
		return bad(err)
	}
	if g.Held, err = strconv.Atoi(parts[1]); err != nil || len(parts) < 5 {
		return g, err
	}
	if g.Until, err = parseMicros(parts[2]); err != nil {
		return bad(err)
	}
	if parts[3] != "" {
		if g.Then, err = strconv.Atoi(parts[3]); err != nil {
			return bad(err)
		}
	}
	g.Reason, g.Author, g.Since = parseHoldReason(parts[4])
	if !g.Paused() {
		g.Author, g.Since = "", time.Time{}
	}
	return g, nil
}

// parseRate reads rate|burst and what follows: a bucket, or from a Sighting the time until the next token.
func parseRate(g store.GateState, parts []string) (store.GateState, error) {
	perMicrosecond, err := strconv.ParseFloat(parts[0], 64)
	if err != nil {
		return store.GateState{}, fmt.Errorf("read gate %s: %w", g.Name, err)
	}
	burst, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return store.GateState{}, fmt.Errorf("read gate %s: %w", g.Name, err)
	}
	g.Rate, g.Burst = perMicrosecond, int(burst/microsPerToken)
	if len(parts) > 2 && !strings.Contains(parts[2], ":") {
		g.Until, err = parseMicros(parts[2])
	}
	return g, err
}

// Gates returns every gate, by name. Rates are listed without what is left of them. It is read in pages, so gates that change
// meanwhile may be missing.
func (s *Partition) Gates(ctx context.Context) ([]store.GateState, error) {
	stored, err := s.wholeHash(ctx, s.partition.Gates(), "")
	if err != nil {
		return nil, err
	}
	limits := defaultLimits(stored)
	gates := make([]store.GateState, 0, len(stored))
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		g, err := parseGate(name, stored[name], limits)
		if err != nil {
			return nil, err
		}
		gates = append(gates, g)
	}
	return gates, nil
}

// defaultLimits picks the gates of all that have none of their own out of what is stored.
func defaultLimits(stored map[string]string) map[string]int {
	limits := map[string]int{}
	for name, value := range stored {
		if strings.Contains(name, ":*") {
			limit, _, _ := strings.Cut(value, "|")
			limits[name], _ = strconv.Atoi(limit)
		}
	}
	return limits
}

// Suspensions returns every Suspension, by name.
func (s *Partition) Suspensions(ctx context.Context) ([]store.Suspension, error) {
	stored, err := s.wholeHash(ctx, s.partition.Base()+"suspended", "")
	if err != nil {
		return nil, err
	}
	all := make([]store.Suspension, 0, len(stored))
	for _, name := range slices.Sorted(maps.Keys(stored)) {
		p, err := parseSuspension(name, stored[name])
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// parseSuspension reads until|reason.
func parseSuspension(name, text string) (store.Suspension, error) {
	end, reason, _ := strings.Cut(text, "|")
	p := store.Suspension{Name: store.GateName(name)}
	var err error
	if p.Until, err = parseMicros(end); err != nil {
		return p, fmt.Errorf("read suspension %s: %w", name, err)
	}
	p.Reason, p.Author, p.Since = parseHoldReason(reason)
	return p, nil
}

// Workers returns every registered worker, by pool and name.
func (s *Partition) Workers(ctx context.Context) ([]store.WorkerState, error) {
	stored, err := connection(s).HGetAll(ctx, s.partition.Workers()).Result()
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
			w.Queues, w.Held = p.pool.Queues, p.held[name]
		}
		workers = append(workers, w)
	}
	slices.SortStableFunc(workers, func(a, b store.WorkerState) int { return cmp.Compare(a.Pool, b.Pool) })
	return workers, nil
}

// leaseEnds returns when the lease of each worker ends.
func (s *Partition) leaseEnds(ctx context.Context, workers []string) ([]time.Time, error) {
	ends := make([]time.Time, len(workers))
	if len(workers) == 0 {
		return ends, nil
	}
	timers := make([]string, len(workers))
	for i, name := range workers {
		timers[i] = "w" + name
	}
	scores, err := connection(s).ZMScore(ctx, s.partition.Due(), timers...).Result()
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

// poolState is a pool and who holds what of its stream.
type poolState struct {
	pool  store.Pool
	slots int
	// held counts entries by worker.
	held map[string]int
}

// pools returns every pool by id. An entry of a stream that no worker has read is in nobody's count.
func (s *Partition) pools(ctx context.Context) (map[string]*poolState, error) {
	state, err := connection(s).HGetAll(ctx, s.partition.State()).Result()
	if err != nil {
		return nil, fmt.Errorf("read pools: %w", redisconn.Unread(err))
	}
	all := map[string]*poolState{}
	for field, value := range state {
		id, ok := strings.CutPrefix(field, "pool:")
		if !ok {
			continue
		}
		p := parsePool(value)
		pending, err := connection(s).XPending(ctx, s.partition.Ready(id), group).Result()
		switch {
		case err == nil:
			for worker, n := range pending.Consumers {
				p.held[worker] = int(n)
			}
		case isPoolGone(err) || redisconn.IsNil(err):
			continue // The pool was closed since the state was read.
		default:
			return nil, fmt.Errorf("read pool %s: %w", id, redisconn.Unread(err))
		}
		all[id] = p
	}
	return all, nil
}

// parsePool reads slots|mode|cur|left|queue=weight,….
func parsePool(value string) *poolState {
	parts := strings.SplitN(value, "|", 5)
	p := &poolState{held: map[string]int{}}
	if len(parts) < 5 {
		return p
	}
	p.slots, _ = strconv.Atoi(parts[0])
	p.pool.Strict = parts[1] == "s"
	for part := range strings.SplitSeq(parts[4], ",") {
		queue, weight, _ := strings.Cut(part, "=")
		n, _ := strconv.Atoi(weight)
		p.pool.Queues = append(p.pool.Queues, store.QueueWeight{Queue: queue, Weight: n})
	}
	return p
}
