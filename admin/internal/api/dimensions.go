package api

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/shown"
	"github.com/headgate/headgate/internal/tally"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// dimensions are the questions of dimensions beside those of a call, and what became of them.
type dimensions struct {
	// of says whose each is: the index of one of the call.
	of        []int
	questions []store.Question
	answers   []store.Answer
}

// besideOf returns the questions of dimensions by the policy as it was read last.
func (a *API) besideOf(ctx context.Context, asked []question) (beside dimensions, err error) {
	named := false
	for i := range asked {
		named = named || len(asked[i].Also) > 0
	}
	if !named {
		return beside, nil
	}
	err = a.limits.with(ctx, func(snapshot *policy.Compiled) error {
		beside, err = besideFor(snapshot, asked)
		return err
	})
	return beside, err
}

// besideFor returns the questions of dimensions by a policy, without answers.
func besideFor(snapshot *policy.Compiled, asked []question) (beside dimensions, err error) {
	for i := range asked {
		q := &asked[i]
		if len(q.Also) > policy.MaxAlso {
			return beside, &admission.FieldError{Field: "also", Value: strconv.Itoa(len(q.Also)) + " dimensions", Allowed: "up to " + strconv.Itoa(policy.MaxAlso)}
		}
		for _, name := range slices.Sorted(maps.Keys(q.Also)) {
			tenant, _, _, err := q.Scope.Parts()
			if err != nil {
				return beside, err
			}
			owner, key, err := snapshot.Dimension(name, q.Also[name], tenant)
			if err != nil {
				return beside, err
			}
			one := store.Question{Tenant: owner, Queue: key, Cost: max(q.Tokens, 1), Record: snapshot.RecordVersion(owner)}
			one.Limits, one.MaxKeys, _ = snapshot.DimensionLimits(owner, key)
			beside.of, beside.questions = append(beside.of, i), append(beside.questions, one)
		}
	}
	if n := len(asked) + len(beside.questions); n > store.MaxBatchJobs {
		return beside, &admission.FieldError{Field: "checks", Value: strconv.Itoa(n) + " with their dimensions", Allowed: "up to " + strconv.Itoa(store.MaxBatchJobs)}
	}
	return beside, nil
}

// alsoOfAll is the error of dimensions that are asked for by who is bound to a tenant.
func alsoOfAll(n int) error {
	return &admission.FieldError{Field: "also", Value: strconv.Itoa(n) + " dimensions", Allowed: "none for a credential of one tenant: they are common to all"}
}

// checkAll asks the store for the questions of a call and those of dimensions. Where these are in several partitions nothing but a peek can ask for them
// without a limiter, which undoes what one of them refuses.
func (a *API) checkAll(ctx context.Context, version int64, peek bool, questions []store.Question, beside *dimensions) (granted bool, answers []store.Answer, err error) {
	own := len(questions)
	if len(beside.questions) == 0 || len(a.config.Store.Partitions()) == 1 {
		granted, answers, err = a.config.Store.Check(ctx, version, peek, append(questions[:own:own], beside.questions...))
		if err != nil {
			return false, nil, err
		}
		beside.answers = answers[own:]
		return granted, answers[:own], nil
	}
	if !peek {
		return false, nil, &admission.FieldError{Field: "also", Value: strconv.Itoa(len(beside.questions)) + " dimensions", Allowed: "none without serve.limiter: the deployment has several partitions"}
	}
	if granted, answers, err = a.config.Store.Check(ctx, version, true, questions); err != nil {
		return false, nil, err
	}
	for i := range beside.questions {
		ok, one, err := a.config.Store.Check(ctx, version, true, beside.questions[i:i+1])
		if err != nil {
			return false, nil, err
		}
		granted, beside.answers = granted && ok, append(beside.answers, one...)
	}
	return granted, answers, nil
}

// show adds the buckets of dimensions to the answers that they belong to, which they may refuse.
func (d *dimensions) show(made *decision) {
	for i := range d.questions {
		q, answer, view := &d.questions[i], &d.answers[i], &made.view.Answers[d.of[i]]
		level := admission.LevelQueue
		if answer.Shared {
			level = admission.LevelTenant
		}
		if limit := &q.Limits[level]; !limit.Disabled && limit.Tokens != 0 {
			left := shown.Tokens(answer.Left[level])
			view.Buckets = append(view.Buckets, bucketView{
				Scope: admission.ScopeAt(level, q.Tenant, q.Queue, ""), TokensLeft: left, Burst: limit.Burst, TokensPerSecond: limit.Rate(),
				FullInMs: shown.Millis(limit.UntilFull(left, time.Now())), window: limit.Window,
			})
		}
		v := &answer.Verdict
		if v.Decision == admission.Admitted {
			continue
		}
		made.wait = max(made.wait, v.RetryAfter)
		if wait := shown.Millis(v.RetryAfter); view.Allowed || view.WaitMs != nil && *view.WaitMs < wait {
			view.Allowed, view.Reason, view.RefusedBy, view.WaitMs = false, v.Reason, v.Scope, nil
			if v.RetryAfter > 0 {
				view.WaitMs = &wait
			}
		}
	}
}

// note counts what was asked of dimensions, where the policy has limits told of that are nearly used.
func (d *dimensions) note(made *decision, add func(tally.Path, tally.Sum)) {
	if len(d.answers) < len(d.questions) || made.peek || made.policy.WarnAt() == 0 {
		return
	}
	for i := range d.questions {
		q, one := &d.questions[i], tally.Sum{Refused: 1, Tokens: d.questions[i].Cost}
		if made.view.Allowed {
			one.Allowed, one.Refused = 1, 0
		}
		at := tally.Path{Tenant: q.Tenant, Queue: q.Queue}
		if d.answers[i].Shared {
			at.Queue = ""
		}
		add(at, one)
	}
}

// tell tells of a refusal by a dimension, where nothing else has refused, if one of its reason is due.
func (d *dimensions) tell(a *API, made *decision) {
	for i := range d.answers {
		v := &d.answers[i].Verdict
		if v.Decision == admission.Admitted {
			continue
		}
		if count, due := a.refusals.Count(v.Reason, time.Now()); due {
			answer := &made.view.Answers[d.of[i]]
			a.config.Refused(Refusal{answer.Scope, v.Scope, v.Reason, answer.Tokens, v.RetryAfter, count})
		}
		return
	}
}
