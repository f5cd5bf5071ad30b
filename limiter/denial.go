package limiter

import (
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/buckets"
	"github.com/headgate/headgate/policy"
)

// denialLife is how long a denial answers at the longest: then Redis is asked, which tells of a new policy.
const denialLife = time.Second

// denial is a refusal of Redis, remembered at the scope that refused. It never changes.
type denial struct {
	policy *policy.Compiled
	reason headgate.Reason
	// left is what the bucket held at; it fills by rate up to burst.
	left  buckets.Micro
	rate  headgate.TokensPerSecond
	burst headgate.Tokens
	// at is before the call that was refused. Until pause everything is refused that left does not cover.
	at, pause breaker.Instant
}

// refuses reports whether cost is still too much at now, and for how long it will be.
func (d *denial) refuses(now breaker.Instant, inForce *policy.Compiled, cost headgate.Tokens) (time.Duration, bool) {
	if d == nil || d.policy != inForce || now >= d.at.Add(denialLife) {
		return 0, false
	}
	switch {
	case d.reason == headgate.ReasonTooCostly: // It says nothing of what the bucket holds.
		return 0, cost > d.burst
	case cost > d.burst:
		return 0, false
	}
	missing := buckets.MicroOf(cost) - d.left
	if missing <= 0 {
		return 0, false
	}
	// A micro-token a microsecond is a token a second.
	wait := time.Duration(float64(missing) * float64(time.Microsecond) / float64(d.rate))
	left := max(d.at.Add(wait), d.pause).Sub(now)
	return left, left > 0
}

// verdict is the refusal that the denial gives.
func (d *denial) verdict(scope headgate.Scope, retryAfter time.Duration) Verdict {
	return Verdict{
		Source: Cached, Reason: d.reason, Scope: scope, TokensLeft: d.left.Tokens(), Burst: d.burst, RetryAfter: retryAfter,
	}
}
