package redisstore

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/store"
)

// many is a deployment of several partitions.
type many struct{ parts []*Partition }

// Partitions implements Deployment.
func (d *many) Partitions() []store.Partition {
	parts := make([]store.Partition, len(d.parts))
	for i, part := range d.parts {
		parts[i] = part
	}
	return parts
}

// PartitionOf implements Deployment.
func (d *many) PartitionOf(name string) int { return keyspace.Of(name, len(d.parts)) }

// of returns the partition of a tenant, or of a downstream.
func (d *many) of(name string) *Partition { return d.parts[d.PartitionOf(name)] }

// Each implements Deployment.
func (d *many) Each(do func(i int, part store.Partition) error) error {
	return d.each(func(i int, part *Partition) error { return do(i, part) })
}

func (d *many) each(do func(i int, part *Partition) error) error { return each(d.parts, do) }

// each calls do for all partitions side by side and joins the errors.
func each(parts []*Partition, do func(i int, part *Partition) error) error {
	if len(parts) == 1 {
		return do(0, parts[0])
	}
	errs := make([]error, len(parts))
	var running sync.WaitGroup
	for i, part := range parts {
		running.Go(func() { errs[i] = do(i, part) })
	}
	running.Wait()
	return errors.Join(errs...)
}

// gather calls do for all partitions side by side and returns what each gave, in order.
func gather[T any](d *many, do func(part *Partition) (T, error)) ([]T, error) {
	found := make([]T, len(d.parts))
	err := d.each(func(i int, part *Partition) (err error) {
		found[i], err = do(part)
		return err
	})
	return found, err
}

// Close implements Deployment.
func (d *many) Close() error { return d.parts[0].Close() }

// ReadTimeout implements Deployment.
func (d *many) ReadTimeout() time.Duration { return d.parts[0].ReadTimeout() }

// Connections implements Deployment.
func (d *many) Connections() int { return d.parts[0].Connections() }

// tenantOf names whose job a key is.
func tenantOf(key admission.Key) string { return key.Tenant }

// under calls do for the partition of the tenant whose gate is named, for all side by side if the gate is no tenant's, and returns
// what each gave.
func under[T any](d *many, name store.GateName, by store.Intervention, do func(part *Partition, by store.Intervention) (T, error)) ([]T, error) {
	if tenant, ofTenant := name.Tenant(); ofTenant {
		one, err := do(d.of(tenant), by)
		return []T{one}, err
	}
	return actOnAll(d, by, do)
}

// actOnAll calls do for all partitions side by side. The first tells the audit of it.
func actOnAll[T any](d *many, by store.Intervention, do func(part *Partition, by store.Intervention) (T, error)) ([]T, error) {
	by = by.Named()
	return gather(d, func(part *Partition) (T, error) {
		if part.index > 0 {
			return do(part, by.Quiet())
		}
		return do(part, by)
	})
}

