package limiter

import (
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/policy"
)

// denialLife is how long a denial answers at the longest: then Redis is asked, which tells of a new policy.
const denialLife = time.Second

// denial is a refusal of Redis, remembered at the scope that refused. It never changes.
type denial struct {
	policy *policy.Compiled
	reason admission.Reason
	// left is what the bucket held at; it gains a micro-token in perMicro nanoseconds, up to burst, which is less than most, that of the policy, where it is scaled.
	left     buckets.Micro
	rate     admission.TokensPerSecond
	perMicro float64
	burst    admission.Tokens
	most     admission.Tokens
	// at is before the call that was refused. Until pause everything is refused that left does not cover.
	at, pause breaker.Instant
	// window is that of a limit of windows, which refused cost, and has no room for that until another one begins, or enough is as old as it.
	window admission.Window
	cost   admission.Tokens
	until  breaker.Instant
}

// refuses reports whether cost is still too much at now, and for how long it will be.
func (d *denial) refuses(now breaker.Instant, inForce *policy.Compiled, cost admission.Tokens) (time.Duration, bool) {
	if d == nil || d.policy != inForce || now >= d.at.Add(denialLife) {
		return 0, false
	}
	switch {
	case d.reason == admission.ReasonTooCostly: // It says nothing of what the bucket holds.
		return 0, cost > d.most
	case cost > d.most:
		return 0, false
	}
	if d.until != 0 { // What costs less than what was refused may have to wait less for a debt to be paid.
		wait := d.until.Sub(now)
		return wait, cost >= d.cost && wait > 0
	}
	missing := buckets.MicroOf(cost) - d.left
	if missing <= 0 {
		return 0, false
	}
	wait := time.Duration(float64(missing) * d.perMicro)
	left := max(d.at.Add(wait), d.pause).Sub(now)
	return left, left > 0
}

// tell writes the refusal that the denial gives, into a zero Verdict: copies of one cost more than all else.
func (d *denial) tell(v *Verdict, scope admission.Scope, retryAfter time.Duration) {
	v.Source, v.Reason, v.Scope = Cached, d.reason, scope
	v.TokensLeft, v.Burst, v.Rate, v.Window, v.RetryAfter = d.left.Tokens(), d.burst, d.rate, d.window, retryAfter
}
