package buckets

import (
	"math"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
)

// Scaling is a part of limits to which an operator has brought them for a time. It is a plain value.
//
//nolint:recvcheck // It is a plain value; what is asked often spares the copy.
type Scaling struct {
	// Part is from 0.01 to 1.
	Part float64
	// Ends is when it ends, by the buckets' time, and Until the same by the clock of Redis.
	Ends, Until Instant
}

// Words says to what limits are scaled, and until when.
func (s Scaling) Words() string {
	return "scaled to " + strconv.FormatFloat(s.Part, 'g', 6, 64) + " until " + s.Until.Time().Format(time.RFC3339)
}

// Less returns the scale of two that leaves less, of equals the one that ends later; nil is none.
func (s *Scaling) Less(other *Scaling) *Scaling {
	if s == nil || other != nil && (other.Part < s.Part || other.Part == s.Part && other.Ends > s.Ends) {
		return other
	}
	return s
}

// Of returns what a loop's part of all limits of a queue leaves of one of them, by its Floor: in whole thousandths, nil where that is all of it.
func (s *Scaling) Of(limit *admission.Limit) *Scaling {
	if from, _ := limit.Floor(); s == nil || from == 0 {
		return s
	}
	of := *s
	if of.Part = limit.PartAt(s.Part); of.Part >= 1 {
		return nil
	}
	return &of
}

// Whole is what the policy says of a limit that is scaled.
type Whole struct {
	Scaling

	Rate  admission.TokensPerSecond
	Burst Micro
}

// Scaled returns the limit scaled; nil leaves it as it is. Its burst stays above a token, if it was: a job of one token has to wait, not to go. Of a
// window the tokens are scaled alone. What a bucket held above the burst is lost once it is asked, as when the policy lowers a burst, and the
// scale's end is a change of limits at Scaling.Ends.
func (l Limit) Scaled(s *Scaling) Limit {
	if s == nil {
		return l
	}
	l.Whole = &Whole{Scaling: *s, Rate: l.Rate, Burst: l.Burst}
	if l.Window == nil && l.Sliding == nil {
		l.Rate *= admission.TokensPerSecond(s.Part)
	}
	l.Burst = max(min(l.Burst, MicroPerToken), Micro(math.Floor(float64(l.Burst)*s.Part)))
	return l
}

// policyBurst is the burst by the policy: what costs more never passes.
func (l Limit) policyBurst() Micro {
	if l.Whole != nil {
		return l.Whole.Burst
	}
	return l.Burst
}

// waitScaled is waitFor of a limit that is scaled, where cost is within the policy's burst: until the bucket holds cost, or the scale has ended
// and the policy's limit has made up for what is missing. Of the policy's window it is known what the scaled one leaves, which may be more than
// there is.
func (l Limit) waitScaled(now Instant, level Micro, stamp Instant, cost Micro) Span {
	whole := l.Whole
	left := Span(whole.Ends - now)
	plain := Limit{Rate: l.Rate, Burst: l.Burst, Window: l.Window}
	switch {
	case l.Window != nil:
		if l.Burst < cost {
			plain.Burst = whole.Burst
		}
		wait := plain.waitWindow(level, stamp, cost)
		if level+whole.Burst-l.Burst >= cost {
			wait = min(wait, left)
		}
		return wait
	case l.Burst >= cost:
		if wait := plain.waitFor(now, level, stamp, cost); wait <= left {
			return wait
		}
	}
	came := Micro(math.Floor(float64(max(whole.Ends-stamp, 0)) * float64(l.Rate)))
	held := min(l.Burst, level+came)
	return left + max(1, Span(math.Ceil(float64(cost-held)/float64(whole.Rate)))+1)
}
