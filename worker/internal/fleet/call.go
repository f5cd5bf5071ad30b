package fleet

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// GuardedCall is one handler's call of its downstream. That of a job without one, nil, does nothing.
type GuardedCall struct {
	breakers *Breakers
	guard    *Guard
	began    breaker.Instant
	// account is the whole name of the downstream, SERVICE+ACCOUNT, where it names an account; else empty.
	account string
	// tenant is the job's, by number.
	tenant uint16
	// period is that of the fleet's breaker in which the call was let through.
	period uint64
	// leased says that it is a probe of the fleet's breaker; own is the call as the worker's own breaker sees it, and
	// the zero Call where that one was not asked.
	leased bool
	own    *breaker.Call
	// elsewhere are the same downstream's breakers in other partitions, with the periods in which the call began there.
	elsewhere []sighting
	// probeToken is that of the right to be one of the fleet's probes, empty where one partition has them all.
	probeToken string
	// push is how the downstream pushed back, nil where it did not: a job that is cancelled ends the call beside its handler.
	push atomic.Pointer[push]
	// progress is callRunning, callSlow or callEnded; timer makes it slow while it runs.
	progress atomic.Uint32
	timer    *time.Timer
}

const (
	callRunning uint32 = iota
	callSlow
	callEnded
)

// push is how a downstream pushed back: how much, and for how long.
type push struct {
	level admission.PressureLevel
	d     time.Duration
}

// sighting is a downstream's breaker of another partition as it was when a call began.
type sighting struct {
	breakers *Breakers
	guard    *Guard
	period   uint64
}

// lookElsewhere notes the periods of the other partitions' breakers.
func (c *GuardedCall) lookElsewhere() {
	for _, other := range c.breakers.others {
		if g := other.GuardOf(c.guard.Name); g != nil {
			c.elsewhere = append(c.elsewhere, sighting{other, g, g.Fleet().Period})
		}
	}
}

// tell counts an outcome in all partitions; told is of the call's own.
func (c *GuardedCall) tell(o outcome, told chan struct{}) {
	for _, s := range c.elsewhere {
		s.breakers.count(s.guard, s.period, o, nil)
	}
	c.breakers.count(c.guard, c.period, o, told)
}

// leaseProbe reports whether a call that its partition lets through as a probe is one of those that the fleet may have at a
// time: each partition has a half-open breaker, and all of them together as many probes as one.
func (c *GuardedCall) leaseProbe(ctx context.Context) bool {
	b := c.breakers
	if !c.leased || !b.divided {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	config := c.guard.Local().Config()
	token := fmt.Sprintf("%s-%d", b.name, b.probes.Add(1))
	ok, err := b.fleet.LeaseRight(ctx, c.guard.Name, token, config.MaxProbes, config.ProbeTimeout+CallTimeout)
	if err != nil && ctx.Err() == nil {
		b.logger.Warn().Err(err).Str("downstream", c.guard.Name).Msg("probe not leased: its job is handed back")
	}
	if ok {
		c.probeToken = token
	}
	return ok
}

// ReturnProbe gives back what leaseProbe has taken. A lease that is not given back ends by itself.
func (c *GuardedCall) ReturnProbe(ctx context.Context) {
	if c == nil || c.probeToken == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CallTimeout) // the last act of a job whose ctx may have ended
	defer cancel()
	if err := c.breakers.fleet.ReturnRight(ctx, c.guard.Name, c.probeToken); err != nil {
		c.breakers.logger.Warn().Err(err).Str("downstream", c.guard.Name).Msg("probe not given back: its lease ends by itself")
	}
}

// begin asks both breakers, and reports whether the call may begin. The job's lease is of a period.
func (c *GuardedCall) begin(lease uint64) bool {
	view := c.guard.Fleet()
	c.period = view.Period
	switch {
	case lease > view.Period || view.State == breaker.Open:
		return false
	case view.State == breaker.HalfOpen:
		c.leased = lease == view.Period
		return c.leased
	case view.forced:
		return true
	}
	own, change, ok := c.guard.Local().TryAcquireAt(c.began)
	c.own = &own
	c.breakers.noted(c.guard, change)
	return ok
}

// Probe reports whether the call decides about a half-open breaker, the fleet's or the worker's own: its failure is the
// breaker's, not the job's (law L11).
func (c *GuardedCall) Probe() bool { return c != nil && (c.leased || c.own.Probe()) }

// MostTime returns how long the call may take, where it is a probe; zero for as long as its job. It is less than the probe's
// time-out, so that what the probe came to, and whose it was, is told before that.
func (c *GuardedCall) MostTime() time.Duration {
	if !c.Probe() {
		return 0
	}
	return c.guard.Local().Config().ProbeTimeout * 9 / 10
}

// Patience returns what a job must give a call for its time-out to say something about the downstream: one that is cut off sooner
// than all others are could not even become slow.
func (c *GuardedCall) Patience() time.Duration {
	if c == nil {
		return 0
	}
	b := c.breakers
	return min(cmp.Or(c.guard.by.Load().callTimeout, b.callTimeout), c.guard.Local().Config().SlowCallDuration)
}

