package store

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
)

// GateState is a gate as it stands.
type GateState struct {
	Name GateName
	// Limit is the number of jobs at a time, 0 for shut; Held how many entries of ready streams passed under it, of a
	// breaker's gate those that were dispatched in its period.
	Limit, Held int
	// NoShare says of a Limit of 0 that it is no pause: the partition has no whole unit of a cap until shares are balanced.
	NoShare bool
	// Until is when the limit ends, zero for never by itself; Then is the limit after that, Unlimited for no gate. Of a
	// rate that lets nothing pass, Until is when it lets the next job.
	Until time.Time
	Then  int
	// Reason is what was said when it was set. Of a pause, Author is who set it and Since when; empty where an older release did.
	Reason, Author string
	Since          time.Time
	// Rate is dispatches a second and Burst how many at once, where the gate is a rate; Limit and Held are then 0.
	Rate  float64
	Burst int
	// Shares is what each partition has of Limit, or of Rate, where several divide it among them; nil elsewhere.
	Shares []float64
}

// Shut reports whether nothing passes now.
func (g GateState) Shut() bool {
	if g.Burst > 0 {
		return !g.Until.IsZero()
	}
	return g.Held >= g.Limit
}

// Paused reports whether an operator has shut it.
func (g GateState) Paused() bool {
	kind, _ := g.Name.split()
	return g.Limit == 0 && g.Burst == 0 && !g.NoShare && kind != gateBreaker
}

// The kinds of gates, by the first byte of their names.
const (
	gateQueue          = 'q'
	gateTenant         = 't'
	gateTenantQueue    = 'u'
	gateDownstream     = 'd'
	gateBreaker        = 'b'
	gateTenantRate     = 'r'
	gateDownstreamRate = 's'
)

// split returns the kind of a gate and what it guards.
func (n GateName) split() (kind byte, guarded string) {
	before, after, _ := strings.Cut(string(n), ":")
	if len(before) != 1 {
		return 0, string(n)
	}
	return before[0], after
}

// Tenant returns the tenant that a gate is about.
func (n GateName) Tenant() (tenant string, ofTenant bool) {
	switch kind, guarded := n.split(); kind {
	case gateTenant, gateTenantQueue, gateTenantRate:
		tenant, _, _ = strings.Cut(guarded, ":")
		return tenant, true
	}
	return "", false
}

// Words names what a gate guards for people, such as "tenant acme in queue mail".
func (n GateName) Words() string {
	kind, guarded := n.split()
	switch kind {
	case gateQueue:
		return "queue " + guarded
	case gateTenant, gateTenantRate:
		return "tenant " + guarded
	case gateTenantQueue:
		tenant, queue, _ := strings.Cut(guarded, ":")
		return "tenant " + tenant + " in queue " + queue
	case gateDownstream, gateBreaker, gateDownstreamRate:
		return "downstream " + guarded
	}
	return string(n)
}

// defaultGate names the gate of all that have none of their own.
func defaultGate(name GateName) string {
	kind, guarded := name.split()
	if kind == gateTenantQueue {
		_, queue, _ := strings.Cut(guarded, ":")
		return string(TenantQueueGate("*", queue))
	}
	return string(kind) + ":*"
}

// parseGate reads what gate.lua describes. limits are those of the gates of all that have none of their own.
func parseGate(name, value string, limits map[string]int) (GateState, error) {
	g := GateState{Name: GateName(name), Then: Unlimited}
	parts := strings.SplitN(value, "|", 5)
	bad := func(err error) (GateState, error) {
		return GateState{}, fmt.Errorf("read gate %s: %w", name, cmp.Or(err, redisconn.ErrUnknownReply))
	}
	kind, _ := g.Name.split()
	var err error
	switch {
	case len(parts) < 2:
		return bad(nil)
	case kind == gateTenantRate || kind == gateDownstreamRate:
		return parseRate(g, parts)
	case parts[0] == "*":
		g.Limit = limits[defaultGate(g.Name)]
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
func parseRate(g GateState, parts []string) (GateState, error) {
	perMicrosecond, err := strconv.ParseFloat(parts[0], 64)
	if err != nil {
		return GateState{}, fmt.Errorf("read gate %s: %w", g.Name, err)
	}
	burst, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return GateState{}, fmt.Errorf("read gate %s: %w", g.Name, err)
	}
	g.Rate, g.Burst = perMicrosecond, int(burst/microsPerToken)
	if len(parts) > 2 && !strings.Contains(parts[2], ":") {
		g.Until, err = parseMicros(parts[2])
	}
	return g, err
}

// Gates returns every gate, by name. Rates are listed without what is left of them. It is read in pages, so gates that change
// meanwhile may be missing.
func (s *Store) Gates(ctx context.Context) ([]GateState, error) {
	if s.all != nil {
		return s.gatesOfAll(ctx)
	}
	stored, err := s.wholeHash(ctx, s.partition.Gates(), "")
	if err != nil {
		return nil, err
	}
	limits := defaultLimits(stored)
	gates := make([]GateState, 0, len(stored))
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

// Suspension is a queue, a tenant or a tenant in a queue for which enqueueing is suspended.
type Suspension struct {
	Name GateName
	// Until is when it ends, zero for never by itself.
	Until time.Time
	// Reason is what producers are told.
	Reason string
	// Author is who set it and Since when; empty where an older release did.
	Author string
	Since  time.Time
}

// Suspensions returns every Suspension, by name.
func (s *Store) Suspensions(ctx context.Context) ([]Suspension, error) {
	if s.all != nil {
		return s.suspensionsOfAll(ctx)
	}
	stored, err := s.wholeHash(ctx, s.partition.Base()+"suspended", "")
	if err != nil {
		return nil, err
	}
	all := make([]Suspension, 0, len(stored))
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
func parseSuspension(name, text string) (Suspension, error) {
	end, reason, _ := strings.Cut(text, "|")
	p := Suspension{Name: GateName(name)}
	var err error
	if p.Until, err = parseMicros(end); err != nil {
		return p, fmt.Errorf("read suspension %s: %w", name, err)
	}
	p.Reason, p.Author, p.Since = parseHoldReason(reason)
	return p, nil
}

// WorkerState is a registered worker.
type WorkerState struct {
	Name string
	// Pool is the id of its pool, Queues what the pool serves.
	Pool   string
	Queues []QueueWeight
	// Slots is how many jobs it holds at most, Held how many it does.
	Slots, Held int
	// LeaseEnd is when it counts as lost unless it is heard of before.
	LeaseEnd time.Time
}

// Workers returns every registered worker, by pool and name.
func (s *Store) Workers(ctx context.Context) ([]WorkerState, error) {
	if s.all != nil {
		return s.workersOfAll(ctx)
	}
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
	workers := make([]WorkerState, 0, len(stored))
	for i, name := range names {
		w := WorkerState{Name: name, LeaseEnd: ends[i]}
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
	slices.SortStableFunc(workers, func(a, b WorkerState) int { return cmp.Compare(a.Pool, b.Pool) })
	return workers, nil
}

// leaseEnds returns when the lease of each worker ends.
func (s *Store) leaseEnds(ctx context.Context, workers []string) ([]time.Time, error) {
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
	pool  Pool
	slots int
	// held counts entries by worker.
	held map[string]int
}

// pools returns every pool by id. An entry of a stream that no worker has read is in nobody's count.
func (s *Store) pools(ctx context.Context) (map[string]*poolState, error) {
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
		case IsPoolGone(err) || redisconn.IsNil(err):
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
		p.pool.Queues = append(p.pool.Queues, QueueWeight{Queue: queue, Weight: n})
	}
	return p
}
