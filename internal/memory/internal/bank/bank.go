package bank

import (
	"iter"
	"strings"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/internal/memory/internal/times"
	"github.com/headgate/headgate/store"
)

const (
	// mostBuckets is how many buckets a tenant may have, and the word of when they end.
	mostBuckets = 4096
	// Of a tenant that has manyBuckets, some that are full make room with each one that is new: sweepMost of the sweepLook looked at.
	manyBuckets = 128
	sweepLook   = 64
	sweepMost   = 16
	// bucketSlack is for how many microseconds buckets are kept after they are full.
	bucketSlack = 2_000_000
)

// Bank keeps buckets. Those of a tenant go when the last of them is full.
type Bank struct {
	set    buckets.Set       // by scope
	purses map[string]*purse // by tenant
	ends   *times.Times      // of purses
}

// purse is what a tenant has of the bank.
type purse struct {
	scopes map[admission.Scope]struct{}
	// expires is when all are full, and a little more, by the buckets' time; full is when those are that the call under way writes.
	expires, full buckets.Instant
	fresh         bool // the call under way writes one that is new
	// changed is when the tenant's own limits last did, by the buckets' time.
	changed buckets.Instant
	// swept is until when a dimension's shard is not swept again, by the buckets' time.
	swept buckets.Instant
}

// New returns an empty bank.
func New() Bank { return Bank{purses: map[string]*purse{}, ends: times.New()} }

// Forget forgets some buckets that have ended.
func (b *Bank) Forget(now int64) {
	for _, tenant := range b.ends.Passed(now) {
		for scope := range b.purses[tenant].scopes {
			b.set.Put(scope, buckets.Bucket{})
		}
		delete(b.purses, tenant)
	}
}

// ofAll reports whether a bucket is that of all or of Others, which no tenant has.
func ofAll(scope admission.Scope) bool { return scope == admission.Global || scope == buckets.Others }

// RemoveGlobal takes the buckets of the global limit out, and reports whether there was one.
func (b *Bank) RemoveGlobal() bool {
	global, others := b.Remove(admission.Global), b.Remove(buckets.Others)
	return global || others
}

// Remove takes a bucket out, and reports whether it was there.
func (b *Bank) Remove(scope admission.Scope) bool {
	if b.set.Bucket(scope).Absent() {
		return false
	}
	b.set.Put(scope, buckets.Bucket{})
	if p := b.purses[ownerOf(scope)]; p != nil {
		delete(p.scopes, scope)
	}
	return true
}

// All yields every bucket that is kept, in no order.
func (b *Bank) All() iter.Seq2[admission.Scope, buckets.Bucket] {
	return func(yield func(admission.Scope, buckets.Bucket) bool) {
		for _, scope := range [...]admission.Scope{admission.Global, buckets.Others} {
			if of := b.set.Bucket(scope); !of.Absent() && !yield(scope, of) {
				return
			}
		}
		for _, p := range b.purses {
			for scope := range p.scopes {
				if !yield(scope, b.set.Bucket(scope)) {
					return
				}
			}
		}
	}
}

// Left returns after how many microseconds the buckets of a tenant are forgotten, 0 where it has none.
func (b *Bank) Left(tenant string, now int64) int64 { return max(0, b.ends.At(tenant)-now) }

// KeepFor puts off the end of all buckets until so many microseconds from now at least.
func (b *Bank) KeepFor(us, now int64) {
	for tenant := range b.purses {
		b.ends.Put(tenant, max(b.ends.At(tenant), now+us))
	}
}

// LimitsChanged notes that the limits of a tenant have changed by themselves, and puts off the end of its buckets until so many microseconds from
// now at least.
func (b *Bank) LimitsChanged(tenant string, at buckets.Instant, us, now int64) {
	if p := b.purses[tenant]; p != nil {
		p.changed = at
		b.ends.Put(tenant, max(b.ends.At(tenant), now+us))
	}
}

// Changes yields when the limits of tenants have changed by themselves, of those that have buckets.
func (b *Bank) Changes() iter.Seq2[string, buckets.Instant] {
	return func(yield func(string, buckets.Instant) bool) {
		for tenant, p := range b.purses {
			if p.changed > 0 && !yield(tenant, p.changed) {
				return
			}
		}
	}
}

