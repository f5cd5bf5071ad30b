package store

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
)

// tenantOf names whose job a key is.
func tenantOf(key admission.Key) string { return key.Tenant }

// under calls do for the partition of the tenant whose gate is named, for all side by side if the gate is no tenant's. The first of
// all tells the audit of it.
func (s *Store) under(name GateName, by Intervention, do func(part *Store, by Intervention) error) error {
	by = by.named()
	if tenant, ofTenant := name.Tenant(); ofTenant {
		return do(s.of(tenant), by)
	}
	return s.Each(func(i int, part *Store) error {
		if i > 0 {
			return do(part, by.quiet())
		}
		return do(part, by)
	})
}

// spread gives each partition those of its tenants, side by side, and returns what it makes of them in the order of all.
func spread[A, B any](s *Store, all []A, tenant func(A) string, do func(part *Store, some []A) ([]B, error)) ([]B, error) {
	places := make([][]int, len(s.all))
	for i, one := range all {
		at := keyspace.Of(tenant(one), len(s.all))
		places[at] = append(places[at], i)
	}
	made := make([]B, len(all))
	err := s.Each(func(at int, part *Store) error {
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

// anyOf reports whether do did for any partition.
func anyOf(s *Store, do func(part *Store) (bool, error)) (bool, error) {
	all, err := gather(s, do)
	return slices.Contains(all, true), err
}

// namesTenant reports whether any question names a tenant.
func namesTenant(questions []Question) bool {
	return slices.ContainsFunc(questions, func(q Question) bool { return q.Tenant != "" })
}

// ofQuestions returns the store of the partition that has the buckets of all questions. One of no tenant is of any.
func (s *Store) ofQuestions(questions []Question) (*Store, error) {
	if s.all == nil {
		return s, nil
	}
	first := slices.IndexFunc(questions, func(q Question) bool { return q.Tenant != "" })
	part := s.of(questions[first].Tenant)
	for i := range questions {
		if tenant := questions[i].Tenant; tenant != "" && s.of(tenant) != part {
			return nil, &admission.FieldError{
				Field: "questions", Value: "of tenants " + strconv.Quote(questions[first].Tenant) + " and " + strconv.Quote(tenant),
				Allowed: "those of one partition a call: what is decided at once is in one",
			}
		}
	}
	return part, nil
}

// askAnywhere is ask for questions of no tenant: each partition has a part of the global limit, and the one with the most left
// answers.
func (s *Store) askAnywhere(ctx context.Context, version int64, peek bool, questions []Question) (asked, error) {
	all, err := gather(s, func(part *Store) (asked, error) { return part.ask(ctx, version, true, questions) })
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
		got, err = s.all[most].ask(ctx, version, false, questions)
	}
	got.elsewhere = elsewhere
	return got, err
}

// appendGlobal appends the partition's even part of the global limit. Scripts multiply the rate by what the partition has of it
// (Balancer); bursts stay even.
func (s *Store) appendGlobal(args []any, limit *admission.Limit) []any {
	if s.parts == 0 || limit.Disabled || limit.Tokens == 0 {
		return appendLimit(args, limit)
	}
	part := float64(limit.Rate()) / float64(s.parts)
	return append(args, strconv.FormatFloat(part, 'g', 17, 64), burst(*limit)/int64(s.parts))
}

// ofScope returns the store that counts a scope: the global one is counted in the first partition.
func (s *Store) ofScope(scope admission.Scope) *Store {
	if s.all == nil || scope == admission.Global {
		return s
	}
	tenant, _, _ := strings.Cut(string(scope), ":")
	return s.of(tenant)
}

func (s *Store) countAll(ctx context.Context, counts []ScopeCount) (done int, err error) {
	of := map[*Store][]ScopeCount{}
	for _, c := range counts {
		part := s.ofScope(c.Scope)
		if part == s {
			part = s.all[0]
		}
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

func (s *Store) shadowAll(ctx context.Context, version int64, id string, questions []Question) error {
	_, err := spread(s, questions, func(q Question) string { return q.Tenant }, func(part *Store, some []Question) ([]struct{}, error) {
		return make([]struct{}, len(some)), part.Shadow(ctx, version, id, some)
	})
	return err
}

// shadowCountsOfAll adds up what was counted of the candidate that the first partition with any counts names.
func (s *Store) shadowCountsOfAll(ctx context.Context) (sum ShadowCounts, err error) {
	all, err := gather(s, func(part *Store) (ShadowCounts, error) { return part.ShadowCounts(ctx) })
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

func (s *Store) censusOfAll(ctx context.Context) (Census, error) {
	sum := Census{Left: map[string]int64{}, Died: map[string]int64{}}
	all, err := gather(s, func(part *Store) (Census, error) { return part.Census(ctx) })
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

func (s *Store) countersOfAll(ctx context.Context) (Counters, error) {
	sum := Counters{Left: map[string]int64{}, Died: map[string]int64{}, Unknown: map[string]Unknown{}}
	all, err := gather(s, func(part *Store) (Counters, error) { return part.Counters(ctx) })
	for _, c := range all {
		sum.Accepted, sum.Retried = sum.Accepted+c.Accepted, sum.Retried+c.Retried
		if sum.Live += c.Live; c.Live < 0 {
			sum.Live = math.MinInt64 / 2 // Not known of one is not known of all.
		}
		addCounts(sum.Left, c.Left)
		addCounts(sum.Died, c.Died)
		for queue, unknown := range c.Unknown {
			sum.Unknown[queue] = sum.Unknown[queue].add(unknown)
		}
	}
	return sum, err
}

func addCounts(to, from map[string]int64) {
	for reason, n := range from {
		to[reason] += n
	}
}

// vitalsOfAll returns the latest timer of all, and the memory of the Redis that has the least left.
func (s *Store) vitalsOfAll(ctx context.Context) (worst Vitals, err error) {
	all, err := gather(s, func(part *Store) (Vitals, error) { return part.Vitals(ctx) })
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

// forceAll forces the breaker of each partition. One that some do not know is reset where it is known.
func (s *Store) forceAll(ctx context.Context, downstream, to string, duration time.Duration, by Intervention) (more bool, err error) {
	var mu sync.Mutex
	unknown := 0
	err = s.Each(func(_ int, part *Store) error {
		left, err := part.force(ctx, downstream, to, duration, by)
		mu.Lock()
		defer mu.Unlock()
		more = more || left
		if errors.Is(err, ErrNoBreaker) && unknown < len(s.all)-1 {
			unknown++
			return nil
		}
		return err
	})
	return more, err
}

// listAll goes through the partitions, one after the other.
func (s *Store) listAll(ctx context.Context, q ListQuery, at cursor) (page ListPage, err error) {
	if q.Tenant != "" {
		return s.of(q.Tenant).list(ctx, q, at)
	}
	most := q.Limit
	for at.Part >= 0 && at.Part < len(s.all) {
		q.Limit = most - len(page.Jobs)
		part, err := s.all[at.Part].list(ctx, q, at)
		if err != nil {
			return ListPage{}, err
		}
		page.Jobs = append(page.Jobs, part.Jobs...)
		switch {
		case part.Cursor != "":
			page.Cursor = part.Cursor
			return page, nil
		case at.Part == len(s.all)-1:
			return page, nil
		}
		at = cursor{Of: at.Of, Part: at.Part + 1}
		if len(page.Jobs) == most {
			page.Cursor = at.encode()
			return page, nil
		}
	}
	return page, nil
}
