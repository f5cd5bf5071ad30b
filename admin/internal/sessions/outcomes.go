package sessions

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
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
	// suspectBeside is that of a job that may have killed a worker, and is not to run beside others that may.
	suspectBeside = "suspect"
)

// slowCall is what a call lasts that is slow, where nobody says otherwise: breaker.Config's default.
const slowCall = 5 * time.Second

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
//
// The breakers of other partitions are told in the same moment, each for the period in which the call began there.
type call struct {
	sessions *Sessions
	// rules are those by which the call is judged, origin says where they are from, version which policy was looked at.
	rules   breaker.Config
	origin  breaker.Origin
	version int64
	state   store.BreakerState // the zero state where there is none yet
	lease   *leased
	// reporter is the session: a quorum takes it for a worker.
	reporter string
	outcome  outcome
	ran      time.Duration
	// text is what the client said of a failure.
	text string
}

// callOf returns the call of a job that a session holds.
func (a *Sessions) callOf(ctx context.Context, s session, l *leased, o outcome, f *store.Finish) (*call, error) {
	if l.Job.Downstream == "" || o == unsaid {
		return nil, nil //nolint:nilnil // as it says
	}
	state, err := l.part.Breaker(ctx, l.Job.Service())
	if err != nil && !errors.Is(err, store.ErrNoBreaker) {
		return nil, err
	}
	c := &call{sessions: a, state: state, lease: l, reporter: s.worker, outcome: o, ran: f.Ran, text: f.Text}
	c.rules, c.origin, c.version = a.breakerRules(l.Job.Service())
	if c.cut() {
		return nil, nil //nolint:nilnil // as it says
	}
	return c, nil
}

// breakerRules returns by which rules this server judges calls of a downstream: the policy's, and else its configuration's.
func (a *Sessions) breakerRules(downstream string) (rules breaker.Config, origin breaker.Origin, version int64) {
	if now := a.config.Policy(); now != nil {
		version = now.Version()
		if own, ok := now.Breaker(downstream); ok {
			return own.Config, breaker.OriginPolicy, version
		}
	}
	if own, ok := a.config.Breakers[downstream]; ok {
		return own, breaker.OriginWorker, version
	}
	return a.config.Breaker, breaker.OriginDefault, version
}

// cut reports whether a time-out of the job's own ended the call, too soon to say anything about the downstream: it could not even
// become slow.
func (c *call) cut() bool {
	own := c.lease.Job.Timeout
	slow := cmp.Or(c.rules.SlowCallDuration, slowCall)
	return c.outcome == failed && own > 0 && own < slow && c.ran >= own
}

// probe reports whether the call was let through by a breaker that was half-open, or whose state has changed since.
func (c *call) probe() bool {
	return c != nil && c.lease.Period != 0 && (c.lease.Period != c.state.Period || c.state.State == breaker.HalfOpen)
}

// before reports a probe, and changes how its job ends: a probe's failure is the breaker's, never the job's (law L11).
func (c *call) before(ctx context.Context, f *store.Finish) (more bool, err error) {
	if !c.probe() {
		return false, nil
	}
	reporter := c.reporter + "#" + c.lease.name()
	word, more, err := c.report(ctx, c.lease.part, reporter, 1, c.lease.Period)
	if err == nil {
		c.tellOthers(ctx, reporter, 1)
	}
	if err != nil || c.outcome != failed {
		return more, err
	}
	f.Outcome, f.Reason, f.Text = store.Release, "", probeFailed
	f.Delay = max(f.Delay, returnDelay())
	if word.State == breaker.Open {
		f.Delay = max(f.Delay, word.For+returnDelay())
	}
	return more, nil
}

// after reports a call whose job has ended. What does not reach Redis is missing, and nothing else.
func (c *call) after(ctx context.Context) (more bool) {
	if c == nil || c.probe() {
		return false
	}
	if !c.stale() {
		var err error
		_, more, err = c.report(ctx, c.lease.part, c.reporter, 0, c.lease.Period)
		more = err == nil && more
	}
	c.tellOthers(ctx, c.reporter, 0)
	return more
}

// stale reports whether the call began under an earlier state of the breaker.
func (c *call) stale() bool { return c.lease.Period == 0 && !beganUnder(c.state, c.lease.began()) }

// beganUnder reports whether a call that began at a time did so in the present state of a breaker, of which nobody knows where it
// is the zero state.
func beganUnder(state store.BreakerState, began time.Time) bool {
	return state.Cause == breaker.CauseNone || !began.Before(state.Since)
}

// tellOthers reports the call to the breakers of the other partitions. What does not reach them is missing, and nothing else.
func (c *call) tellOthers(ctx context.Context, reporter string, number uint64) {
	err := c.sessions.config.Store.Each(func(i int, part store.Partition) error {
		if i == c.lease.index {
			return nil
		}
		state, err := part.Breaker(ctx, c.lease.Job.Service())
		if err = unless(store.ErrNoBreaker, err); err != nil || !beganUnder(state, c.lease.began()) {
			return err
		}
		_, more, err := c.report(ctx, part, reporter, number, state.Period)
		c.sessions.promote(ctx, part, c.reporter, err == nil && more)
		return err
	})
	if err != nil {
		c.sessions.config.Missed("a call over HTTP is not in the breakers of all partitions", err)
	}
}

func (c *call) report(ctx context.Context, part store.Partition, reporter string, number, period uint64) (store.BreakerWord, bool, error) {
	config, err := c.rules.Complete()
	if err != nil {
		return store.BreakerWord{}, false, err
	}
	counts := breaker.Counts{Successes: 1}
	if c.outcome == failed {
		counts = breaker.Counts{Failures: 1}
	}
	if c.ran >= config.SlowCallDuration {
		counts.Slow, counts.SlowEnds = 1, 1
	}
	report := breaker.Report{Sequence: number, Period: period, Counts: counts, Streak: counts.Failures, Origin: c.origin, Version: c.version}
	report.Tenants = []breaker.TenantCounts{{Tenant: breaker.TenantNumber(c.lease.Job.Tenant), Counts: counts, Streak: counts.Failures}}
	outcomes := store.Outcomes{Downstream: c.lease.Job.Service(), Config: config, Report: report, Ran: c.ran}
	if c.outcome == failed {
		outcomes.Errors = []store.CallError{{Text: c.text, Count: 1}}
	}
	words, more, err := part.ReportOutcomes(ctx, store.Reporter{Name: reporter}, []store.Outcomes{outcomes})
	if err != nil {
		return store.BreakerWord{}, false, err
	}
	return words[0], more, nil
}
