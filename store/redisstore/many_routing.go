package redisstore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/limits"
	"github.com/headgate/headgate/store/redisstore/internal/looking"
)

// What is about one tenant goes to the tenant's partition.

// Held implements Deployment.
func (d *many) Held(ctx context.Context, pool, worker, token string, key admission.Key) (store.Lease, error) {
	return d.of(key.Tenant).Held(ctx, pool, worker, token, key)
}

// Payload implements Deployment.
func (d *many) Payload(ctx context.Context, key admission.Key) ([]byte, error) {
	return d.of(key.Tenant).Payload(ctx, key)
}

// Result implements Deployment.
func (d *many) Result(ctx context.Context, key admission.Key) ([]byte, error) {
	return d.of(key.Tenant).Result(ctx, key)
}

// Look implements Deployment.
func (d *many) Look(ctx context.Context, key admission.Key) (store.Sighting, error) {
	return d.of(key.Tenant).Look(ctx, key)
}

// Cancel implements Deployment.
func (d *many) Cancel(ctx context.Context, key admission.Key, by store.Intervention) (running, more bool, err error) {
	return d.of(key.Tenant).Cancel(ctx, key, by)
}

// ClearTenant implements Deployment.
func (d *many) ClearTenant(ctx context.Context, tenant, queue string, by store.Intervention) (cancelled int, more bool, err error) {
	return d.of(tenant).ClearTenant(ctx, tenant, queue, by)
}

// Depths implements Deployment.
func (d *many) Depths(ctx context.Context, tenant string, queues []string) ([]store.Depth, error) {
	return d.of(tenant).Depths(ctx, tenant, queues)
}

// Backlogs implements Deployment.
func (d *many) Backlogs(ctx context.Context, tenant string) ([]store.Backlog, error) {
	return d.of(tenant).Backlogs(ctx, tenant)
}

// BucketsTTL implements Deployment.
func (d *many) BucketsTTL(ctx context.Context, tenant string) (time.Duration, error) {
	return d.of(tenant).BucketsTTL(ctx, tenant)
}

// Minutes implements Deployment.
func (d *many) Minutes(ctx context.Context, scope admission.Scope) ([]store.Minute, error) {
	return d.ofScope(scope).Minutes(ctx, scope)
}

// Purge implements Deployment.
func (d *many) Purge(ctx context.Context, keys []admission.Key, by store.Intervention) (purged []bool, err error) {
	if err := by.Validate(); err != nil {
		return nil, err
	}
	by = by.Named()
	return spread(d, keys, tenantOf, func(part *Partition, some []admission.Key) ([]bool, error) { return part.Purge(ctx, some, by) })
}

// PurgeQueue implements Deployment.
func (d *many) PurgeQueue(ctx context.Context, queue, cursor string, by store.Intervention) (store.PurgedPage, error) {
	return purgeQueue(ctx, d, d.of, queue, cursor, by)
}

// Letters implements Deployment.
func (d *many) Letters(ctx context.Context, keys []admission.Key) ([]store.Letter, error) {
	return spread(d, keys, tenantOf, func(part *Partition, some []admission.Key) ([]store.Letter, error) { return part.Letters(ctx, some) })
}

// LastHour implements Deployment.
func (d *many) LastHour(ctx context.Context, budget time.Duration) ([]store.Recorded, error) {
	return d.LastMinutes(ctx, limits.HourMinutes, budget)
}

// Check implements Deployment. Of questions of no tenant, Left of the global limit is what all partitions hold.
func (d *many) Check(ctx context.Context, version int64, peek bool, questions []store.Question) (granted bool, answers []store.Answer, err error) {
	got, err := d.ask(ctx, version, peek, questions)
	for i := range got.Answers {
		got.Answers[i].Left[admission.LevelGlobal] += got.Elsewhere
		got.Answers[i].Others += got.OthersElsewhere
	}
	return got.Granted, got.Answers, err
}

// ResetBucket implements Deployment.
func (d *many) ResetBucket(ctx context.Context, tenant, queue string, class admission.Priority, by store.Intervention) (was bool, err error) {
	if tenant != "" {
		return d.of(tenant).ResetBucket(ctx, tenant, queue, class, by)
	}
	all, err := actOnAll(d, by, func(part *Partition, by store.Intervention) (bool, error) {
		return part.ResetBucket(ctx, tenant, queue, class, by)
	})
	return slices.Contains(all, true), err
}

// What is about all goes to all.

// SetGate implements Deployment.
func (d *many) SetGate(ctx context.Context, g store.Gate) (held int, more bool, err error) {
	type set struct {
		held int
		more bool
	}
	all, err := under(d, g.Name, g.By, func(part *Partition, by store.Intervention) (one set, err error) {
		own := g
		own.By = by
		one.held, one.more, err = part.SetGate(ctx, own)
		return one, err
	})
	for _, one := range all {
		held, more = held+one.held, more || one.more
	}
	return held, more, err
}

