package bank

import (
	"iter"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/store"
)

// Of a dimension's shard with sweptFrom buckets and more those that are full make room for a new one, not sooner than sweptEvery microseconds after
// the last time, as fragments/path.lua says.
const (
	sweptFrom  = 32
	sweptEvery = 10_000_000
)

// Enter begins a call of questions: keys of dimensions find room for their buckets, or the one that those without room share.
func (c *Charge) Enter(questions []store.Question) {
	clear(c.entered)
	clear(c.fresh)
	clear(c.asked)
	for i := range questions {
		if scope, _, _ := shardOf(&questions[i]); questions[i].OfDimension() {
			if c.asked == nil {
				c.asked = map[admission.Scope]bool{}
			}
			c.asked[scope] = true
		}
	}
	for i := range questions {
		if q := &questions[i]; q.OfDimension() {
			c.enter(q)
		}
	}
}

// enter returns the scope by which the bank has a question's bucket, and whether there is room for it. It decides once a call.
func (c *Charge) enter(q *store.Question) (scope admission.Scope, has bool) {
	scope, owner, room := shardOf(q)
	if room == 0 || !Limited(&q.Limits[admission.LevelQueue]) {
		return q.Scope(), true
	}
	if has, decided := c.entered[scope]; decided {
		return scope, has
	}
	if c.entered == nil {
		c.entered, c.fresh = map[admission.Scope]bool{}, map[string]int{}
	}
	has = true
	if c.bank.set.Bucket(scope).Absent() {
		if p := c.bank.purses[owner]; p != nil && len(p.scopes) >= min(room, sweptFrom) && c.At >= p.swept {
			c.sweepAll(p)
		}
		n := c.fresh[owner]
		if p := c.bank.purses[owner]; p != nil {
			n += len(p.scopes)
		}
		if has = n < room; has {
			c.fresh[owner]++
		}
	}
	c.entered[scope] = has
	return scope, has
}

// shardOf returns the scope by which the bank has the bucket of a dimension's key in its shard, the shard's owner, and for how many there is room.
func shardOf(q *store.Question) (scope admission.Scope, owner string, room int) {
	shard, room := q.Shard(1)
	owner = q.Tenant + admission.DimensionMark + strconv.Itoa(shard)
	return admission.Scope(owner + ":" + q.Queue), owner, room
}

// sweepAll takes all buckets out of a purse that are full, but for those that the call asks: they may be written again.
func (c *Charge) sweepAll(p *purse) {
	now := buckets.Instant(c.Now)
	for scope := range p.scopes {
		if b := c.bank.set.Bucket(scope); !c.asked[scope] && b.Since(c.At, now) >= max(c.changed, p.changed) && b.FullAt(c.At, now) <= c.At {
			c.bank.Remove(scope)
		}
	}
	p.swept = c.At + sweptEvery
}

// WayOf is PathOf of a question, of which Enter knows.
func (c *Charge) WayOf(q *store.Question) []buckets.LevelLimit {
	if !q.OfDimension() {
		return c.PathOfType(&q.Limits, q.TypeLimit, q.Tenant, q.Queue, q.Class)
	}
	c.path = c.path[:0]
	scope, has := c.enter(q)
	limit := &q.Limits[admission.LevelQueue]
	if !has {
		scope, limit = admission.Scope(q.Tenant), &q.Limits[admission.LevelTenant]
	}
	if Limited(limit) {
		c.path = append(c.path, buckets.LevelLimit{Scope: scope, Limit: c.LimitAt(scope, limit)})
	}
	return c.path
}

// WayTaken is WayOf of a question that was asked some time ago; shared says that it was charged to the bucket which keys without room share.
func (c *Charge) WayTaken(q *store.Question, shared bool) []buckets.LevelLimit {
	path := c.WayOf(q)
	if !shared || len(path) == 0 {
		return path
	}
	if _, _, room := shardOf(q); room > 0 && path[0].Scope != admission.Scope(q.Tenant) {
		scope := admission.Scope(q.Tenant)
		path[0] = buckets.LevelLimit{Scope: scope, Limit: c.LimitAt(scope, &q.Limits[admission.LevelTenant])}
	}
	return path
}

// PathOfType is PathOf of a job that has, beside those, the limit of its type; nil for none.
func (c *Charge) PathOfType(limits *[admission.Levels]admission.Limit, of *store.TypeLimit, tenant, queue string, class admission.Priority) []buckets.LevelLimit {
	if c.PathOf(limits, tenant, queue, class); of != nil {
		scope := admission.ScopeAt(admission.LevelPriority, tenant, queue, admission.OfType(of.Type))
		c.path = append(c.path, buckets.LevelLimit{Scope: scope, Limit: c.LimitAt(scope, of.Limit)})
	}
	return c.path
}

// IsOfType reports whether a step on the way of a question is that of its type.
func IsOfType(step *buckets.LevelLimit, q *store.Question) bool {
	return q.TypeLimit != nil && step.Scope == admission.ScopeAt(admission.LevelPriority, q.Tenant, q.Queue, admission.OfType(q.TypeLimit.Type))
}

// Swept yields until when shards are not swept again, of those that were.
func (b *Bank) Swept() iter.Seq2[string, buckets.Instant] {
	return func(yield func(string, buckets.Instant) bool) {
		for owner, p := range b.purses {
			if p.swept > 0 && !yield(owner, p.swept) {
				return
			}
		}
	}
}

// Named is the scope by which others know what the bank has under one: without the shard.
func Named(scope admission.Scope) admission.Scope {
	owner, key, _ := strings.Cut(string(scope), ":")
	if at := strings.LastIndex(owner, admission.DimensionMark); at > 0 {
		return admission.Scope(owner[:at] + ":" + key)
	}
	return scope
}
