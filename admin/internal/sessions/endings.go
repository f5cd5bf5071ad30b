package sessions

import (
	"cmp"
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/headgate/headgate/admin/internal/problem"
	"github.com/headgate/headgate/admin/internal/route"
	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// Ending is what a client says of a job that it holds.
type Ending struct {
	route.KeyName

	Token   string  `json:"token"`
	Error   string  `json:"error"`
	Kind    failure `json:"kind"`
	Discard bool    `json:"discard"`
	Delay   string  `json:"delay"`
	Ran     string  `json:"ran"`
	Result  []byte  `json:"result_base64"`
	Keep    string  `json:"keep_result"`
	// Cost is what the job has cost in truth.
	Cost *admission.Tokens `json:"cost"`
	// RetryAfter is what a downstream that refused the call has said, retryAfter the same.
	RetryAfter string `json:"retry_after"`
	retryAfter time.Duration
}

// failure is what a job failed of, as its client says.
type failure string

// own is a failure that the downstream has no part in.
const own failure = "own"

type endedView struct {
	route.KeyName

	Outcome store.Ended `json:"outcome"`
}

// Bounds of a result: worker.SetResult's.
const (
	maxResult     = 64 << 10
	minKeepResult = time.Second
	maxKeepResult = 30 * 24 * time.Hour
	keepResult    = 24 * time.Hour
)

// end ends one job as finish says, which also says what became of the call of its downstream. A lease that is lost is a
// conflict, and nothing was changed.
func (a *Sessions) end(r *route.Request, finish func(*Ending, *leased) (store.Finish, outcome, error)) (*route.Answer, error) {
	var ask Ending
	if err := r.Decode(&ask); err != nil {
		return nil, err
	}
	s, err := a.sessionOf(r)
	if err != nil {
		return nil, err
	}
	held, err := a.heldBy(r.Context(), s, ask.Token, admission.Key(ask.KeyName))
	if err != nil {
		return nil, err
	}
	f, said, err := finish(&ask, held)
	if err != nil {
		return nil, err
	}
	if err := notThrottled(&ask); err != nil {
		return nil, err
	}
	f.Token, f.Key = held.Token, admission.Key(ask.KeyName)
	if ask.Ran != "" {
		if f.Ran, err = route.Duration("/ran", ask.Ran, 0, admission.MaxTimeout); err != nil {
			return nil, err
		}
	}
	if ask.Delay != "" {
		if f.Delay, err = route.Duration("/delay", ask.Delay, time.Millisecond, admission.MaxDelay); err != nil {
			return nil, err
		}
	}
	if ask.Cost != nil {
		if err := admission.ValidateActualCost(*ask.Cost); err != nil {
			return nil, problem.Invalid(problem.At("/cost", "is "+strconv.FormatInt(int64(*ask.Cost), 10)+"; allowed is 0 to 10000000"))
		}
		f.Spent = &store.Spent{Cost: *ask.Cost}
	}
	ended, err := a.finish(r, s, held, f, said)
	if err != nil {
		return nil, err
	}
	if ask.Kind == tooMany {
		a.throttled(r.Context(), s, held, ask.retryAfter)
	}
	return route.OK(endedView{ask.KeyName, ended}), nil
}

// finish ends a job, and tells the breaker of its downstream.
func (a *Sessions) finish(r *route.Request, s session, held *leased, f store.Finish, said outcome) (store.Ended, error) {
	c, err := a.callOf(r.Context(), s, held, said, &f)
	if err != nil {
		return "", err
	}
	moved, err := c.before(r.Context(), &f)
	if err != nil {
		return "", err
	}
	f.Delay = min(f.Delay, admission.MaxDelay)
	ends, more, err := a.tell(r.Context(), s, held, f)
	if err != nil {
		return "", err
	}
	a.returnProbe(r.Context(), s, held)
	a.cameBack(r.Context(), s, held, f.Ran, ends[0])
	if ends[0] != store.EndedLost && ends[0] != store.EndedCancelled {
		moved = c.after(r.Context()) || moved
	}
	a.promote(r.Context(), held.part, s.worker, more || moved)
	if ends[0] == store.EndedLost {
		return "", admission.ErrLeaseLost
	}
	if a.config.Learn != nil && f.Spent != nil && (ends[0] == store.EndedDone || ends[0] == store.EndedDead) {
		a.config.Learn(held.Job.Tenant, held.Job.Queue, held.Job.Type, f.Spent.Cost)
	}
	return ends[0], nil
}

// tell sends a job's end, and where its client has told what it has cost the limits in force that this goes by.
func (a *Sessions) tell(ctx context.Context, s session, held *leased, f store.Finish) (ends []store.Ended, more bool, err error) {
	if f.Spent == nil || held.Uncharged {
		f.Spent = nil
		return held.part.Finish(ctx, s.pool, s.worker, []store.Finish{f})
	}
	cost := f.Spent.Cost
	err = a.config.With(ctx, func(now *policy.Compiled) error {
		class, _ := now.ClassAt(held.Job.Queue, held.Class)
		way, ofType, record := now.WayOfType(held.Job.Tenant, held.Job.Queue, class, held.Job.Type)
		limits := [admission.Levels]admission.Limit(way)
		f.Queue, f.Spent = held.Job.Queue, &store.Spent{Cost: cost, Class: class, Limits: &limits, Version: now.Version(), Usage: now.UsageTenants(), Record: record}
		f.Spent.TypeLimit = store.TypeLimitOf(held.Job.Type, ofType)
		ends, more, err = held.part.Finish(ctx, s.pool, s.worker, []store.Finish{f})
		return err
	})
	return ends, more, err
}

func (a *Sessions) complete(r *route.Request) (*route.Answer, error) {
	return a.end(r, func(ask *Ending, _ *leased) (store.Finish, outcome, error) {
		f := store.Finish{Outcome: store.Complete, Result: ask.Result}
		switch {
		case ask.Result == nil && ask.Keep == "":
			return f, succeeded, nil
		case ask.Result == nil:
			return f, succeeded, problem.Invalid(problem.At("/keep_result", "is there without result_base64"))
		case len(ask.Result) > maxResult:
			return f, succeeded, problem.Invalid(problem.At("/result_base64", "is larger than 65536 bytes"))
		case ask.Keep == "":
			f.KeepResult = keepResult
			return f, succeeded, nil
		}
		var err error
		f.KeepResult, err = route.Duration("/keep_result", ask.Keep, minKeepResult, maxKeepResult)
		return f, succeeded, err
	})
}

func (a *Sessions) release(r *route.Request) (*route.Answer, error) {
	return a.end(r, func(*Ending, *leased) (store.Finish, outcome, error) {
		return store.Finish{Outcome: store.Release}, unsaid, nil
	})
}

// fail makes a dead letter of a job that is discarded. Another comes back after the delay that was asked for, or the
// worker's usual backoff for as many attempts.
func (a *Sessions) fail(r *route.Request) (*route.Answer, error) {
	return a.end(r, func(ask *Ending, held *leased) (store.Finish, outcome, error) {
		f := store.Finish{Outcome: store.Retry, Text: cmp.Or(ask.Error, string(ask.Kind)), Delay: backoff(held.Attempts + 1)}
		switch {
		case ask.Discard:
			f.Outcome, f.Reason, f.Delay = store.Kill, "discarded", 0
			return f, unsaid, nil
		case ask.Kind == tooMany:
			return a.failThrottled(ask, f)
		case ask.Kind == own:
			return f, unsaid, nil
		}
		return f, failed, nil
	})
}

// backoff is what a job waits after so many failed runs where its client does not say: 1 s, doubled with each up to about
// 10 minutes, with full jitter, which is a worker's default.
func backoff(failed int) time.Duration { return rand.N(time.Second << min(failed-1, 9)) }
