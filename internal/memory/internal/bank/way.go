package bank

import (
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/store"
)

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

// BypassOf returns the limits on the way of a job beside those of its queue and class, until it is asked again: none where it has no such way.
func (c *Charge) BypassOf(limits *[admission.Levels]admission.Limit, tenant string) []buckets.LevelLimit {
	c.bypass = buckets.AppendBypass(c.bypass[:0], limits, tenant, c.LimitAt)
	return c.bypass
}

// Way returns which way a job goes, beside, if there is one, or path, and what is answered.
func (c *Charge) Way(beside, path []buckets.LevelLimit, cost admission.Tokens) ([]buckets.LevelLimit, admission.Verdict) {
	v := c.Peek(path, cost)
	if len(beside) == 0 {
		return path, v
	}
	if v = buckets.Choose(c.Peek(beside, cost), v); v.Bypassed {
		return beside, v
	}
	return path, v
}

// named has a verdict name the scope that others know.
func named(v admission.Verdict) admission.Verdict {
	switch {
	case v.Scope == buckets.Others:
		v.Detail = store.KeptDetail(v.Detail)
	case buckets.IsShare(v.Scope) && v.Reason != admission.ReasonBuckets:
		v.Detail = store.ShareDetail(v.Detail)
	}
	v.Scope = buckets.Named(v.Scope)
	return v
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
