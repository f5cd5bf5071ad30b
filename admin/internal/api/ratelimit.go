package api

import (
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/policy"
)

// setRateLimit says of each bucket on the way, once, what it can hold and what it holds, in the fields of
// draft-ietf-httpapi-ratelimit-headers. A token bucket is told as a quota of its burst with the time in which it fills
// as window; t is the time until it is full.
func setRateLimit(header http.Header, answers []answerView) {
	seen := map[string]bool{}
	for _, answer := range answers {
		for _, b := range answer.Buckets {
			name := `"` + string(b.Scope) + `"` // A scope has no byte that a string of structured fields escapes.
			if seen[name] {
				continue
			}
			seen[name] = true
			header.Add("RateLimit-Policy", name+";q="+strconv.FormatInt(int64(b.Burst), 10)+";w="+seconds(b.fills()))
			header.Add("RateLimit", name+";r="+whole(b.TokensLeft)+";t="+seconds(time.Duration(b.FullInMs*float64(time.Millisecond))))
		}
	}
}

// limitJob says of each bucket on a job's way what it can hold, and of the one that refused what it holds. What the others hold after a
// job was admitted nobody has read: that would be a call of Redis more for each job. Without a policy at hand nothing is said.
func (a *API) limitJob(r *route.Request, header http.Header, job *headgate.Job, verdict *headgate.Verdict) {
	outermost := headgate.LevelGlobal
	if r.Who.Tenant != "" { // As in decide.
		outermost = headgate.LevelTenant
	}
	_ = a.limits.with(r.Context(), func(snapshot *policy.Compiled) error {
		class, known := snapshot.ClassNamed(job.Queue, job.Priority)
		if !known {
			return nil
		}
		for at, limit := range snapshot.LimitsFor(job.Tenant, job.Queue, class) {
			level := headgate.Level(at)
			if limit.Disabled || level < outermost {
				continue
			}
			scope := headgate.ScopeAt(level, job.Tenant, job.Queue, class)
			name := `"` + string(scope) + `"`
			header.Add("RateLimit-Policy", name+";q="+strconv.FormatInt(int64(limit.Burst), 10)+";w="+seconds(span(float64(limit.Burst), limit.Rate())))
			if verdict.Reason == headgate.ReasonLimited && verdict.Scope == scope {
				left := float64(verdict.TokensLeft)
				header.Set("RateLimit", name+";r="+whole(left)+";t="+seconds(span(float64(limit.Burst)-left, limit.Rate())))
			}
		}
		return nil
	})
}

// setOldRateLimit tells of the bucket with the least tokens in the fields that were usual before.
func setOldRateLimit(header http.Header, answers []answerView) {
	var least *bucketView
	for i := range answers {
		for j := range answers[i].Buckets {
			if b := &answers[i].Buckets[j]; least == nil || b.TokensLeft < least.TokensLeft {
				least = b
			}
		}
	}
	if least == nil {
		return
	}
	header.Set("X-RateLimit-Limit", strconv.FormatInt(int64(least.Burst), 10))
	header.Set("X-RateLimit-Remaining", whole(least.TokensLeft))
	header.Set("X-RateLimit-Reset", seconds(time.Duration(least.FullInMs*float64(time.Millisecond))))
}

func whole(tokens float64) string { return strconv.FormatInt(int64(math.Floor(tokens)), 10) }

// seconds rounds up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
