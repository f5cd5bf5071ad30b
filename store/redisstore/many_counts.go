package redisstore

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/looking"
)

// LastMinutes returns those of the last minutes, the one under way included, in which something was counted, the earliest first, with
// all scopes of each, at most TopScopes and those that the policy observes. It begins with the latest, and after budget reads no more.
func (d *many) LastMinutes(ctx context.Context, minutes int, budget time.Duration) ([]store.Recorded, error) {
	parts, err := gather(d, func(part *Partition) ([]store.Recorded, error) { return part.LastMinutes(ctx, minutes, budget) })
	if err != nil {
		return nil, err
	}
	hour := parts[0]
	for _, minute := range slices.Concat(parts[1:]...) {
		at, found := slices.BinarySearchFunc(hour, minute, func(a, b store.Recorded) int { return a.At.Compare(b.At) })
		if !found {
			hour = slices.Insert(hour, at, minute)
			continue
		}
		maps.Copy(hour[at].Scopes, minute.Scopes)
	}
	return hour, nil
}

// CountedScopes implements Deployment.
func (d *many) CountedScopes(ctx context.Context) (int64, error) {
	return sum(d, func(part *Partition) (int64, error) { return part.CountedScopes(ctx) })
}

// Usage adds up what partitions count of the tenants whose usage none keeps by themselves.
func (d *many) Usage(ctx context.Context, q store.UsageQuery) ([]store.DayUsage, error) {
	if q.Tenant != "" && q.Tenant != store.UsageRest {
		return d.of(q.Tenant).Usage(ctx, q)
	}
	parts, err := gather(d, func(part *Partition) ([]store.DayUsage, error) { return part.Usage(ctx, q) })
	if err != nil {
		return nil, err
	}
	all := slices.Concat(parts...)
	slices.SortFunc(all, func(a, b store.DayUsage) int { return store.CompareUsage(&a, &b) })
	sum := all[:0]
	for i := range all {
		if n := len(sum); n > 0 && store.CompareUsage(&sum[n-1], &all[i]) == 0 {
			sum[n-1].Add(&all[i].Used)
		} else {
			sum = append(sum, all[i])
		}
	}
	return sum, nil
}

func (d *many) Count(ctx context.Context, counts []store.ScopeCount) (done int, err error) {
	of := map[*Partition][]store.ScopeCount{}
	for _, c := range counts {
		part := d.parts[0] // It has what is counted of queues.
		if c.Queue == "" {
			part = d.ofScope(c.Scope)
		}
		of[part] = append(of[part], c)
	}
	for part, some := range of {
		n, failed := part.Count(ctx, some)
		if done += n; n < len(some) {
			return done, failed
		}
		err = errors.Join(err, failed) // By names alone: others are counted all the same.
	}
	return done, err
}

// Rates adds up what partitions counted: no tenant is in two, and all queues are in the first.
func (d *many) Rates(ctx context.Context, minute time.Time) (store.Rates, error) {
	parts, err := gather(d, func(part *Partition) (store.Rates, error) { return part.Rates(ctx, minute) })
	if err != nil {
		return store.Rates{}, err
	}
	sum := parts[0]
	for _, r := range parts[1:] {
		sum.All.Allowed, sum.All.Refused = sum.All.Allowed+r.All.Allowed, sum.All.Refused+r.All.Refused
		maps.Copy(sum.Tenants, r.Tenants)
		maps.Copy(sum.Scopes, r.Scopes)
		sum.Crowded = sum.Crowded || r.Crowded
	}
	return sum, nil
}

// Nearby implements Deployment: no dimension is counted in two.
func (d *many) Nearby(ctx context.Context, minute time.Time) (map[admission.Scope]store.Minute, error) {
	parts, err := gather(d, func(part *Partition) (map[admission.Scope]store.Minute, error) { return part.Nearby(ctx, minute) })
	if err != nil {
		return nil, err
	}
	for _, of := range parts[1:] {
		maps.Copy(parts[0], of)
	}
	return parts[0], nil
}

// RateHistory implements Deployment: the first partition has it.
func (d *many) RateHistory(ctx context.Context, queues ...string) (store.RateHistory, error) {
	return d.parts[0].RateHistory(ctx, queues...)
}

// Distincts implements Deployment: the first partition has what is counted of queues.
func (d *many) Distincts(ctx context.Context, queue string) (map[string]store.Distinct, error) {
	return d.parts[0].Distincts(ctx, queue)
}

// NoteAnomalies implements Deployment: the first partition has them, as it has what is counted of queues.
func (d *many) NoteAnomalies(ctx context.Context, anomalies []store.Anomaly) (kept int, err error) {
	return d.parts[0].NoteAnomalies(ctx, anomalies)
}

