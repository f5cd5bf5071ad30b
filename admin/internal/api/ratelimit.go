package api

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/policy"
)

// mostBuckets is how many buckets the headers tell of: servers and proxies refuse answers with more than some hundred lines or 8 KiB
// of them. The body has them all.
const mostBuckets = 4

// setRateLimit says of the emptiest buckets on the way what they take and what they hold. wait is that of a refusal.
func setRateLimit(header http.Header, answers []answerView, wait time.Duration) {
	var told []shown.Bucket
	for _, b := range emptiest(answers, mostBuckets) {
		told = append(told, b.told())
	}
	shown.SetRateLimit(header, told, wait)
}

// told is the bucket as headers tell it.
func (b *bucketView) told() shown.Bucket {
	return shown.Bucket{Name: string(b.Scope), Rate: b.TokensPerSecond, Burst: b.Burst, Left: b.TokensLeft, Window: b.window}
}

// emptiest returns the buckets with the least of their burst left, each once and in the order of the answers.
func emptiest(answers []answerView, most int) []bucketView {
	var all []bucketView
	seen := map[admission.Scope]bool{}
	for _, answer := range answers {
		for _, b := range answer.Buckets {
			if !seen[b.Scope] {
				seen[b.Scope] = true
				all = append(all, b)
			}
		}
	}
	if len(all) <= most {
		return all
	}
	left := func(b bucketView) float64 { return b.TokensLeft / float64(b.Burst) }
	slices.SortStableFunc(all, func(a, b bucketView) int { return cmp.Compare(left(a), left(b)) })
	return all[:most]
}

// limitJob says of each bucket on a job's way what it can hold, and of the one that refused what it holds. What the others hold after a
// job was admitted nobody has read: that would be a call of Redis more for each job. Without a policy at hand nothing is said.
func (a *API) limitJob(r *route.Request, header http.Header, job *admission.Job, verdict *admission.Verdict) {
	outermost := admission.LevelGlobal
	if r.Who.Tenant != "" { // As in decide.
		outermost = admission.LevelTenant
	}
	var told []shown.Bucket
	_ = a.withPolicyOfJobs(r.Context(), func(snapshot *policy.Compiled) error {
		told = nil
		class, known := snapshot.ClassNamed(job.Queue, job.Priority)
		if !known {
			return nil
		}
		tell := func(level admission.Level, class admission.Priority, limit admission.Limit) {
			if limit.Disabled || level < outermost {
				return
			}
			scope := admission.ScopeAt(level, job.Tenant, job.Queue, class)
			bucket := shown.Bucket{Name: string(scope), Rate: limit.Rate(), Burst: limit.Burst, Left: float64(verdict.TokensLeft), Window: limit.Window}
			told = append(told, bucket)
			if verdict.Reason == admission.ReasonLimited && verdict.Scope == scope {
				shown.SetRateLimit(header, []shown.Bucket{bucket}, verdict.RetryAfter)
			}
		}
		limits, ofType, _ := snapshot.WayOfType(job.Tenant, job.Queue, class, job.Type)
		for level, limit := range limits {
			tell(admission.Level(level), class, limit)
		}
		if ofType != nil {
			tell(admission.LevelPriority, admission.OfType(job.Type), *ofType)
		}
		return nil
	})
	shown.SetRateLimitPolicy(header, told)
}

// withPolicyOfJobs calls do with the policy by which a job was sent just now, where the enqueuer has it.
func (a *API) withPolicyOfJobs(ctx context.Context, do func(*policy.Compiled) error) error {
	if enqueuer, is := a.config.Enqueuer.(policied); is {
		if snapshot := enqueuer.Policy(); snapshot != nil {
			return do(snapshot)
		}
	}
	return a.limits.with(ctx, do)
}

// signal says how much a queue is pressed, and from HIGH on when to come back, where the policy has that measured.
func (a *API) signal(header http.Header, queue string, p admission.Pressure) {
	if p.Level == 0 {
		return
	}
	header.Set("X-Backpressure-Level", p.Level.String())
	if p.Level >= admission.PressureHigh {
		header.Set("Retry-After", problem.Seconds(p.RetryAfter))
	}
	a.config.Signalled(queue, p.Level)
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
	shown.SetOldRateLimit(header, least.told())
}