// changedOf is when the limits of a scope have changed by themselves, zero for never.
func (b *Bank) changedOf(scope admission.Scope) buckets.Instant {
	if ofAll(scope) {
		return 0
	}
	if p := b.purses[ownerOf(scope)]; p != nil {
		return p.changed
	}
	return 0
}

// Scales are the parts to which limits are scaled, by store.ScaleAll, ScaleGlobal or the gate of a tenant, or by what moves by itself:
// store.GlobalLimitGate or QueueLimitsGate.
type Scales map[store.GateName]*buckets.Scaling

// of returns that of a scope's bucket, which has a limit, nil for none.
func (s Scales) of(scope admission.Scope, limit *admission.Limit) *buckets.Scaling {
	target, moves := store.ScaleGlobal, store.GlobalLimitGate
	if !ofAll(scope) {
		tenant := ownerOf(scope)
		if at := strings.LastIndexByte(tenant, '\n'); at >= 0 { // Of a candidate in shadow.
			tenant = tenant[at+1:]
		}
		queue, _, _ := strings.Cut(strings.TrimPrefix(string(scope)[len(ownerOf(scope)):], ":"), ":")
		target, moves = store.TenantGate(tenant), store.QueueLimitsGate(queue)
	}
	return s[store.ScaleAll].Less(s[target]).Less(s[moves].Of(limit))
}

// ownerOf is the tenant of a scope below the global one.
func ownerOf(scope admission.Scope) string {
	tenant, _, _ := strings.Cut(string(scope), ":")
	return tenant
}

// Charge is a call that asks buckets and charges them: what it writes stands once it is committed.
type Charge struct {
	bank *Bank
	// Now is the time of the call and At that of the buckets, which never goes back.
	Now     int64
	At      buckets.Instant
	changed buckets.Instant
	scales  Scales
	touched []touched
	// numbers are the places in touched of a call that touches many.
	numbers map[admission.Scope]int
	path    []buckets.LevelLimit
	// entered says of keys of dimensions whether there is room for their buckets, and fresh how many are new in the call by shard.
	entered map[admission.Scope]bool
	// asked are the scopes of the dimensions' keys that the call asks.
	asked map[admission.Scope]bool
	fresh map[string]int
}

// touched is a bucket that a call may have changed, as it was before.
type touched struct {
	scope  admission.Scope
	before buckets.Bucket
}

const fewTouched = 16

// Begin begins a charge of a bank at a time, and ends the one before. at is the buckets' time and changed when limits last were; by over
// what has ended is forgotten.
func (c *Charge) Begin(b *Bank, now, over int64, at, changed buckets.Instant, scales Scales) {
	b.Forget(over)
	c.bank, c.Now, c.At, c.changed, c.scales = b, now, at, changed, scales
	c.touched, c.numbers, c.path = c.touched[:0], nil, c.path[:0]
}

// PathOf returns the limits on the way of a scope until it is asked again; one without tokens is none.
func (c *Charge) PathOf(limits *[admission.Levels]admission.Limit, tenant, queue string, class admission.Priority) []buckets.LevelLimit {
	c.path = c.path[:0]
	for level := range limits {
		if limit := &limits[level]; Limited(limit) {
			scope := admission.ScopeAt(admission.Level(level), tenant, queue, class)
			c.path = append(c.path, buckets.LevelLimit{Scope: scope, Limit: c.LimitAt(scope, limit)})
		}
	}
	if others, kept := limits[admission.LevelGlobal].Others(); kept {
		c.path = buckets.AppendOthers(c.path, &limits[admission.LevelGlobal], c.LimitAt(buckets.Others, &others))
	}
	return c.path
}

// named has a verdict name the scope that others know.
func named(v admission.Verdict) admission.Verdict {
	if v.Scope == buckets.Others {
		v.Scope, v.Detail = admission.Global, store.KeptDetail(v.Detail)
	}
	return v
}

// LimitAt returns what the limit of a scope is now, scaled if it is.
func (c *Charge) LimitAt(scope admission.Scope, limit *admission.Limit) buckets.Limit {
	l := buckets.LimitAt(*limit, buckets.Instant(c.Now))
	l.Changed = c.bank.changedOf(scope)
	if c.scales == nil {
		return l
	}
	return l.Scaled(c.scales.of(scope, limit))
}

