package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/internal/redisconn"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/policies"
)

// merge puts what the partitions returned into one list by name: what is of the same name is added to the first.
func merge[T any](all [][]T, name func(*T) string, add func(to, more *T)) []T {
	var merged []T
	at := map[string]int{}
	for _, some := range all {
		for i := range some {
			if k, known := at[name(&some[i])]; known {
				add(&merged[k], &some[i])
				continue
			}
			at[name(&some[i])] = len(merged)
			merged = append(merged, some[i])
		}
	}
	slices.SortStableFunc(merged, func(a, b T) int { return strings.Compare(name(&a), name(&b)) })
	return merged
}

// Gates adds up what is held. The limit of a gate that stands in all partitions is the sum of theirs, each partition's share
// of a cap.
func (d *many) Gates(ctx context.Context) ([]store.GateState, error) {
	all, err := gather(d, func(part *Partition) ([]store.GateState, error) {
		gates, err := part.Gates(ctx)
		for i := range gates {
			if g := &gates[i]; store.SpansPartitions(g.Name) {
				g.Shares = make([]float64, len(d.parts))
				g.Shares[part.conn.Index] = max(float64(g.Limit), g.Rate)
			}
		}
		return gates, err
	})
	return merge(all, func(g *store.GateState) string { return string(g.Name) }, func(to, more *store.GateState) {
		to.Held += more.Held
		to.NoShare = to.NoShare && more.NoShare
		if store.SpansPartitions(to.Name) {
			to.Limit, to.Rate, to.Burst = to.Limit+more.Limit, to.Rate+more.Rate, to.Burst+more.Burst
			for p, share := range more.Shares {
				to.Shares[p] += share
			}
			if to.Then > 0 && more.Then > 0 {
				to.Then += more.Then
			}
		}
		if more.Until.After(to.Until) {
			to.Until = more.Until
		}
		if to.Since.IsZero() {
			to.Reason, to.Author, to.Since = cmp.Or(to.Reason, more.Reason), more.Author, more.Since
		}
	}), err
}

func (d *many) Suspensions(ctx context.Context) ([]store.Suspension, error) {
	all, err := gather(d, func(part *Partition) ([]store.Suspension, error) { return part.Suspensions(ctx) })
	return merge(all, func(p *store.Suspension) string { return string(p.Name) }, func(*store.Suspension, *store.Suspension) {}), err
}

// Scales implements Deployment: of one that partitions end at different times, the last.
func (d *many) Scales(ctx context.Context) ([]store.Scale, error) {
	all, err := gather(d, func(part *Partition) ([]store.Scale, error) { return part.Scales(ctx) })
	return merge(all, func(s *store.Scale) string { return string(s.Target) }, func(to, more *store.Scale) {
		if more.Until.After(to.Until) {
			*to = *more
		}
	}), err
}

// Workers lists what is registered anywhere: a worker has a registration of its own in each partition.
func (d *many) Workers(ctx context.Context) ([]store.WorkerState, error) {
	all, err := gather(d, func(part *Partition) ([]store.WorkerState, error) { return part.Workers(ctx) })
	workers := slices.Concat(all...)
	slices.SortStableFunc(workers, func(a, b store.WorkerState) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Name, b.Name))
	})
	return workers, err
}

// QueueNames implements Deployment.
func (d *many) QueueNames(ctx context.Context) ([]string, error) {
	all, err := gather(d, func(part *Partition) ([]string, error) { return part.QueueNames(ctx) })
	names := slices.Concat(all...)
	slices.Sort(names)
	return slices.Compact(names), err
}

// WorkerLoads implements Deployment. A worker of several partitions tells the first.
func (d *many) WorkerLoads(ctx context.Context) ([]store.WorkerLoad, error) {
	all, err := gather(d, func(part *Partition) ([]store.WorkerLoad, error) { return part.WorkerLoads(ctx) })
	loads := all[0] // It is nil where the policy has nobody tell.
	for _, more := range all[1:] {
		loads = append(loads, more...)
	}
	return loads, err
}

// WaitingFor implements Deployment: the sum of all partitions.
func (d *many) WaitingFor(ctx context.Context, services []string) ([]int64, error) {
	all, err := gather(d, func(part *Partition) ([]int64, error) { return part.WaitingFor(ctx, services) })
	if err != nil {
		return nil, err
	}
	sums := all[0]
	for _, more := range all[1:] {
		for i, n := range more {
			sums[i] += n
		}
	}
	return sums, nil
}

// Triggers implements Deployment: the first partition has them.
func (d *many) Triggers(ctx context.Context) ([]store.TriggerState, error) {
	return d.parts[0].Triggers(ctx)
}

// LoadHistory implements Deployment: the first partition has it.
func (d *many) LoadHistory(ctx context.Context, service string, since time.Time) ([]store.LoadPoint, error) {
	return d.parts[0].LoadHistory(ctx, service, since)
}

