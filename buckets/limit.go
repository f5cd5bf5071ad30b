package buckets

import (
	"math"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// Limit is what a bucket must know of a headgate.Limit. It is a plain value.
type Limit struct {
	// Rate is the refill in tokens a second, above zero: micro-tokens a microsecond.
	Rate admission.TokensPerSecond
	// Burst is the capacity, 1 to 1e9 tokens.
	Burst Micro
	// Window is the one that a limit of fixed windows is in, which LimitAt finds out; nil for a token bucket.
	Window *OpenWindow
	// Sliding is that of a limit of sliding windows, nil for another one.
	Sliding *OpenSliding
	// Whole is what the policy says of a limit that is scaled; nil for one that is as the policy says.
	Whole *Whole
	// Changed is when it last changed by itself, where that is later than what Settle is told of all; zero for never.
	Changed Instant
	// Floor is what a job has to leave in the bucket, zero for nothing: see AppendOthers. Below zero a job may leave a debt as large: see AppendBypass.
	Floor Micro
}

// LimitOf returns the token bucket that an enabled and valid headgate.Limit describes. LimitAt does of windows, too.
func LimitOf(limit admission.Limit) Limit {
	return Limit{Rate: limit.Rate(), Burst: MicroOf(limit.Burst)}
}

// Came returns no less than what came in within a time, up to the largest burst.
func (l Limit) Came(elapsed Span) Micro {
	return Micro(min(math.Ceil(float64(max(elapsed, 0))*float64(l.Rate))+1, float64(maxMicro)))
}

// LevelLimit is one step on a job's way: the scope whose bucket is asked and the limit in force there.
type LevelLimit struct {
	Scope admission.Scope
	Limit Limit
}

// AppendOthers appends the bucket of Others, by what they may have of a limit, to a path that begins with the global one. Where what is kept from them is
// lent, they leave it in that.
func AppendOthers(path []LevelLimit, global *admission.Limit, others Limit) []LevelLimit {
	if global.Lent() {
		path[0].Limit.Floor = path[0].Limit.Burst - others.Burst
	}
	return append(path, LevelLimit{Scope: Others, Limit: others})
}

// Others is the bucket of those who may not take what is kept of the global limit (admission.Limit.Others). It is no scope that others know: Named
// has the one that they do.
const Others admission.Scope = "global*"

// ShareOf is the bucket of what of a tenant's may go beside the limits of queues and classes (admission.Limit.Share). As that of Others it is no scope
// that others know.
func ShareOf(tenant string) admission.Scope { return admission.Scope(tenant + shareMark) }

const shareMark = ":*"

// IsShare reports whether a bucket is a ShareOf a tenant.
func IsShare(scope admission.Scope) bool {
	return strings.HasSuffix(string(scope), shareMark) && !scope.OfDimension()
}

// Named returns the scope under which others know a bucket.
func Named(scope admission.Scope) admission.Scope {
	switch {
	case scope == Others:
		return admission.Global
	case IsShare(scope):
		return scope[:len(scope)-len(shareMark)]
	}
	return scope
}

// AppendBypass appends the way of a job beside the limits of its queue and class to an empty path, nothing where it has none (admission.Limit.Bypassing): the global
// bucket, which such a job may take below zero, the tenant's, and last its ShareOf the tenant's. at says what the limit of a scope is.
func AppendBypass(path []LevelLimit, limits *[admission.Levels]admission.Limit, tenant string, at func(admission.Scope, *admission.Limit) Limit) []LevelLimit {
	global, own := &limits[admission.LevelGlobal], &limits[admission.LevelTenant]
	share, bypasses := global.Share(own)
	if !bypasses {
		return path
	}
	if !global.Disabled && global.Tokens != 0 {
		limit := at(admission.Global, global)
		limit.Floor = -global.Reserve(MicroOf(global.Burst))
		path = append(path, LevelLimit{Scope: admission.Global, Limit: limit})
	}
	for _, step := range [...]struct {
		scope admission.Scope
		limit *admission.Limit
	}{{admission.Scope(tenant), own}, {ShareOf(tenant), &share}} {
		path = append(path, LevelLimit{Scope: step.scope, Limit: at(step.scope, step.limit)})
	}
	return path
}

// Choose returns what is answered to a job that has a way beside the limits of its queue and class, by the verdicts on that and on the way of all: it goes
// beside where it can, else the way of all, and where it can go neither it is told which of both it can go sooner, of equals the way of all.
func Choose(beside, all admission.Verdict) admission.Verdict {
	switch {
	case beside.Decision == admission.Admitted:
		beside.Bypassed = true
		return beside
	case all.Decision == admission.Admitted || until(&all) <= until(&beside):
		return all
	}
	return beside
}

// until is how long a refusal lasts at least, of one for good longer than of any other, and of one for want of room as long as nobody knows.
func until(v *admission.Verdict) time.Duration {
	switch v.Reason {
	case admission.ReasonTooCostly:
		return math.MaxInt64
	case admission.ReasonBuckets:
		return math.MaxInt64 - 1
	default:
		return v.RetryAfter
	}
}

// AppendPath appends the enabled limits of a job's four levels to path, outermost first, then that of Others where the job is one of them, and
// returns it. The array is indexed by headgate.Level, as policy resolves it. Each is what LimitOf says of it.
func AppendPath(path []LevelLimit, limits [admission.Levels]admission.Limit, tenant, queue string, class admission.Priority) []LevelLimit {
	for i, limit := range limits {
		if limit.Disabled {
			continue
		}
		scope := admission.ScopeAt(admission.Level(i), tenant, queue, class)
		path = append(path, LevelLimit{Scope: scope, Limit: LimitOf(limit)})
	}
	if others, kept := limits[admission.LevelGlobal].Others(); kept {
		path = AppendOthers(path, &limits[admission.LevelGlobal], LimitOf(others))
	}
	return path
}