// spread gives each partition those of its tenants, side by side, and returns what it makes of them in the order of all.
func spread[A, B any](d *many, all []A, tenant func(A) string, do func(part *Partition, some []A) ([]B, error)) ([]B, error) {
	places := make([][]int, len(d.parts))
	for i, one := range all {
		at := keyspace.Of(tenant(one), len(d.parts))
		places[at] = append(places[at], i)
	}
	made := make([]B, len(all))
	err := d.each(func(at int, part *Partition) error {
		if len(places[at]) == 0 {
			return nil
		}
		some := make([]A, len(places[at]))
		for k, i := range places[at] {
			some[k] = all[i]
		}
		of, err := do(part, some)
		if err != nil {
			return err
		}
		for k, i := range places[at] {
			made[i] = of[k]
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return made, nil
}

// namesTenant reports whether any question names a tenant.
func namesTenant(questions []store.Question) bool {
	return slices.ContainsFunc(questions, func(q store.Question) bool { return q.Tenant != "" })
}

// ofQuestions returns the store of the partition that has the buckets of all questions. One of no tenant is of any.
func (d *many) ofQuestions(questions []store.Question) (*Partition, error) {
	first := slices.IndexFunc(questions, func(q store.Question) bool { return q.Tenant != "" })
	part := d.of(questions[first].Tenant)
	for i := range questions {
		if tenant := questions[i].Tenant; tenant != "" && d.of(tenant) != part {
			return nil, &admission.FieldError{
				Field: "questions", Value: "of tenants " + strconv.Quote(questions[first].Tenant) + " and " + strconv.Quote(tenant),
				Allowed: "those of one partition a call: what is decided at once is in one",
			}
		}
	}
	return part, nil
}

// ask is Check of a deployment.
func (d *many) ask(ctx context.Context, version int64, peek bool, questions []store.Question) (asked, error) {
	if !namesTenant(questions) {
		return d.askAnywhere(ctx, version, peek, questions)
	}
	part, err := d.ofQuestions(questions)
	if err != nil {
		return asked{}, err
	}
	return part.ask(ctx, version, peek, questions)
}

// askAnywhere is ask for questions of no tenant: each partition has a part of the global limit, and the one with the most left
// answers.
func (d *many) askAnywhere(ctx context.Context, version int64, peek bool, questions []store.Question) (asked, error) {
	all, err := gather(d, func(part *Partition) (asked, error) { return part.ask(ctx, version, true, questions) })
	if err != nil {
		return asked{}, err
	}
	most, sum := 0, buckets.Micro(0)
	for i := range all {
		left := all[i].answers[0].Left[admission.LevelGlobal]
		sum += left
		if left > all[most].answers[0].Left[admission.LevelGlobal] {
			most = i
		}
	}
	elsewhere := sum - all[most].answers[0].Left[admission.LevelGlobal]
	got := all[most]
	if !peek {
		got, err = d.parts[most].ask(ctx, version, false, questions)
	}
	got.elsewhere = elsewhere
	return got, err
}

// appendGlobal appends the partition's even part of the global limit. Scripts multiply the rate by what the partition has of it
// (Balancer); bursts stay even.
func (s *Partition) appendGlobal(args []any, limit *admission.Limit) []any {
	if s.parts == 0 || limit.Disabled || limit.Tokens == 0 {
		return appendLimit(args, limit)
	}
	part := float64(limit.Rate()) / float64(s.parts)
	return append(args, strconv.FormatFloat(part, 'g', 17, 64), burst(*limit)/int64(s.parts))
}

// ofScope returns the store that counts a scope: the global one is counted in the first partition.
func (d *many) ofScope(scope admission.Scope) *Partition {
	if scope == admission.Global {
		return d.parts[0]
	}
	tenant, _, _ := strings.Cut(string(scope), ":")
	return d.of(tenant)
}

func (d *many) Count(ctx context.Context, counts []store.ScopeCount) (done int, err error) {
	of := map[*Partition][]store.ScopeCount{}
	for _, c := range counts {
		part := d.ofScope(c.Scope)
		of[part] = append(of[part], c)
	}
	for part, some := range of {
		n, err := part.Count(ctx, some)
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
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
		sum.Dead += c.Dead
		sum.Live += c.Live
		sum.Moving = sum.Moving || !c.Known()
		addCounts(sum.Left, c.Left)
		addCounts(sum.Died, c.Died)
	}
	return sum, err
}

func (d *many) Counters(ctx context.Context) (store.Counters, error) {
	sum := store.Counters{Left: map[string]int64{}, Died: map[string]int64{}, Unknown: map[string]store.Unknown{}}
	all, err := gather(d, func(part *Partition) (store.Counters, error) { return part.Counters(ctx) })
	for _, c := range all {
		sum.Accepted, sum.Retried = sum.Accepted+c.Accepted, sum.Retried+c.Retried
		if sum.Live += c.Live; c.Live < 0 {
			sum.Live = math.MinInt64 / 2 // Not known of one is not known of all.
		}
		addCounts(sum.Left, c.Left)
		addCounts(sum.Died, c.Died)
		for queue, unknown := range c.Unknown {
			sum.Unknown[queue] = addUnknown(sum.Unknown[queue], unknown)
		}
	}
	return sum, err
}

func addCounts(to, from map[string]int64) {
	for reason, n := range from {
		to[reason] += n
	}
}

// Vitals returns the latest timer of all, and the memory of the Redis that has the least left.
func (d *many) Vitals(ctx context.Context) (worst store.Vitals, err error) {
	all, err := gather(d, func(part *Partition) (store.Vitals, error) { return part.Vitals(ctx) })
	for i, v := range all {
		if fuller := float64(v.Memory)*float64(worst.MaxMemory) > float64(worst.Memory)*float64(v.MaxMemory); i == 0 || fuller {
			worst.Memory, worst.MaxMemory = v.Memory, v.MaxMemory
		}
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

// List implements Deployment: it goes through the partitions, one after the other.
func (d *many) List(ctx context.Context, q store.ListQuery) (page store.ListPage, err error) {
	at, err := q.Begin()
	if err != nil {
		return store.ListPage{}, err
	}
	if q.Tenant != "" {
		return d.of(q.Tenant).list(ctx, q, at)
	}
	most := q.Limit
	for at.Part >= 0 && at.Part < len(d.parts) {
		q.Limit = most - len(page.Jobs)
		part, err := d.parts[at.Part].list(ctx, q, at)
		if err != nil {
			return store.ListPage{}, err
		}
		page.Jobs = append(page.Jobs, part.Jobs...)
		switch {
		case part.Cursor != "":
			page.Cursor = part.Cursor
			return page, nil
		case at.Part == len(d.parts)-1:
			return page, nil
		}
		at = store.ListCursor{Of: at.Of, Part: at.Part + 1}
		if len(page.Jobs) == most {
			page.Cursor = at.Encode()
			return page, nil
		}
	}
	return page, nil
}