// Pause implements Deployment.
func (d *many) Pause(ctx context.Context, name store.GateName, duration time.Duration, by store.Intervention) (held int, err error) {
	all, err := under(d, name, by, func(part *Partition, by store.Intervention) (int, error) { return part.Pause(ctx, name, duration, by) })
	for _, n := range all {
		held += n
	}
	return held, err
}

// PauseAtLeast implements Deployment.
func (d *many) PauseAtLeast(ctx context.Context, name store.GateName, duration time.Duration, by store.Intervention) (did bool, err error) {
	all, err := under(d, name, by, func(part *Partition, by store.Intervention) (bool, error) {
		return part.PauseAtLeast(ctx, name, duration, by)
	})
	return slices.Contains(all, true), err
}

// Unpause implements Deployment.
func (d *many) Unpause(ctx context.Context, name store.GateName, by store.Intervention) (was bool, err error) {
	all, err := under(d, name, by, func(part *Partition, by store.Intervention) (bool, error) { return part.Unpause(ctx, name, by) })
	return slices.Contains(all, true), err
}

// Suspend implements Deployment.
func (d *many) Suspend(ctx context.Context, name store.GateName, duration time.Duration, by store.Intervention) error {
	_, err := under(d, name, by, func(part *Partition, by store.Intervention) (struct{}, error) {
		return struct{}{}, part.Suspend(ctx, name, duration, by)
	})
	return err
}

// Resume implements Deployment.
func (d *many) Resume(ctx context.Context, name store.GateName, by store.Intervention) (was bool, err error) {
	all, err := under(d, name, by, func(part *Partition, by store.Intervention) (bool, error) { return part.Resume(ctx, name, by) })
	return slices.Contains(all, true), err
}

// ScaleLimits implements Deployment.
func (d *many) ScaleLimits(ctx context.Context, target store.GateName, part float64, duration time.Duration, by store.Intervention) (was bool, err error) {
	all, err := under(d, target, by, func(p *Partition, by store.Intervention) (bool, error) {
		return p.ScaleLimits(ctx, target, part, duration, by)
	})
	return slices.Contains(all, true), err
}

// Drain implements Deployment.
func (d *many) Drain(ctx context.Context, queue string, duration time.Duration, by store.Intervention) (until time.Time, err error) {
	all, err := under(d, store.QueueGate(queue), by, func(part *Partition, by store.Intervention) (time.Time, error) {
		return part.Drain(ctx, queue, duration, by)
	})
	for _, end := range all {
		if end.After(until) {
			until = end
		}
	}
	return until, err
}

// Adapt implements Deployment. What the first partition has decided the others follow, those where the policy is not in force yet when it is.
func (d *many) Adapt(ctx context.Context, to store.Adapt) (number int64, err error) {
	if number, err = d.parts[0].Adapt(ctx, to); err != nil || number == 0 {
		return 0, err
	}
	to.Number, to.DeadBand = number, 0 // The first counts for all.
	return number, d.follow(ctx, to)
}

// follow brings the other partitions to where the first one has a limit.
func (d *many) follow(ctx context.Context, to store.Adapt) error {
	return d.each(func(i int, part *Partition) error {
		if i == 0 {
			return nil
		}
		if _, err := part.Adapt(ctx, to); err != nil && !errors.Is(err, store.ErrNotAdaptive) {
			return err
		}
		return nil
	})
}

// Press implements Deployment: what the first partition has noted the others do, those where the policy is not in force yet when it is.
func (d *many) Press(ctx context.Context, to store.Press) (number int64, err error) {
	if number, err = d.parts[0].Press(ctx, to); err != nil {
		return 0, err
	}
	to.Number = number
	return number, d.each(func(i int, part *Partition) error {
		if i == 0 {
			return nil
		}
		if _, err := part.Press(ctx, to); err != nil && !errors.Is(err, store.ErrNotMeasured) {
			return err
		}
		return nil
	})
}

// NoteLoad implements Deployment.
func (d *many) NoteLoad(ctx context.Context, to store.LoadNote) error {
	return d.parts[0].NoteLoad(ctx, to)
}

// NoteRates implements Deployment.
func (d *many) NoteRates(ctx context.Context, to store.RateNote) error {
	return d.parts[0].NoteRates(ctx, to)
}

// NoteTrigger implements Deployment.
func (d *many) NoteTrigger(ctx context.Context, to store.TriggerNote) error {
	return d.parts[0].NoteTrigger(ctx, to)
}

// Freeze implements Deployment: the first partition decides what others follow.
func (d *many) Freeze(ctx context.Context, gate store.GateName, frozen bool, by store.Intervention) (was bool, err error) {
	return d.parts[0].Freeze(ctx, gate, frozen, by)
}

