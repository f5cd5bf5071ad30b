package redisstore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// typed are jobs of acme in mail, of which those of type report have a limit.
type typed struct {
	tb       testing.TB
	store    store.Partition
	limits   [admission.Levels]admission.Limit
	ofReport admission.Limit
	sent     int
}

// eachStore runs a test in Redis and in memory.
func eachStore(t *testing.T, ofReport admission.Limit, test func(y *typed)) {
	t.Helper()
	day := func(burst admission.Tokens) admission.Limit {
		return admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: burst}
	}
	limits := [admission.Levels]admission.Limit{day(100), day(90), day(80), day(70)}
	for name, open := range map[string]func(testing.TB) store.Partition{
		"redis":  func(tb testing.TB) store.Partition { return openTyped(tb, redisstore.Config{}) }, //nolint:thelper // It is one line.
		"memory": func(testing.TB) store.Partition { return memory.New(memory.Config{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(&typed{tb: t, store: open(t), limits: limits, ofReport: ofReport})
		})
	}
}

func openTyped(tb testing.TB, config redisstore.Config) store.Partition {
	tb.Helper()
	config.Prefix = redistest.Prefix(tb)
	s, err := redisstore.Open(tb.Context(), redistest.Shared(tb).Client(tb), config)
	check(tb, err)
	return s.Partitions()[0]
}

// admit sends jobs of types in one call, each of a cost.
func (y *typed) admit(cost admission.Tokens, types ...string) []admission.Verdict {
	y.tb.Helper()
	jobs := make([]store.Candidate, len(types))
	for i, jobType := range types {
		y.sent++
		j := admission.NewJob("acme", "mail", jobType, nil)
		j.ID, j.Cost = fmt.Sprint("j", y.sent), cost
		jobs[i] = store.Candidate{Job: &j, Class: 1, Limits: &y.limits}
		if jobType == "report" {
			jobs[i].TypeLimit = &y.ofReport
		}
	}
	verdicts, err := y.store.Admit(y.tb.Context(), 0, jobs)
	check(y.tb, err)
	return verdicts
}

// left is what the buckets hold in whole tokens: of all, of the tenant, the queue and the class, and that of the type.
func (y *typed) left() (all [5]admission.Tokens) {
	y.tb.Helper()
	ask := func(class admission.Priority, limit admission.Limit) store.Question {
		q := store.Question{Tenant: "acme", Queue: "mail", Class: class, Cost: 1, Limits: y.limits}
		q.Limits[admission.LevelPriority] = limit
		return q
	}
	_, answers, err := y.store.Check(y.tb.Context(), 0, true, []store.Question{
		ask(admission.Medium, y.limits[admission.LevelPriority]), ask(admission.OfType("report"), y.ofReport),
	})
	check(y.tb, err)
	for level, left := range answers[0].Left {
		all[level] = left.Tokens()
	}
	all[admission.Levels] = answers[1].Left[admission.LevelPriority].Tokens()
	return all
}

// TestATypeHasABucketBesideItsClass: jobs of one call that differ in their type alone pay at the buckets of their own types, and one that its type refuses
// is charged nowhere. It is told whose limit it was, what that has left, and when to come back.
func TestATypeHasABucketBesideItsClass(t *testing.T) {
	t.Parallel()
	eachStore(t, admission.Limit{Tokens: 6, Per: time.Hour, Burst: 5}, func(y *typed) {
		verdicts := y.admit(2, "report", "welcome", "report", "report", "welcome")
		for i, v := range verdicts {
			if want := i != 3; (v.Decision == admission.Admitted) != want {
				y.tb.Errorf("job %d is %+v, admitted should be %t", i, v, want)
			}
		}
		if v := verdicts[0]; v.TokensLeft != 3 || v.Burst != 5 {
			y.tb.Errorf("of the buckets on the way that holds least which holds %d of %d, want 3 of 5 of the type", v.TokensLeft, v.Burst)
		}
		v := verdicts[3]
		if v.Reason != admission.ReasonLimited || v.Scope != "acme:mail:type=report" || v.Scope.Kind() != "type" || v.TokensLeft != 1 || v.Burst != 5 {
			y.tb.Errorf("the refusal is %+v", v)
		}
		if v.RetryAfter < 9*time.Minute || v.RetryAfter > 10*time.Minute+time.Second { // One token of six an hour.
			y.tb.Errorf("it tells to wait %s, want 10m", v.RetryAfter)
		}
		if got, want := y.left(), ([5]admission.Tokens{92, 82, 72, 62, 1}); got != want {
			y.tb.Errorf("the buckets hold %v, want %v", got, want)
		}
		if v := y.admit(6, "report")[0]; v.Reason != admission.ReasonTooCostly || v.Scope != "acme:mail:type=report" || v.Burst != 5 {
			y.tb.Errorf("a job above its type's burst is %+v", v)
		}
	})
}

