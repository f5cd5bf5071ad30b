package redisstore

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/keyspace"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/limits"
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

// sum adds up what do counts in each partition.
func sum(d *many, do func(part *Partition) (int64, error)) (n int64, err error) {
	all, err := gather(d, do)
	for _, one := range all {
		n += one
	}
	return n, err
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
		if part.conn.Index > 0 {
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
	part := d.of(questions[first].Home())
	for i := range questions {
		if tenant := questions[i].Home(); tenant != "" && d.of(tenant) != part {
			return nil, &admission.FieldError{
				Field: "questions", Value: "of tenants " + strconv.Quote(questions[first].Home()) + " and " + strconv.Quote(tenant),
				Allowed: "those of one partition a call: what is decided at once is in one",
			}
		}
	}
	return part, nil
}

// ask is Check of a deployment.
func (d *many) ask(ctx context.Context, version int64, peek bool, questions []store.Question) (limits.Asked, error) {
	if !namesTenant(questions) {
		return d.askAnywhere(ctx, version, peek, questions)
	}
	part, err := d.ofQuestions(questions)
	if err != nil {
		return limits.Asked{}, err
	}
	return part.Ask(ctx, version, peek, questions)
}

// askAnywhere is ask for questions of no tenant: each partition has a part of the global limit, and the one with the most left
// answers.
func (d *many) askAnywhere(ctx context.Context, version int64, peek bool, questions []store.Question) (limits.Asked, error) {
	all, err := gather(d, func(part *Partition) (limits.Asked, error) { return part.Ask(ctx, version, true, questions) })
	if err != nil {
		return limits.Asked{}, err
	}
	_, kept := questions[0].Limits[admission.LevelGlobal].Others()
	holds := func(a *store.Answer) admission.Micro {
		if kept {
			return min(a.Left[admission.LevelGlobal], a.Others)
		}
		return a.Left[admission.LevelGlobal]
	}
	most, sum, others := 0, admission.Micro(0), admission.Micro(0)
	for i := range all {
		a := &all[i].Answers[0]
		sum, others = sum+a.Left[admission.LevelGlobal], others+a.Others
		if holds(a) > holds(&all[most].Answers[0]) {
			most = i
		}
	}
	got := all[most]
	sum, others = sum-got.Answers[0].Left[admission.LevelGlobal], others-got.Answers[0].Others
	if !peek {
		got, err = d.parts[most].Ask(ctx, version, false, questions)
	}
	got.Elsewhere, got.OthersElsewhere = sum, others
	return got, err
}

// ofScope returns the store that counts a scope: the global one is counted in the first partition.
func (d *many) ofScope(scope admission.Scope) *Partition {
	if scope == admission.Global {
		return d.parts[0]
	}
	tenant, _, _ := strings.Cut(string(scope), ":")
	return d.of(tenant)
}

// List implements Deployment: it goes through the partitions, one after the other.
func (d *many) List(ctx context.Context, q store.ListQuery) (page store.ListPage, err error) {
	at, err := q.Begin()
	if err != nil {
		return store.ListPage{}, err
	}
	if q.Tenant != "" {
		return d.of(q.Tenant).ListFrom(ctx, q, at)
	}
	most := q.Limit
	for at.Part >= 0 && at.Part < len(d.parts) {
		q.Limit = most - len(page.Jobs)
		part, err := d.parts[at.Part].ListFrom(ctx, q, at)
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
