package producer_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
)

// ofTypes is a policy of which jobs of types have limits in mail, and nothing else has.
func ofTypes(limits map[string]admission.Limit) policy.Policy {
	p := policy.Unlimited()
	p.Version = 1
	p.Queues = map[string]policy.Queue{"mail": {Classes: admission.DefaultClasses(), EachTenant: policy.EachTenant{TypeLimits: limits}}}
	return p
}

func typedJob(tenant, jobType string) admission.Job {
	j := job(tenant)
	j.Type = jobType
	return j
}

// daily is a limit of which nothing to speak of comes in.
func daily(burst admission.Tokens) admission.Limit {
	return admission.Limit{Tokens: 1, Per: 24 * time.Hour, Burst: burst}
}

// TestJobsAreLimitedByTheirType: each tenant's by itself, in the queues that say so, now and later, and each type by itself that "*" stands for.
func TestJobsAreLimitedByTheirType(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	put(t, s, ofTypes(map[string]admission.Limit{"report": daily(2), "free": {Disabled: true}, policy.Every: daily(1)}))
	p := newProducer(t, s, producer.Config{})
	later := typedJob("acme", "report")
	later.Delay = time.Hour
	elsewhere := typedJob("acme", "report")
	elsewhere.Queue = "hook"
	for i, row := range []struct {
		job     admission.Job
		refused admission.Scope
	}{
		{typedJob("acme", "report"), ""},
		{later, ""},
		{typedJob("acme", "report"), "acme:mail:type=report"},
		{later, "acme:mail:type=report"},
		{typedJob("bolt", "report"), ""},
		{elsewhere, ""},
		{typedJob("acme", "free"), ""},
		{typedJob("acme", "free"), ""},
		{typedJob("acme", "a"), ""},
		{typedJob("acme", "a"), "acme:mail:type=a"},
		{typedJob("acme", "b:c"), ""},
		{typedJob("acme", "b:c"), "acme:mail:type=b:c"},
	} {
		verdict, err := p.Enqueue(t.Context(), row.job)
		no, _ := errors.AsType[*admission.RefusedError](err)
		switch {
		case row.refused == "" && err != nil:
			t.Errorf("job %d: %v", i, err)
		case row.refused != "" && (no == nil || no.Verdict.Reason != admission.ReasonLimited || no.Verdict.Scope != row.refused || no.Verdict.RetryAfter < time.Hour):
			t.Errorf("job %d: %+v, %v; want it refused by %s", i, verdict, err, row.refused)
		}
	}
}

// TestALetterPaysAtItsTypeToo: what is redriven, but for what is to run without limits.
func TestALetterPaysAtItsTypeToo(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	put(t, s, ofTypes(map[string]admission.Limit{"report": daily(3)}))
	p := newProducer(t, s, producer.Config{})
	keys := letters(t, s, p, typedJob("acme", "report"), typedJob("acme", "report"))
	results, err := p.Redrive(t.Context(), keys...)
	if !errors.Is(err, admission.ErrLimited) || results[0].Err != nil || results[1].Verdict.Scope != "acme:mail:type=report" {
		t.Fatalf("%+v, %v", results, err)
	}
	if _, err := p.RedriveWith(t.Context(), producer.RedriveOptions{WithoutLimits: true}, keys[1]); err != nil {
		t.Errorf("without limits: %v", err)
	}
}

// TestAGuessIsNoMoreThanTheTypesBurst: else the first job of a type whose cost is to be learned would never pass.
func TestAGuessIsNoMoreThanTheTypesBurst(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	put(t, s, ofTypes(map[string]admission.Limit{"report": daily(3)}))
	p := newProducer(t, s, producer.Config{})
	p.Learn("acme", "mail", "report", 500)
	j := typedJob("acme", "report")
	j.Cost = admission.LearnedCost
	if verdict, err := p.Enqueue(t.Context(), j); err != nil || verdict.TokensLeft != 0 || verdict.Burst != 3 {
		t.Errorf("%+v, %v", verdict, err)
	}
}

