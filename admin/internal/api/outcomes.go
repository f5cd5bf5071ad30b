package api

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/lua"
)

// outcome is what a client says of the call that a job of its made of the downstream.
type outcome int

const (
	unsaid outcome = iota // nothing: the job was handed back or discarded, or failed for a reason of its own
	succeeded
	failed
)

// What the history of a job says, as at a worker.
const (
	probeFailed = "probe_failed"
	breakerOpen = "breaker_open"
)

// returnDelay is what a job waits that goes back without having run, as at a worker: never the same for two.
func returnDelay() time.Duration { return 200*time.Millisecond + rand.N(800*time.Millisecond) }

// call is a client's call of a job's downstream, as the fleet's breaker of that sees it. That of a job without one, nil,
// does nothing.
//
//	fleet's breaker   a job                              what is said of it
//	open              goes back                          nothing
//	half-open         is handed out if it is a probe,    is reported before it ends, under a name of its own: said
//	                  by its lease's period              again it counts once
//	closed            is handed out                      is reported once it has ended, which it does once
type call struct {
	store *lua.Store
	rules breaker.Config
	state lua.BreakerState // the zero state where there is none yet
	lease *lua.Lease
	// reporter is the session: a quorum takes it for a worker.
	reporter string
	outcome  outcome
	ran      time.Duration
}

// callOf returns the call of a job that a session holds.
func (a *API) callOf(ctx context.Context, s session, lease *lua.Lease, o outcome, ran time.Duration) (*call, error) {
	if lease.Job.Downstream == "" || o == unsaid {
		return nil, nil //nolint:nilnil // as it says
	}
	state, err := a.config.Store.Breaker(ctx, lease.Job.Downstream)
	if err != nil && !errors.Is(err, lua.ErrNoBreaker) {
		return nil, err
	}
	rules, ok := a.config.Breakers[lease.Job.Downstream]
	if !ok {
		rules = a.config.Breaker
	}
	return &call{a.config.Store, rules, state, lease, s.worker, o, ran}, nil
}

// probe reports whether the call was let through by a breaker that was half-open, or whose state has changed since.
func (c *call) probe() bool {
	return c != nil && c.lease.Period != 0 && (c.lease.Period != c.state.Period || c.state.State == breaker.HalfOpen)
}

// before reports a probe, and changes how its job ends: a probe's failure is the breaker's, never the job's (law L11).
func (c *call) before(ctx context.Context, f *lua.Finish) (more bool, err error) {
	if !c.probe() {
		return false, nil
	}
	word, more, err := c.report(ctx, c.reporter+"#"+c.lease.Token, 1, c.lease.Period)
	if err != nil || c.outcome != failed {
		return more, err
	}
	f.Outcome, f.Reason, f.Text = lua.Release, "", probeFailed
	f.Delay = max(f.Delay, returnDelay())
	if word.State == breaker.Open {
		f.Delay = max(f.Delay, word.For+returnDelay())
	}
	return more, nil
}

// after reports a call whose job has ended. What does not reach Redis is missing, and nothing else.
func (c *call) after(ctx context.Context) (more bool) {
	if c == nil || c.probe() || c.stale() {
		return false
	}
	_, more, err := c.report(ctx, c.reporter, 0, c.lease.Period)
	return err == nil && more
}

// stale reports whether the call began under an earlier state of the breaker.
func (c *call) stale() bool {
	ms, _, _ := strings.Cut(c.lease.Token, "-")
	began, err := strconv.ParseInt(ms, 10, 64)
	return err != nil || c.lease.Period == 0 && c.state.Cause != breaker.CauseNone && time.UnixMilli(began).Before(c.state.Since)
}

func (c *call) report(ctx context.Context, reporter string, number, period uint64) (lua.BreakerWord, bool, error) {
	config, err := c.rules.Complete()
	if err != nil {
		return lua.BreakerWord{}, false, err
	}
	counts := breaker.Counts{Successes: 1}
	if c.outcome == failed {
		counts = breaker.Counts{Failures: 1}
	}
	if c.ran >= config.SlowCallDuration {
		counts.Slow, counts.SlowEnds = 1, 1
	}
	words, more, err := c.store.ReportOutcomes(ctx, lua.Reporter{Name: reporter}, []lua.Outcomes{{
		Downstream: c.lease.Job.Downstream, Config: config,
		Report: breaker.Report{Sequence: number, Period: period, Counts: counts, Streak: counts.Failures},
	}})
	if err != nil {
		return lua.BreakerWord{}, false, err
	}
	return words[0], more, nil
}

// gates are the breakers of what a page of leases calls.
type gates map[string]lua.BreakerState

// gatesOf reads them.
func (a *API) gatesOf(ctx context.Context, leases []lua.Lease) (gates, error) {
	all := gates{}
	for i := range leases {
		downstream := leases[i].Job.Downstream
		if _, known := all[downstream]; known || downstream == "" {
			continue
		}
		state, err := a.config.Store.Breaker(ctx, downstream)
		if err != nil && !errors.Is(err, lua.ErrNoBreaker) {
			return nil, err
		}
		all[downstream] = state
	}
	return all, nil
}

// pass reports whether a job may be handed out (law L10): one of a downstream that is not well only as a probe.
func (g gates) pass(lease *lua.Lease) bool {
	state, known := g[lease.Job.Downstream]
	switch {
	case !known || state.State == breaker.Closed:
		return true
	case state.State == breaker.HalfOpen:
		return lease.Period == state.Period
	}
	return false
}