// Changed reports whether limits on the way of a tenant have changed since a time of the buckets.
func (c *Charge) Changed(tenant string, since int64) bool {
	changed := c.changed
	if p := c.bank.purses[tenant]; p != nil {
		changed = max(changed, p.changed)
	}
	return buckets.Instant(since) < changed
}

// Limited reports whether a limit is one; what has no tokens is none.
func Limited(limit *admission.Limit) bool { return !limit.Disabled && limit.Tokens != 0 }

// find returns the place of a scope in touched, or -1.
func (c *Charge) find(scope admission.Scope) int {
	if c.numbers != nil {
		if i, ok := c.numbers[scope]; ok {
			return i
		}
		return -1
	}
	for i := range c.touched {
		if c.touched[i].scope == scope {
			return i
		}
	}
	return -1
}

// Before returns a bucket as it was when the call began.
func (c *Charge) Before(scope admission.Scope) buckets.Bucket {
	if i := c.find(scope); i >= 0 {
		return c.touched[i].before
	}
	return c.bank.set.Bucket(scope)
}

// touch notes a bucket that the call may change.
func (c *Charge) touch(scope admission.Scope) {
	if c.find(scope) >= 0 {
		return
	}
	c.touched = append(c.touched, touched{scope, c.bank.set.Bucket(scope)})
	switch {
	case c.numbers != nil:
		c.numbers[scope] = len(c.touched) - 1
	case len(c.touched) > fewTouched:
		c.numbers = make(map[admission.Scope]int, 2*len(c.touched))
		for i := range c.touched {
			c.numbers[c.touched[i].scope] = i
		}
	}
}

// HasRoom reports whether a bucket is there, or its tenant may have one more.
func (c *Charge) HasRoom(scope admission.Scope) bool {
	if ofAll(scope) || !c.bank.set.Bucket(scope).Absent() {
		return true
	}
	tenant, n := ownerOf(scope), 0
	if p := c.bank.purses[tenant]; p != nil {
		n = len(p.scopes) + 1
	}
	if n+len(c.touched) < mostBuckets {
		return true
	}
	for i := range c.touched {
		if t := &c.touched[i]; !ofAll(t.scope) && t.before.Absent() && ownerOf(t.scope) == tenant && !c.bank.set.Bucket(t.scope).Absent() {
			n++
		}
	}
	return n < mostBuckets
}

// crowded returns the refusal of a path on which there would be one bucket too many, nil for none.
func (c *Charge) crowded(path []buckets.LevelLimit, cost admission.Tokens) *admission.Verdict {
	for _, step := range path {
		if c.HasRoom(step.Scope) {
			continue
		}
		v := c.bank.set.Peek(c.At, c.changed, path, cost)
		if v.Reason != admission.ReasonTooCostly {
			v = admission.Verdict{Reason: admission.ReasonBuckets, Scope: step.Scope, RetryAfter: store.RefusedRetry}
		}
		return &v
	}
	return nil
}

// Peek returns the verdict that take would give.
func (c *Charge) Peek(path []buckets.LevelLimit, cost admission.Tokens) admission.Verdict {
	if v := c.crowded(path, cost); v != nil {
		return named(*v)
	}
	return named(c.bank.set.Peek(c.At, c.changed, path, cost))
}

// Take charges all buckets of a path, or refuses.
func (c *Charge) Take(path []buckets.LevelLimit, cost admission.Tokens) admission.Verdict {
	if v := c.crowded(path, cost); v != nil {
		return named(*v)
	}
	for _, step := range path {
		c.touch(step.Scope)
	}
	return named(c.bank.set.Take(c.At, c.changed, path, cost))
}

// LevelOf is what a bucket holds, and the time of that.
func (c *Charge) LevelOf(of buckets.LevelLimit) (buckets.Micro, buckets.Instant) {
	return buckets.Settle(c.At, c.changed, c.bank.set.Bucket(of.Scope), of.Limit)
}

