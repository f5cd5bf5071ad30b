package buckets

import (
	"math"

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
	// Floor is what a job has to leave in the bucket, zero for nothing: see AppendOthers.
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

// Named returns the scope under which others know a bucket.
func Named(scope admission.Scope) admission.Scope {
	if scope == Others {
		return admission.Global
	}
	return scope
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