// TestAnotherLevelsRefusalTakesNothingOfTheType: as little as its own takes of them.
func TestAnotherLevelsRefusalTakesNothingOfTheType(t *testing.T) {
	t.Parallel()
	eachStore(t, admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 50}, func(y *typed) {
		y.limits[admission.LevelTenant].Burst = 3
		if v := y.admit(2, "report", "report"); v[0].Decision != admission.Admitted || v[1].Scope != "acme" {
			y.tb.Errorf("a tenant of three tokens has %+v", v)
		}
		if got, want := y.left(), ([5]admission.Tokens{98, 1, 78, 68, 48}); got != want {
			y.tb.Errorf("the buckets hold %v, want %v", got, want)
		}
	})
}

// TestWhatAJobHasCostIsTruedUpAtItsTypeToo: what it did not need goes back into the bucket of its type, and what it lacked is taken out of it.
func TestWhatAJobHasCostIsTruedUpAtItsTypeToo(t *testing.T) {
	t.Parallel()
	eachStore(t, admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 50}, func(y *typed) {
		ctx := y.tb.Context()
		_, err := y.store.Register(ctx, "w1", walkPools[2], 2, time.Minute)
		check(y.tb, err)
		y.admit(10, "report", "report")
		leases, err := y.store.Read(ctx, "w1", walkPools[2].ID(), 2, -1, false)
		check(y.tb, err)
		finishes := make([]store.Finish, len(leases))
		for i, cost := range []admission.Tokens{4, 13} {
			finishes[i] = leases[i].Finish(store.Complete)
			finishes[i].Queue = "mail"
			finishes[i].Spent = &store.Spent{Cost: cost, Class: admission.Medium, Limits: &y.limits, TypeLimit: &store.TypeLimit{Type: "report", Limit: &y.ofReport}}
		}
		_, _, err = y.store.Finish(ctx, walkPools[2].ID(), "w1", finishes)
		check(y.tb, err)
		if got, want := y.left(), ([5]admission.Tokens{83, 73, 63, 53, 33}); got != want {
			y.tb.Errorf("the buckets hold %v, want %v", got, want)
		}
	})
}

// TestATypesLimitMayBeOfAnyAlgorithm: of windows, fixed and sliding, in the place of a token bucket.
func TestATypesLimitMayBeOfAnyAlgorithm(t *testing.T) {
	t.Parallel()
	for name, drawn := range map[string]func() (admission.Limit, error){
		"fixed_window":   func() (admission.Limit, error) { return admission.FixedWindow(3, "744h", "", "") },
		"sliding_window": func() (admission.Limit, error) { return admission.SlidingWindow(3, "1h") },
		"sliding_log":    func() (admission.Limit, error) { return admission.SlidingLog(3, "1h") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			limit, err := drawn()
			check(t, err)
			eachStore(t, limit, func(y *typed) {
				for i, v := range y.admit(1, "report", "welcome", "report", "report", "report", "welcome") {
					if want := i != 4; (v.Decision == admission.Admitted) != want {
						y.tb.Errorf("job %d is %+v, admitted should be %t", i, v, want)
					}
				}
				if got, want := y.left(), ([5]admission.Tokens{95, 85, 75, 65, 0}); got != want {
					y.tb.Errorf("the buckets hold %v, want %v", got, want)
				}
			})
		})
	}
}

