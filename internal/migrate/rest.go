package migrate

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
)

// copyRest copies what is neither a job nor a key of a tenant's own.
func (m *Migration) copyRest(ctx context.Context) error {
	for i, part := range m.from {
		m.observe("copy ended ids, breakers and pauses", int64(i), int64(len(m.from)))
		for _, step := range []func(context.Context, int, *partition) error{m.copyEnded, m.copyResultsUntil, m.copyCounters, m.copyUsage, m.copyRecords, m.copyGates} {
			if err := step(ctx, i, part); err != nil {
				return err
			}
		}
	}
	if err := m.copyBreakers(ctx); err != nil {
		return err
	}
	return m.divideGlobal(ctx)
}

// copyEnded lets the partitions of moved tenants remember the ids that ended, all of them as if just now.
func (m *Migration) copyEnded(ctx context.Context, from int, part *partition) error {
	state, err := redisconn.ReadState(ctx, redisconn.Client(part.conn), part.conn.Partition, "gen").Result()
	if err != nil {
		return fmt.Errorf("read ended ids: %w", redisconn.Unread(err))
	}
	young := redisconn.Whole(redisconn.TextAt(state, 0))
	for _, generation := range []int64{young, young - 1} {
		key := part.conn.Partition.Base() + "ended:" + strconv.FormatInt(generation, 10)
		for cursor := uint64(0); ; {
			ids, next, err := redisconn.Client(part.conn).SScan(ctx, key, cursor, "", migratePage).Result()
			if err != nil {
				return fmt.Errorf("read ended ids: %w", redisconn.Unread(err))
			}
			of := map[*partition][]any{}
			for _, id := range ids {
				if m.moves(from, id) {
					of[m.home(id)] = append(of[m.home(id)], id)
				}
			}
			for to, some := range of {
				if _, err := to.conn.Run(ctx, "carry", append([]any{to.conn.Now, "", "", 0}, some...)...); err != nil {
					return err
				}
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	return nil
}

// copyCounters takes over what a partition that is to go has counted: jobs that ended, by reason, and dead letters there ever were.
func (m *Migration) copyCounters(ctx context.Context, from int, part *partition) error {
	if m.inPlace && from < len(m.to) {
		return nil
	}
	to := m.to[0]
	if from < len(m.to) {
		to = m.to[from]
	}
	state, err := redisconn.Client(part.conn).HGetAll(ctx, part.conn.Partition.State()).Result()
	if err != nil {
		return fmt.Errorf("read counters: %w", redisconn.Unread(err))
	}
	state = keyspace.Unpacked(state)
	live, err := redisconn.Client(part.conn).HLen(ctx, part.conn.Partition.Jobs()).Result()
	if err != nil {
		return fmt.Errorf("count jobs: %w", redisconn.Unread(err))
	}
	// Each live job brings its own.
	args := []any{"accepted", redisconn.Whole(state["accepted"]) - live}
	for _, field := range slices.Sorted(maps.Keys(state)) {
		if strings.HasPrefix(field, "left:") || strings.HasPrefix(field, "dead:") {
			args = append(args, field, state[field])
		}
	}
	args = append([]any{to.conn.Now, "", m.id + ":" + strconv.Itoa(from), len(args) / 2}, args...)
	_, err = to.conn.Run(ctx, "carry", args...)
	return err
}

// copyGates takes over pauses, suspensions, scaled limits, and the tokens of rates of dispatches. Caps and rates themselves come with the policy, and with the records
// that were copied before.
func (m *Migration) copyGates(ctx context.Context, from int, part *partition) error {
	gates, err := part.Gates(ctx)
	if err != nil {
		return err
	}
	for _, g := range gates {
		tenant, isTenant := g.Name.Tenant()
		switch {
		case isTenant && g.Name == store.TenantRateGate(tenant) && m.moves(from, tenant):
			err = part.copyRate(ctx, m.home(tenant), string(g.Name))
		case g.Paused():
			err = m.forThose(from, g.Name, func(to *partition) error { return m.copyPause(ctx, part, to, g) })
		}
		if err != nil {
			return err
		}
	}
	suspensions, err := part.Suspensions(ctx)
	if err != nil {
		return err
	}
	for _, p := range suspensions {
		left, forever, err := part.remaining(ctx, p.Until)
		if err != nil {
			return err
		}
		if left <= 0 && !forever {
			continue
		}
		err = m.forThose(from, p.Name, func(to *partition) error {
			return to.Suspend(ctx, p.Name, left, store.Intervention{Author: p.Author, Reason: p.Reason, Own: true, Since: p.Since})
		})
		if err != nil {
			return err
		}
	}
	return m.copyScales(ctx, from, part)
}

// copyScales takes over what limits are scaled to, for as long as is left.
func (m *Migration) copyScales(ctx context.Context, from int, part *partition) error {
	scales, err := part.Scales(ctx)
	if err != nil {
		return err
	}
	for _, s := range scales {
		left, _, err := part.remaining(ctx, s.Until)
		if err != nil {
			return err
		}
		if left < store.MinScaleTime {
			continue
		}
		err = m.forThose(from, s.Target, func(to *partition) error {
			_, err := to.ScaleLimits(ctx, s.Target, s.Part, left, store.Intervention{Author: s.Author, Reason: s.Reason, Own: true, Since: s.Since})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forThose calls do for the partitions that are to have what is about a name, and do not have it: the tenant's new one, or all others.
func (m *Migration) forThose(from int, name store.GateName, do func(to *partition) error) error {
	tenant, ofTenant := name.Tenant()
	for _, to := range m.to {
		wanted := to != m.from[from]
		if ofTenant {
			wanted = m.moves(from, tenant) && to == m.home(tenant)
		}
		if wanted {
			if err := do(to); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyPause pauses what is paused here in another partition, unless it is there.
func (m *Migration) copyPause(ctx context.Context, from, to *partition, g store.GateState) error {
	left, forever, err := from.remaining(ctx, g.Until)
	if err != nil || left <= 0 && !forever {
		return err
	}
	there, err := m.pausesOf(ctx, to)
	if err != nil || there[g.Name] {
		return err
	}
	there[g.Name] = true
	_, err = to.Pause(ctx, g.Name, left, store.Intervention{Author: g.Author, Reason: g.Reason, Own: true, Since: g.Since})
	return err
}

// pausesOf returns what is paused in a partition, which only this migration changes.
func (m *Migration) pausesOf(ctx context.Context, of *partition) (map[store.GateName]bool, error) {
	if known := m.pauses[of]; known != nil {
		return known, nil
	}
	gates, err := of.Gates(ctx)
	if err != nil {
		return nil, err
	}
	paused := map[store.GateName]bool{}
	for _, g := range gates {
		if g.Paused() {
			paused[g.Name] = true
		}
	}
	m.pauses[of] = paused
	return paused, nil
}

// copyRate gives a rate there the tokens that it has here.
func (p *partition) copyRate(ctx context.Context, to *partition, name string) error {
	text, err := redisconn.Client(p.conn).HGet(ctx, p.conn.Partition.Gates(), name).Result()
	if err != nil {
		return fmt.Errorf("read rate: %w", redisconn.Unread(err))
	}
	there, err := redisconn.Client(to.conn).HGet(ctx, to.conn.Partition.Gates(), name).Result()
	if redisconn.IsNil(err) {
		return nil // The policy has none any more.
	}
	if err == nil && rateOf(there) != rateOf(text) {
		return nil // The record that says this rate has left here in an earlier run, which has copied its tokens.
	}
	if err == nil && there != text {
		err = redisconn.Client(to.conn).HSet(ctx, to.conn.Partition.Gates(), name, text).Err()
	}
	if err != nil {
		return fmt.Errorf("write rate: %w", redisconn.Unread(err))
	}
	return nil
}

// rateOf returns the rate|burst of a gate, rate|burst|bucket.
func rateOf(gate string) string { return gate[:strings.LastIndexByte(gate, '|')+1] }

// copyBreakers gives new partitions the breakers of those there were, of each downstream the one that lets the fewest through.
func (m *Migration) copyBreakers(ctx context.Context) error {
	type found struct {
		part  *partition
		state store.BreakerState
	}
	worst := map[string]found{}
	for _, part := range m.from[:m.before] {
		all, err := part.Breakers(ctx)
		if err != nil {
			return err
		}
		for _, b := range all {
			if known, ok := worst[b.Downstream]; !ok || b.State.Severity() > known.state.State.Severity() {
				worst[b.Downstream] = found{part, b}
			}
		}
	}
	for downstream, f := range worst {
		fields, err := redisconn.Client(f.part.conn).HGetAll(ctx, f.part.conn.Partition.Breaker(downstream)).Result()
		if err != nil {
			return fmt.Errorf("read breaker: %w", redisconn.Unread(err))
		}
		args := make([]any, 0, 2*len(fields)+2)
		for name, value := range fields {
			args = append(args, name, value)
		}
		for _, to := range m.to {
			if _, err := to.conn.Run(ctx, "adopt", append([]any{to.conn.Now, downstream}, args...)...); err != nil {
				return err
			}
		}
	}
	return nil
}
