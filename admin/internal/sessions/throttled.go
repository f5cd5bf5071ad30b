package sessions

import (
	"context"
	"time"

	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// tooMany is a failure that is none: the downstream refused the call as one too many.
const tooMany failure = "throttled"

// snoozed is what the history of a job says that comes back because its downstream said when, as at a worker.
const snoozed = "snoozed"

// failThrottled ends a job whose call was refused as one too many: where the downstream has said after how long to come again it comes back
// then, and no attempt is burnt.
func (a *Sessions) failThrottled(ask *Ending, f store.Finish) (store.Finish, outcome, error) {
	if ask.RetryAfter == "" {
		return f, unsaid, nil
	}
	var err error
	if ask.retryAfter, err = route.Duration("/retry_after", ask.RetryAfter, time.Second, admission.MaxDelay); err != nil {
		return f, unsaid, err
	}
	return store.Finish{Outcome: store.Release, Text: snoozed, Delay: ask.retryAfter}, unsaid, nil
}

// notThrottled refuses a retry_after of another end.
func notThrottled(ask *Ending) error {
	if ask.RetryAfter != "" && ask.Kind != tooMany {
		return problem.Invalid(problem.At("/retry_after", `is there without "kind": "throttled"`))
	}
	return nil
}

// throttled tells that a downstream has refused a call as one too many, to what its dispatch moves by, and has its jobs held back for as long
// as it said. What does not reach Redis is missing, and nothing else.
func (a *Sessions) throttled(ctx context.Context, s session, held *leased, said time.Duration) {
	downstream, now := held.Job.Downstream, a.config.Policy()
	if downstream == "" || now == nil {
		return
	}
	if now.DispatchMoves(downstream) { // Those of an account do not: it is its own quota that is used up.
		if err := a.tellRefused(ctx, s, downstream, now); err != nil {
			a.config.Missed("a call over HTTP that its downstream refused is not counted everywhere", err)
		}
	}
	if length := min(said, now.MaxRetryAfter(downstream)); length >= store.MinRetryAfter {
		if _, err := a.config.Store.PauseAtLeast(ctx, store.DownstreamGate(downstream), length, store.RetryAfterBy(said)); err != nil {
			a.config.Missed("a downstream that said after how long to come again is not held back everywhere", err)
		}
	}
}

// tellRefused counts a refused call in all partitions.
func (a *Sessions) tellRefused(ctx context.Context, s session, downstream string, now *policy.Compiled) error {
	rules, origin, _ := a.breakerRules(downstream)
	config, err := rules.Complete()
	if err != nil {
		return err
	}
	refused := store.Outcomes{Downstream: downstream, Config: config, Report: breaker.Report{Origin: origin, Version: now.Version()}, Refused: 1}
	return a.config.Store.Each(func(_ int, part store.Partition) error {
		_, more, err := part.ReportOutcomes(ctx, store.Reporter{Name: s.worker}, []store.Outcomes{refused})
		a.promote(ctx, part, s.worker, err == nil && more)
		return err
	})
}