// TestACandidateInShadowIsAskedOfTypes: it refuses what a type refuses, by its own bucket.
func TestACandidateInShadowIsAskedOfTypes(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	own := ofTypes(nil)
	strict := own.Tiers[policy.StandardTier]
	strict.Queues = map[string]policy.TierQueue{"mail": {TypeLimits: map[string]admission.Limit{"report": daily(2)}}}
	own.Rollout = &policy.Rollout{ID: "strict", Percent: 100, Shadow: true, Rules: policy.Rules{Tiers: map[string]policy.Tier{policy.StandardTier: strict}}}
	put(t, s, own)
	p := newProducer(t, s, producer.Config{})
	for range 3 {
		_, err := p.Enqueue(t.Context(), typedJob("acme", "report"))
		must(t, err)
		_, err = p.Enqueue(t.Context(), typedJob("acme", "send"))
		must(t, err)
	}
	counts, err := s.ShadowCounts(t.Context())
	if err != nil || counts.Allowed != 5 || counts.Refused != [admission.Levels]int64{admission.LevelPriority: 1} {
		t.Errorf("counted %+v, %v", counts, err)
	}
}

// TestAJobHasNoTypeForItsClass: what stands in scopes for jobs of a type is no class.
func TestAJobHasNoTypeForItsClass(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	put(t, s, ofTypes(map[string]admission.Limit{"report": daily(3)}))
	p := newProducer(t, s, producer.Config{})
	j := typedJob("acme", "report")
	j.Priority = admission.OfType("report")
	if _, err := p.Enqueue(t.Context(), j); !errors.Is(err, admission.ErrInvalid) {
		t.Errorf("a job of class %s: %v", j.Priority, err)
	}
}

// TestTypesThatHaveALimitAreCounted beside their classes, for a dry run to go by: also those of a record, of a candidate in shadow and of a scope that is observed;
// others are not.
func TestTypesThatHaveALimitAreCounted(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Shared(t).Client(t))
	own := ofTypes(map[string]admission.Limit{"report": daily(2), "free": {Disabled: true}})
	own.TenantRecords, own.Observe = true, []admission.Scope{"acme:mail:type=watched"}
	strict := own.Tiers[policy.StandardTier]
	strict.Queues = map[string]policy.TierQueue{"mail": {TypeLimits: map[string]admission.Limit{"tried": daily(2)}}}
	own.Rollout = &policy.Rollout{ID: "strict", Percent: 100, Shadow: true, Rules: policy.Rules{Tiers: map[string]policy.Tier{policy.StandardTier: strict}}}
	put(t, s, own)
	read := func(ctx context.Context) (rollout.Rules, error) { return rollout.ReadRules(ctx, s) }
	_, err := rollout.EditRecord(t.Context(), s, read, "acme", rollout.Edit{Expected: rollout.AnyVersion}, func(policy.OwnLimits) (policy.OwnLimits, error) {
		return policy.OwnLimits{Queues: map[string]policy.EachTenant{"mail": {TypeLimits: map[string]admission.Limit{"recorded": daily(3)}}}}, nil
	})
	must(t, err)
	p := newProducer(t, s, producer.Config{})
	for _, jobType := range []string{"report", "recorded", "tried", "watched", "free", "other"} {
		for range 4 {
			if _, err := p.Enqueue(t.Context(), typedJob("acme", jobType)); err != nil && !errors.Is(err, admission.ErrLimited) {
				t.Fatal(err)
			}
		}
	}
	must(t, p.Flush(t.Context()))
	for jobType, want := range map[string][2]int64{"report": {2, 2}, "recorded": {3, 1}, "tried": {4, 0}, "watched": {4, 0}, "free": {}, "other": {}} {
		minutes, err := s.Minutes(t.Context(), admission.Scope("acme:mail:type="+jobType))
		must(t, err)
		var got [2]int64
		for _, m := range minutes {
			got[0], got[1] = got[0]+m.Allowed, got[1]+m.Refused
		}
		if got != want {
			t.Errorf("of type %s %d were allowed and %d refused, want %v", jobType, got[0], got[1], want)
		}
	}
}