// Least returns the scope of a path whose bucket holds least, what it has in whole tokens, and its burst.
func (c *Charge) Least(path []buckets.LevelLimit) (scope admission.Scope, left, burst admission.Tokens) {
	scope, left, burst = c.bank.set.Least(c.At, c.changed, path)
	return buckets.Named(scope), left, burst
}

// Put stores what a bucket holds.
func (c *Charge) Put(of buckets.LevelLimit, level buckets.Micro, stamp buckets.Instant) {
	c.touch(of.Scope)
	c.bank.set.Put(of.Scope, of.Limit.Store(c.At, c.changed, c.bank.set.Bucket(of.Scope), level, stamp))
}

// TrueUp has the buckets of a path hold what work has cost in place of what it reserved so long ago. room is what each is known to have had room
// for, nil where nobody noted it.
func (c *Charge) TrueUp(path []buckets.LevelLimit, reserved, actual admission.Tokens, elapsed buckets.Span, room func(step buckets.LevelLimit) buckets.Micro) {
	for _, step := range path {
		if !c.HasRoom(step.Scope) {
			continue
		}
		before := c.bank.set.Bucket(step.Scope)
		if step.Limit.Sliding != nil && actual < reserved {
			if after, back := step.Limit.GiveBack(c.At, c.changed, before, reserved-actual, elapsed); back > 0 {
				c.touch(step.Scope)
				c.bank.set.Put(step.Scope, after)
			}
			continue
		}
		noted := buckets.Micro(0)
		if room != nil {
			noted = room(step)
		}
		level, stamp := c.LevelOf(step)
		if to := buckets.TrueUp(level, step.Limit, reserved, actual, elapsed, noted); to != level {
			c.Put(step, to, stamp)
		}
	}
}

// Back takes back all that the call has done.
func (c *Charge) Back() {
	for i := range c.touched {
		c.bank.set.Put(c.touched[i].scope, c.touched[i].before)
	}
	c.touched, c.numbers = c.touched[:0], nil
}

// Commit has what was charged stand, until it is full, and reports whether anything was.
func (c *Charge) Commit() (changed bool) {
	for i := range c.touched {
		scope := c.touched[i].scope
		stored := c.bank.set.Bucket(scope)
		if stored == c.touched[i].before {
			continue
		}
		if changed = true; ofAll(scope) {
			continue
		}
		tenant := ownerOf(scope)
		p := c.bank.purses[tenant]
		if p == nil {
			p = &purse{scopes: map[admission.Scope]struct{}{}}
			c.bank.purses[tenant] = p
		}
		p.scopes[scope] = struct{}{}
		p.full = max(p.full, stored.FullAt(c.At, buckets.Instant(c.Now)))
		p.fresh = p.fresh || c.touched[i].before.Absent()
	}
	if changed {
		for i := range c.touched {
			c.settle(c.touched[i].scope)
		}
	}
	return changed
}

// settle puts off the end of the purse of a bucket that the call has changed, once, and makes room in it.
func (c *Charge) settle(scope admission.Scope) {
	if ofAll(scope) {
		return
	}
	tenant := ownerOf(scope)
	p := c.bank.purses[tenant]
	if p == nil || p.full == 0 {
		return
	}
	if p.full > p.expires {
		p.expires = p.full + bucketSlack
		ends := (int64(p.full-c.At) + c.Now + bucketSlack + 999) / 1000 * 1000
		c.bank.ends.Put(tenant, max(ends, c.bank.ends.At(tenant)))
	}
	if p.fresh && len(p.scopes) >= manyBuckets {
		c.sweep(p)
	}
	p.full, p.fresh = 0, false
}

// sweep takes out of a purse some buckets that are full. One from before the latest policy is not known to be: its full time was counted at
// a rate that may have been faster.
func (c *Charge) sweep(p *purse) {
	looked, gone, now := 0, 0, buckets.Instant(c.Now)
	for scope := range p.scopes {
		if b := c.bank.set.Bucket(scope); b.Since(c.At, now) >= max(c.changed, p.changed) && b.FullAt(c.At, now) <= c.At {
			c.bank.Remove(scope)
			gone++
		}
		if looked++; looked == sweepLook || gone == sweepMost {
			return
		}
	}
}