// TestTheBucketOfATypeIsReset: by its scope, and no other with it.
func TestTheBucketOfATypeIsReset(t *testing.T) {
	t.Parallel()
	eachStore(t, admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 5}, func(y *typed) {
		y.admit(4, "report")
		was, err := y.store.ResetBucket(y.tb.Context(), "acme", "mail", admission.OfType("report"), store.Intervention{Author: "ada"})
		check(y.tb, err)
		if got, want := y.left(), ([5]admission.Tokens{96, 86, 76, 66, 5}); got != want || !was {
			y.tb.Errorf("the buckets hold %v, want %v; there was one: %t", got, want, was)
		}
	})
}

// TestAQuestionOfATypeIsTakenAndRefunded: as a client of asynq does that has no job in Headgate.
func TestAQuestionOfATypeIsTakenAndRefunded(t *testing.T) {
	t.Parallel()
	eachStore(t, admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 5}, func(y *typed) {
		ctx := y.tb.Context()
		q := store.Question{Tenant: "acme", Queue: "mail", Class: admission.Medium, Cost: 4, Limits: y.limits, TypeLimit: &store.TypeLimit{Type: "report", Limit: &y.ofReport}}
		_, receipt, err := y.store.Take(ctx, 0, q)
		check(y.tb, err)
		no, _, err := y.store.Take(ctx, 0, q)
		check(y.tb, err)
		if no.Reason != admission.ReasonLimited || no.Scope != "acme:mail:type=report" || no.TokensLeft != 1 {
			y.tb.Errorf("another is %+v", no)
		}
		if got, want := y.left(), ([5]admission.Tokens{96, 86, 76, 66, 1}); got != want {
			y.tb.Errorf("the buckets hold %v, want %v", got, want)
		}
		done, err := y.store.Refund(ctx, "a", receipt)
		check(y.tb, err)
		if got, want := y.left(), ([5]admission.Tokens{99, 89, 79, 69, 4}); got != want || done != store.Refunded { // All but the little that may have come in meanwhile.
			y.tb.Errorf("the refund is %s, and the buckets hold %v, want %v", done, got, want)
		}
	})
}

// TestAShadowAsksTheTypeToo: a candidate's limit of a type, from a bucket of its own.
func TestAShadowAsksTheTypeToo(t *testing.T) {
	t.Parallel()
	eachStore(t, admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 2}, func(y *typed) {
		q := store.Question{Tenant: "acme", Queue: "mail", Class: admission.Medium, Cost: 1, Limits: y.limits, TypeLimit: &store.TypeLimit{Type: "report", Limit: &y.ofReport}}
		check(y.tb, y.store.Shadow(y.tb.Context(), 0, "a", []store.Question{q, q, q}))
		counts, err := y.store.ShadowCounts(y.tb.Context())
		check(y.tb, err)
		if want := ([admission.Levels]int64{admission.LevelPriority: 1}); counts.Allowed != 2 || counts.Refused != want {
			y.tb.Errorf("counted %+v, want 2 allowed and one refused as deep as a class", counts)
		}
		if got := y.left()[admission.Levels]; got != 2 {
			y.tb.Errorf("the bucket in force holds %d, want 2", got)
		}
	})
}

// TestFullBucketsOfTypesAreCounted: a tenant has no more buckets than it may, whatever types it thinks of.
func TestFullBucketsOfTypesAreCounted(t *testing.T) {
	t.Parallel()
	s := openTyped(t, redisstore.Config{BucketCap: 8})
	limit := admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: 2}
	none := &[admission.Levels]admission.Limit{{Disabled: true}, {Disabled: true}, {Disabled: true}, {Disabled: true}}
	var last admission.Verdict
	for i := range 8 { // One field more says when they are full.
		j := admission.NewJob("acme", "mail", fmt.Sprint("t", i), nil)
		j.ID = fmt.Sprint("j", i)
		if last.Reason != admission.ReasonNone {
			t.Errorf("job %d is refused: %+v", i-1, last)
		}
		verdicts, err := s.Admit(t.Context(), 0, []store.Candidate{{Job: &j, Class: 1, Limits: none, TypeLimit: &limit}})
		check(t, err)
		last = verdicts[0]
	}
	if last.Reason != admission.ReasonBuckets || last.Scope.Kind() != "type" {
		t.Errorf("the last job is %+v", last)
	}
}