// AnomaliesAfter implements Deployment.
func (d *many) AnomaliesAfter(ctx context.Context, after string, count int) (store.Stretch[store.Anomaly], error) {
	return d.parts[0].AnomaliesAfter(ctx, after, count)
}

func (d *many) Shadow(ctx context.Context, version int64, id string, questions []store.Question) error {
	_, err := spread(d, questions, func(q store.Question) string { return q.Tenant }, func(part *Partition, some []store.Question) ([]struct{}, error) {
		return make([]struct{}, len(some)), part.Shadow(ctx, version, id, some)
	})
	return err
}

// ShadowCounts adds up what was counted of the candidate that the first partition with any counts names.
func (d *many) ShadowCounts(ctx context.Context) (sum store.ShadowCounts, err error) {
	all, err := gather(d, func(part *Partition) (store.ShadowCounts, error) { return part.ShadowCounts(ctx) })
	for _, c := range all {
		if c.ID == "" || sum.ID != "" && c.ID != sum.ID {
			continue
		}
		if sum.ID == "" || c.Since.Before(sum.Since) {
			sum.ID, sum.Since = c.ID, c.Since
		}
		sum.Allowed += c.Allowed
		for level := range c.Refused {
			sum.Refused[level] += c.Refused[level]
		}
	}
	return sum, err
}

func (d *many) Census(ctx context.Context) (store.Census, error) {
	sum := store.Census{Left: map[string]int64{}, Died: map[string]int64{}}
	all, err := gather(d, func(part *Partition) (store.Census, error) { return part.Census(ctx) })
	for _, c := range all {
		sum.Accepted += c.Accepted
		sum.Waiting += c.Waiting
		sum.Later += c.Later
		sum.Ready += c.Ready
		sum.Spilled += c.Spilled
		sum.SpilledAway += c.SpilledAway
		sum.Dead += c.Dead
		sum.Live += c.Live
		sum.Moving = sum.Moving || !c.Known()
		addCounts(sum.Left, c.Left)
		addCounts(sum.Died, c.Died)
	}
	return sum, err
}

func (d *many) Counters(ctx context.Context) (store.Counters, error) {
	sum := store.Counters{Left: map[string]int64{}, Died: map[string]int64{}, Unknown: map[string]store.Unknown{}, Anomalies: map[string]int64{}}
	all, err := gather(d, func(part *Partition) (store.Counters, error) { return part.Counters(ctx) })
	for _, c := range all {
		sum.Accepted, sum.Retried = sum.Accepted+c.Accepted, sum.Retried+c.Retried
		if sum.Live += c.Live; c.Live < 0 {
			sum.Live = math.MinInt64 / 2 // Not known of one is not known of all.
		}
		addCounts(sum.Left, c.Left)
		addCounts(sum.Died, c.Died)
		addCounts(sum.Anomalies, c.Anomalies)
		for queue, unknown := range c.Unknown {
			sum.Unknown[queue] = looking.AddUnknown(sum.Unknown[queue], unknown)
		}
	}
	return sum, err
}

func addCounts(to, from map[string]int64) {
	for reason, n := range from {
		to[reason] += n
	}
}

// Vitals returns the latest timer of all, and the memory of the Redis that has the least left of its maxmemory: of one without where none has any.
func (d *many) Vitals(ctx context.Context) (worst store.Vitals, err error) {
	all, err := gather(d, func(part *Partition) (store.Vitals, error) { return part.Vitals(ctx) })
	worst.Memory, worst.MaxMemory = fullest(all)
	for i, v := range all {
		worst.Late = max(worst.Late, v.Late)
		if i == 0 {
			worst.Bounds = v.Bounds
		}
		for k, u := range v.Bounds {
			worst.Bounds[k].Used = max(worst.Bounds[k].Used, u.Used)
		}
	}
	return worst, err
}

// Memory returns that of Redis as Vitals does.
func (d *many) Memory(ctx context.Context) (used, most int64, err error) {
	all, err := gather(d, func(part *Partition) (v store.Vitals, err error) {
		v.Memory, v.MaxMemory, err = part.Memory(ctx)
		return v, err
	})
	used, most = fullest(all)
	return used, most, err
}

// fullest returns the memory of the one that has the least left of its maxmemory.
func fullest(all []store.Vitals) (used, most int64) {
	for i, v := range all {
		bounded := v.MaxMemory > 0 && most == 0
		if fuller := float64(v.Memory)*float64(most) > float64(used)*float64(v.MaxMemory); i == 0 || bounded || v.MaxMemory > 0 && fuller {
			used, most = v.Memory, v.MaxMemory
		}
	}
	return used, most
}