func (d *many) Schedulers(ctx context.Context) ([]store.SchedulerState, error) {
	all, err := gather(d, func(part *Partition) ([]store.SchedulerState, error) { return part.Schedulers(ctx) })
	schedulers := slices.Concat(all...)
	slices.SortStableFunc(schedulers, func(a, b store.SchedulerState) int { return cmp.Compare(a.Name, b.Name) })
	return schedulers, err
}

func queueName(q *store.QueueState) string { return q.Name }

// addQueue adds what another partition has of a queue. Whose turn it is, each partition has its own: the first one's is told.
func addQueue(to, more *store.QueueState) {
	if to.Pressure == nil {
		to.Pressure = more.Pressure
	}
	for i := range to.Classes {
		if i < len(more.Classes) {
			to.Classes[i].Waiting += more.Classes[i].Waiting
		}
	}
	to.Ready, to.Running, to.Dead = to.Ready+more.Ready, to.Running+more.Running, to.Dead+more.Dead
	to.Later, to.LaterAtLeast = to.Later+more.Later, to.LaterAtLeast || more.LaterAtLeast
	to.Spilled += more.Spilled
	to.Slots += more.Slots
	to.Others += more.Others
	to.Workers = max(to.Workers, more.Workers)
	for _, pool := range more.Pools {
		if !slices.Contains(to.Pools, pool) {
			to.Pools = append(to.Pools, pool)
		}
	}
	switch {
	case to.Pace == 0 || more.Pace == 0:
		to.Pace = max(to.Pace, more.Pace)
	default: // They go on side by side, so their rates add up.
		to.Pace = time.Duration(1 / (1/float64(to.Pace) + 1/float64(more.Pace)))
	}
	to.Busy = to.Busy || more.Busy
	if more.Last.After(to.Last) {
		to.Last = more.Last
	}
	if to.Gate == nil {
		to.Gate = more.Gate
	} else if more.Gate != nil {
		to.Gate = &store.GateState{
			Name: to.Gate.Name, Limit: to.Gate.Limit + more.Gate.Limit, Held: to.Gate.Held + more.Gate.Held,
			NoShare: to.Gate.NoShare && more.Gate.NoShare, Until: to.Gate.Until, Then: to.Gate.Then, Reason: to.Gate.Reason,
			Author: to.Gate.Author, Since: to.Gate.Since,
		}
	}
	to.Suspended = cmp.Or(to.Suspended, more.Suspended)
}

func (d *many) Queues(ctx context.Context) ([]store.QueueState, error) {
	all, err := gather(d, func(part *Partition) ([]store.QueueState, error) { return part.Queues(ctx) })
	return merge(all, queueName, addQueue), err
}

// known calls do for all partitions and leaves out those that do not know what is asked for, by an error that is absent; if
// none knows it, that is the error.
func known[T any](d *many, absent error, do func(part *Partition) (T, error)) ([]T, error) {
	var mu sync.Mutex
	has := make([]bool, len(d.parts))
	var none error
	found := make([]T, len(d.parts))
	err := d.each(func(i int, part *Partition) error {
		one, err := do(part)
		mu.Lock()
		defer mu.Unlock()
		if errors.Is(err, absent) {
			none = err
			return nil
		}
		found[i], has[i] = one, err == nil
		return err
	})
	if err != nil {
		return nil, err
	}
	kept := found[:0]
	for i := range found {
		if has[i] {
			kept = append(kept, found[i])
		}
	}
	if len(kept) == 0 {
		return nil, none
	}
	return kept, nil
}

func (d *many) Queue(ctx context.Context, name string) (store.QueueState, error) {
	all, err := known(d, store.ErrUnknownQueue, func(part *Partition) (store.QueueState, error) { return part.Queue(ctx, name) })
	if err != nil {
		return store.QueueState{}, err
	}
	return merge([][]store.QueueState{all}, queueName, addQueue)[0], nil
}

func (d *many) Remaining(ctx context.Context, queue string) (sum store.Remaining, err error) {
	all, err := gather(d, func(part *Partition) (store.Remaining, error) { return part.Remaining(ctx, queue) })
	for _, r := range all {
		sum.Waiting += r.Waiting
		sum.Ready += r.Ready
		sum.Running += r.Running
		sum.Later += r.Later
		sum.Spilled += r.Spilled
	}
	return sum, err
}

func (d *many) WaitingTenants(ctx context.Context, queue string, n int) (top []store.TenantWaiting, partial bool, err error) {
	type waiting struct {
		top     []store.TenantWaiting
		partial bool
	}
	all, err := known(d, store.ErrUnknownQueue, func(part *Partition) (waiting, error) {
		top, partial, err := part.WaitingTenants(ctx, queue, n)
		return waiting{top, partial}, err
	})
	for _, w := range all {
		top, partial = append(top, w.top...), partial || w.partial
	}
	return store.MostWaiting(top, n), partial, err
}