// Timeout returns what a call may take of a job that says nothing of its own; zero where nobody says anything of the downstream.
func (c *GuardedCall) Timeout() time.Duration {
	if c == nil {
		return 0
	}
	return c.guard.by.Load().callTimeout
}

// aside reports whether the tenant's calls fail where others' do not: they say nothing about this worker.
func (c *GuardedCall) aside(now breaker.Instant) bool { return c.guard.isAside(c.tenant, now) }

func (c *GuardedCall) markSlow() {
	if !c.progress.CompareAndSwap(callRunning, callSlow) {
		return
	}
	b := c.breakers
	if now := b.Instant(); !c.aside(now) {
		b.noted(c.guard, c.own.MarkSlowAt(now))
	}
	c.tell(outcome{Counts: breaker.Counts{Slow: 1}, tenant: c.tenant}, nil)
}

// Succeeded ends a call that counts as a success.
func (c *GuardedCall) Succeeded() {
	c.end((*breaker.Call).SuccessAt, outcome{Counts: breaker.Counts{Successes: 1}})
}

// Ignored ends a call that counts as neither.
func (c *GuardedCall) Ignored() { c.end((*breaker.Call).IgnoreAt, outcome{}) }

// Pushed notes, before the call ends, how much the downstream pushed back, if its dispatch moves by that.
func (c *GuardedCall) Pushed(level admission.PressureLevel, d time.Duration) {
	if c != nil && level > 0 && c.guard.by.Load().moves {
		c.push.Store(&push{level, d})
	}
}

// Throttled ends the call without a verdict: the downstream refused it as one too many. Where its dispatch moves by that, it is told; but not of
// one for an account, whose quota it is that is used up, not the service's.
func (c *GuardedCall) Throttled() {
	if c == nil {
		return
	}
	o := outcome{}
	if c.account == "" && c.guard.by.Load().moves {
		o.refused = 1
	}
	c.end((*breaker.Call).IgnoreAt, o)
}

// Hold has all workers hold back the downstream's jobs, of one that names an account that account's alone, for as long as it has said when it refused a call, at most as long as the policy lets it. Only
// the first of those that say about the same asks Redis. What does not reach Redis is missing, and nothing else: the job waits by itself.
func (c *GuardedCall) Hold(ctx context.Context, said time.Duration) {
	if c == nil {
		return
	}
	b, g := c.breakers, c.guard
	name, most := g.Name, g.by.Load().holdMost
	if c.account != "" {
		name, most = c.account, b.policy.policy.Load().MaxRetryAfter(c.account)
	}
	length := min(said, most)
	if length < store.MinRetryAfter || !c.holds(b.Instant().Add(length)) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), CallTimeout) // its job may have ended
	defer cancel()
	did, err := b.fleet.PauseAtLeast(ctx, store.DownstreamGate(name), length, store.RetryAfterBy(said))
	switch {
	case err != nil:
		c.unhold()
		b.logger.Warn().Err(err).Str("downstream", name).Msg("downstream not held back: it answered 429 with Retry-After")
	case did:
		b.logger.Info().Str("downstream", name).Dur("said_ms", said).Dur("for_ms", length).Msg("downstream held back: it answered 429 with Retry-After")
	}
}

// Failed returns for how long the breaker stays open now, as far as that is known; err is why, if anybody says.
func (c *GuardedCall) Failed(err error) time.Duration {
	if c == nil {
		return 0
	}
	c.end((*breaker.Call).FailureAt, outcome{Counts: breaker.Counts{Failures: 1}, err: err})
	now := c.breakers.Instant()
	if view := c.guard.Fleet(); view.State == breaker.Open {
		return min(max(view.Until.Sub(now), 0), c.guard.Local().Config().OpenMax) // A forced one may last longer: its gate holds the job then.
	}
	if c.guard.Local().State() != breaker.Open {
		return 0
	}
	rest, _ := c.guard.Local().NextChangeAt(now)
	return rest
}

// end ends the call, once. The outcome of a probe is reported before it returns, or as soon as Redis answers again.
func (c *GuardedCall) end(verdict func(*breaker.Call, breaker.Instant) breaker.Transition, o outcome) {
	if c == nil {
		return
	}
	was := c.progress.Swap(callEnded)
	if was == callEnded {
		return
	}
	c.timer.Stop()
	b, g := c.breakers, c.guard
	now := b.Instant()
	if was == callRunning && now.Sub(c.began) >= g.Local().Config().SlowCallDuration {
		was, o.Slow = callSlow, 1
	}
	if was == callSlow {
		o.SlowEnds = o.Ended()
	}
	if o.Failures > 0 && c.aside(now) {
		verdict = (*breaker.Call).IgnoreAt
	}
	change := verdict(c.own, now)
	if p := c.push.Load(); p != nil {
		o.push, o.pushFor = p.level, p.d
	}
	if o.Counts == (breaker.Counts{}) && o.refused == 0 && o.push == 0 {
		b.noted(g, change)
		return
	}
	o.tenant = c.tenant
	if o.Ended() > 0 {
		o.ran = now.Sub(c.began)
	}
	var told chan struct{}
	if c.leased {
		told = make(chan struct{})
	}
	c.tell(o, told)
	b.noted(g, change)
	if told != nil {
		b.await(told)
	}
}
