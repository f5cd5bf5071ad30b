package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// copyRest copies what is neither a job nor a key of a tenant's own.
func (m *Migration) copyRest(ctx context.Context) error {
	for i, part := range m.from {
		m.observe("copy ended ids, breakers and pauses", int64(i), int64(len(m.from)))
		for _, step := range []func(context.Context, int, *Store) error{m.copyEnded, m.copyCounters, m.copyGates} {
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
func (m *Migration) copyEnded(ctx context.Context, from int, part *Store) error {
	text, err := connection(part).HGet(ctx, part.partition.State(), "gen").Result()
	if err != nil && !isNil(err) {
		return fmt.Errorf("read ended ids: %w", unread(err))
	}
	for _, generation := range []int64{whole(text), whole(text) - 1} {
		key := part.partition.Base() + "ended:" + strconv.FormatInt(generation, 10)
		for cursor := uint64(0); ; {
			ids, next, err := connection(part).SScan(ctx, key, cursor, "", migratePage).Result()
			if err != nil {
				return fmt.Errorf("read ended ids: %w", unread(err))
			}
			of := map[*Store][]any{}
			for _, id := range ids {
				if m.moves(from, id) {
					of[m.home(id)] = append(of[m.home(id)], id)
				}
			}
			for to, some := range of {
				if _, err := to.run(ctx, "carry", append([]any{to.now, "", "", 0}, some...)...); err != nil {
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
func (m *Migration) copyCounters(ctx context.Context, from int, part *Store) error {
	if m.inPlace && from < len(m.to) {
		return nil
	}
	to := m.to[0]
	if from < len(m.to) {
		to = m.to[from]
	}
	state, err := connection(part).HGetAll(ctx, part.partition.State()).Result()
	if err != nil {
		return fmt.Errorf("read counters: %w", unread(err))
	}
	live, err := connection(part).HLen(ctx, part.partition.Jobs()).Result()
	if err != nil {
		return fmt.Errorf("count jobs: %w", unread(err))
	}
	// Each live job brings its own.
	args := []any{"accepted", whole(state["accepted"]) - live}
	for _, field := range slices.Sorted(maps.Keys(state)) {
		if strings.HasPrefix(field, "left:") || strings.HasPrefix(field, "dead:") {
			args = append(args, field, state[field])
		}
	}
	args = append([]any{to.now, "", m.id + ":" + strconv.Itoa(from), len(args) / 2}, args...)
	_, err = to.run(ctx, "carry", args...)
	return err
}

// copyGates takes over pauses, suspensions, and the tokens of rates of dispatches. Caps and rates themselves come with the policy.
func (m *Migration) copyGates(ctx context.Context, from int, part *Store) error {
	gates, err := part.Gates(ctx)
	if err != nil {
		return err
	}
	for _, g := range gates {
		kind, guarded := g.Name.split()
		switch {
		case kind == gateTenantRate && m.moves(from, guarded):
			err = part.copyRate(ctx, m.home(guarded), string(g.Name))
		case g.Paused():
			err = m.forThose(from, g.Name, func(to *Store) error { return part.copyPause(ctx, to, g) })
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
		err = m.forThose(from, p.Name, func(to *Store) error { return to.Suspend(ctx, p.Name, left, carried(p.Author, p.Reason, p.Since)) })
		if err != nil {
			return err
		}
	}
	return nil
}

// forThose calls do for the partitions that are to have what is about a name, and do not have it: the tenant's new one, or all others.
func (m *Migration) forThose(from int, name GateName, do func(to *Store) error) error {
	tenant, ofTenant := name.tenant()
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

// tenant returns the tenant that a gate is about.
func (n GateName) tenant() (tenant string, ofTenant bool) {
	switch kind, guarded := n.split(); kind {
	case gateTenant, gateTenantQueue, gateTenantRate:
		tenant, _, _ = strings.Cut(guarded, ":")
		return tenant, true
	}
	return "", false
}

// copyPause pauses what is paused here in another partition, unless it is there.
func (s *Store) copyPause(ctx context.Context, to *Store, g GateState) error {
	left, forever, err := s.remaining(ctx, g.Until)
	if err != nil || left <= 0 && !forever {
		return err
	}
	there, found, err := to.gateState(ctx, g.Name)
	if err != nil || found && there.Paused() {
		return err
	}
	_, err = to.Pause(ctx, g.Name, left, carried(g.Author, g.Reason, g.Since))
	return err
}

func (s *Store) gateState(ctx context.Context, name GateName) (g GateState, found bool, err error) {
	value, err := connection(s).HGet(ctx, s.partition.Gates(), string(name)).Result()
	if isNil(err) {
		return GateState{}, false, nil
	}
	if err != nil {
		return GateState{}, false, fmt.Errorf("read gate %s: %w", name, unread(err))
	}
	g, err = parseGate(string(name), value, nil)
	return g, err == nil && !strings.HasPrefix(value, "*"), err
}

// carried is who had set a hold that goes to another partition.
func carried(author, reason string, since time.Time) Intervention {
	return Intervention{Author: author, Reason: reason, Own: true, since: since}
}

// copyRate gives a rate there the tokens that it has here.
func (s *Store) copyRate(ctx context.Context, to *Store, name string) error {
	text, err := connection(s).HGet(ctx, s.partition.Gates(), name).Result()
	if err != nil {
		return fmt.Errorf("read rate: %w", unread(err))
	}
	there, err := connection(to).HGet(ctx, to.partition.Gates(), name).Result()
	if isNil(err) {
		return nil // The policy has none any more.
	}
	if err == nil && there != text {
		err = connection(to).HSet(ctx, to.partition.Gates(), name, text).Err()
	}
	if err != nil {
		return fmt.Errorf("write rate: %w", unread(err))
	}
	return nil
}

// copyBreakers gives new partitions the breakers of those there were, of each downstream the one that lets the fewest through.
func (m *Migration) copyBreakers(ctx context.Context) error {
	type found struct {
		part  *Store
		state BreakerState
	}
	worst := map[string]found{}
	for _, part := range m.from[:m.before] {
		all, err := part.Breakers(ctx)
		if err != nil {
			return err
		}
		for _, b := range all {
			if known, ok := worst[b.Downstream]; !ok || severity(&b) > severity(&known.state) {
				worst[b.Downstream] = found{part, b}
			}
		}
	}
	for downstream, f := range worst {
		fields, err := connection(f.part).HGetAll(ctx, f.part.partition.Breaker(downstream)).Result()
		if err != nil {
			return fmt.Errorf("read breaker: %w", unread(err))
		}
		args := make([]any, 0, 2*len(fields)+2)
		for name, value := range fields {
			args = append(args, name, value)
		}
		for _, to := range m.to {
			if _, err := to.run(ctx, "adopt", append([]any{to.now, downstream}, args...)...); err != nil {
				return err
			}
		}
	}
	return nil
}