// Override implements Deployment: what the first partition has decided the others follow.
func (d *many) Override(ctx context.Context, gate store.GateName, limit int, duration time.Duration, by store.Intervention) (number int64, err error) {
	number, err = d.parts[0].Override(ctx, gate, limit, duration, by)
	if err != nil || number == 0 {
		return number, err
	}
	all, err := d.parts[0].Adaptations(ctx)
	if err != nil {
		return number, err
	}
	for i := range all {
		if all[i].Gate == gate {
			err = d.follow(ctx, store.Adapt{Gate: gate, Limit: all[i].Limit, Cause: all[i].Cause, Number: number})
		}
	}
	return number, err
}

// Holds implements Deployment.
func (d *many) Holds(ctx context.Context) ([]store.Hold, error) { return looking.HoldsOf(ctx, d) }

// ForceBreaker implements Deployment.
func (d *many) ForceBreaker(ctx context.Context, downstream string, to breaker.State, duration time.Duration, by store.Intervention) (more bool, err error) {
	return d.force(func(part *Partition) (bool, error) { return part.ForceBreaker(ctx, downstream, to, duration, by) })
}

// ResetBreaker implements Deployment.
func (d *many) ResetBreaker(ctx context.Context, downstream string, by store.Intervention) (more bool, err error) {
	return d.force(func(part *Partition) (bool, error) { return part.ResetBreaker(ctx, downstream, by) })
}

// force changes the breaker of each partition. One that some do not know is reset where it is known.
func (d *many) force(do func(part *Partition) (bool, error)) (more bool, err error) {
	var mu sync.Mutex
	unknown := 0
	err = d.each(func(_ int, part *Partition) error {
		left, err := do(part)
		mu.Lock()
		defer mu.Unlock()
		more = more || left
		if errors.Is(err, store.ErrNoBreaker) && unknown < len(d.parts)-1 {
			unknown++
			return nil
		}
		return err
	})
	return more, err
}

// What is kept in the first partition alone.

// Policy implements Deployment.
func (d *many) Policy(ctx context.Context) ([]byte, error) { return d.parts[0].Policy(ctx) }

// PolicyInForce implements Deployment.
func (d *many) PolicyInForce(ctx context.Context) (int64, error) {
	return d.parts[0].PolicyInForce(ctx)
}

// NewPolicyReader implements Deployment.
func (d *many) NewPolicyReader() store.PolicyReader { return d.parts[0].NewPolicyReader() }

// PolicyVersions implements Deployment.
func (d *many) PolicyVersions(ctx context.Context) ([]store.AuditEntry, error) {
	return d.parts[0].PolicyVersions(ctx)
}

// PolicyVersion implements Deployment.
func (d *many) PolicyVersion(ctx context.Context, version int64) ([]byte, error) {
	return d.parts[0].PolicyVersion(ctx, version)
}

// CheckLayout implements Deployment: a migration marks the first partition first, and commits it last.
func (d *many) CheckLayout(ctx context.Context) error { return d.parts[0].CheckLayout(ctx) }

// Time implements Deployment.
func (d *many) Time(ctx context.Context) (time.Time, error) { return d.parts[0].conn.Time(ctx) }

// LeaseRight implements Deployment: the name of a right picks the partition that keeps it.
func (d *many) LeaseRight(ctx context.Context, right, token string, limit int, lease time.Duration) (bool, error) {
	return d.of(right).LeaseRight(ctx, right, token, limit, lease)
}

// ReturnRight implements Deployment.
func (d *many) ReturnRight(ctx context.Context, right, token string) error {
	return d.of(right).ReturnRight(ctx, right, token)
}

// Acquire implements Deployment: the name of a semaphore picks the partition that keeps it. The record of its tenant may be in another, which is asked first.
func (d *many) Acquire(ctx context.Context, ask store.Acquire) (store.Permit, error) {
	if tenant := ask.Tenant(); ask.Record != 0 && d.of(tenant) != d.of(ask.Name) {
		stored, err := d.Records(ctx, tenant)
		if err != nil {
			return store.Permit{}, err
		}
		if stored[0].Version != ask.Record {
			return store.Permit{}, &store.StaleRecordsError{Records: stored}
		}
		ask.Elsewhere = true
	}
	return d.of(ask.Name).Acquire(ctx, ask)
}

// Extend implements Deployment.
func (d *many) Extend(ctx context.Context, name, token string, lease time.Duration) (store.Permit, error) {
	return d.of(name).Extend(ctx, name, token, lease)
}

// Release implements Deployment.
func (d *many) Release(ctx context.Context, name, token string) error {
	return d.of(name).Release(ctx, name, token)
}

// Semaphore implements Deployment.
func (d *many) Semaphore(ctx context.Context, name string) (store.SemaphoreState, error) {
	return d.of(name).Semaphore(ctx, name)
}

// SemaphoreNames implements Deployment.
func (d *many) SemaphoreNames(ctx context.Context) ([]string, error) {
	var mu sync.Mutex
	var all []string
	err := d.each(func(_ int, part *Partition) error {
		names, err := part.SemaphoreNames(ctx)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, names...)
		return err
	})
	slices.Sort(all)
	return all, err
}