// Peek shows the heads of all partitions, which are served side by side: the first of each, then the second of each.
func (d *many) Peek(ctx context.Context, queue string, n int) (store.QueueState, []store.PeekedClass, error) {
	type peeked struct {
		state   store.QueueState
		classes []store.PeekedClass
	}
	all, err := known(d, store.ErrUnknownQueue, func(part *Partition) (peeked, error) {
		state, classes, err := part.Peek(ctx, queue, n)
		return peeked{state, classes}, err
	})
	if err != nil {
		return store.QueueState{}, nil, err
	}
	state, classes := all[0].state, make([]store.PeekedClass, len(all[0].classes))
	for i := range all[1:] {
		addQueue(&state, &all[i+1].state)
	}
	for c := range classes {
		class := &classes[c]
		class.ClassState = state.Classes[c]
		for place := range n {
			for i := range all {
				if c < len(all[i].classes) && place < len(all[i].classes[c].Next) {
					class.Next = append(class.Next, all[i].classes[c].Next[place])
				}
			}
		}
		class.Next = class.Next[:min(len(class.Next), max(1, n))]
		for i := range all {
			if c < len(all[i].classes) {
				class.Runnable, class.Held = class.Runnable+all[i].classes[c].Runnable, class.Held+all[i].classes[c].Held
			}
		}
	}
	return state, classes, nil
}

// addBreaker adds what another partition knows of a downstream. Every outcome is reported to all of them, so their windows are
// one; where their states differ, the one that lets the fewest through is told.
func addBreaker(to, more *store.BreakerState) {
	waiting := to.Waiting + more.Waiting
	if more.State.Severity() > to.State.Severity() {
		*to = *more
	}
	to.Waiting = waiting
}

func (d *many) Breaker(ctx context.Context, downstream string) (store.BreakerState, error) {
	all, err := known(d, store.ErrNoBreaker, func(part *Partition) (store.BreakerState, error) { return part.Breaker(ctx, downstream) })
	if err != nil {
		return store.BreakerState{}, fmt.Errorf("in all partitions: %w", err)
	}
	return merge([][]store.BreakerState{all}, breakerName, addBreaker)[0], nil
}

func (d *many) Breakers(ctx context.Context) ([]store.BreakerState, error) {
	all, err := gather(d, func(part *Partition) ([]store.BreakerState, error) { return part.Breakers(ctx) })
	return merge(all, breakerName, addBreaker), err
}

func breakerName(b *store.BreakerState) string { return b.Downstream }

// foreseeOfAll is Foresee of a deployment: the first partition in which work can be told to come.
func (d *many) Foresee(ctx context.Context, pool string) (time.Duration, error) {
	var mu sync.Mutex
	first := time.Duration(-1)
	err := d.each(func(_ int, part *Partition) error {
		wait, err := part.Foresee(ctx, pool)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && wait >= 0 && (first < 0 || wait < first) {
			first = wait
		}
		return err
	})
	return first, err
}

// Audit implements Deployment.
func (d *many) Audit(ctx context.Context, q store.AuditQuery) (store.AuditPage, error) {
	conns := make([]*redisconn.Conn, len(d.parts))
	for i, part := range d.parts {
		conns[i] = part.conn
	}
	return policies.AuditOf(ctx, conns, q)
}

// Adaptations tells what the first partition has, which the others follow, and adds up what is held. Each partition hears of all calls.
func (d *many) Adaptations(ctx context.Context) ([]store.Adaptation, error) {
	all, err := gather(d, func(part *Partition) ([]store.Adaptation, error) { return part.Adaptations(ctx) })
	merged := merge(all, func(a *store.Adaptation) string { return string(a.Gate) }, func(to, more *store.Adaptation) {
		to.Held += more.Held
		to.Paused = to.Paused && more.Paused
		to.Uneven = to.Uneven || to.Limit != more.Limit
	})
	return slices.DeleteFunc(merged, func(a store.Adaptation) bool {
		return !slices.ContainsFunc(all[0], func(first store.Adaptation) bool { return first.Gate == a.Gate })
	}), err
}

// Loads adds up what the partitions see. A job waits in its tenant's partition: the longest wait of them is told.
func (d *many) Loads(ctx context.Context, queues []string) ([]store.QueueLoad, error) {
	all, err := gather(d, func(part *Partition) ([]store.QueueLoad, error) { return part.Loads(ctx, queues) })
	if err != nil {
		return nil, err
	}
	loads := all[0]
	for _, more := range all[1:] {
		for i := range loads {
			to := &loads[i]
			to.Waiting, to.Slots, to.Held = to.Waiting+more[i].Waiting, to.Slots+more[i].Slots, to.Held+more[i].Held
			to.Wait = max(to.Wait, more[i].Wait)
		}
	}
	return loads, nil
}
