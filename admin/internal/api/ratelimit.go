package api

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// mostBuckets is how many buckets the headers tell of: servers and proxies refuse answers with more than some hundred lines or 8 KiB
// of them. The body has them all.
const mostBuckets = 4

// setRateLimit says of the emptiest buckets on the way what they take and what they hold, each field as one list, as
// draft-ietf-httpapi-ratelimit-headers has them. A token bucket is told by its rate, q tokens in w seconds; burst is what it can hold, and
// t the time until it is full.
func setRateLimit(header http.Header, answers []answerView) {
	var policies, levels []string
	for _, b := range emptiest(answers, mostBuckets) {
		name := `"` + string(b.Scope) + `"` // A scope has no byte that a string of structured fields escapes.
		policies = append(policies, policyOf(name, b.TokensPerSecond, b.Burst))
		levels = append(levels, name+";r="+whole(b.TokensLeft)+";t="+seconds(time.Duration(b.FullInMs*float64(time.Millisecond))))
	}
	if len(policies) > 0 {
		header.Set("RateLimit-Policy", strings.Join(policies, ", "))
		header.Set("RateLimit", strings.Join(levels, ", "))
	}
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

func policyOf(name string, rate admission.TokensPerSecond, burst admission.Tokens) string {
	quota, window := rateOf(rate)
	return fmt.Sprintf("%s;q=%d;w=%d;burst=%d", name, quota, window, burst)
}

// rateOf writes a rate as whole tokens in the least of some windows, in seconds; one that is whole in none loses a fraction of a token a
// day.
func rateOf(rate admission.TokensPerSecond) (quota, window int64) {
	for _, window := range []int64{1, 60, 3600, 86400} {
		quota := float64(rate) * float64(window)
		if whole := math.Round(quota); whole >= 1 && math.Abs(quota-whole) < 1e-6*whole {
			return int64(whole), window
		}
	}
	const most = 31 * 86400 // The slowest rate is a token in it.
	for window := int64(86400); ; window = most {
		if quota := int64(float64(rate) * float64(window)); quota >= 1 || window == most {
			return max(quota, 1), window
		}
	}
}

// limitJob says of each bucket on a job's way what it can hold, and of the one that refused what it holds. What the others hold after a
// job was admitted nobody has read: that would be a call of Redis more for each job. Without a policy at hand nothing is said.
func (a *API) limitJob(r *route.Request, header http.Header, job *admission.Job, verdict *admission.Verdict) {
	outermost := admission.LevelGlobal
	if r.Who.Tenant != "" { // As in decide.
		outermost = admission.LevelTenant
	}
	var policies []string
	_ = a.limits.with(r.Context(), func(snapshot *policy.Compiled) error {
		policies = nil
		class, known := snapshot.ClassNamed(job.Queue, job.Priority)
		if !known {
			return nil
		}
		for at, limit := range snapshot.LimitsFor(job.Tenant, job.Queue, class) {
			level := admission.Level(at)
			if limit.Disabled || level < outermost {
				continue
			}
			scope := admission.ScopeAt(level, job.Tenant, job.Queue, class)
			name := `"` + string(scope) + `"`
			policies = append(policies, policyOf(name, limit.Rate(), limit.Burst))
			if verdict.Reason == admission.ReasonLimited && verdict.Scope == scope {
				left := float64(verdict.TokensLeft)
				header.Set("RateLimit", name+";r="+whole(left)+";t="+seconds(span(float64(limit.Burst)-left, limit.Rate())))
			}
		}
		return nil
	})
	if len(policies) > 0 {
		header.Set("RateLimit-Policy", strings.Join(policies, ", "))
	}
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
