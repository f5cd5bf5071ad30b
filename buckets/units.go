package buckets

import (
	"time"

	"github.com/headgate/headgate/admission"
)

// Micro is an amount of millionths of a token.
type Micro = admission.Micro

// MicroPerToken is one token.
const MicroPerToken = admission.MicroPerToken

// maxMicro is the largest burst and so the largest level.
const maxMicro = Micro(admission.MaxLimitTokens) * MicroPerToken

// MicroOf returns whole tokens in micro-tokens. An amount below zero counts as zero, one above the largest burst
// as one token more than that, so that no cost can wrap around to a small one.
func MicroOf(tokens admission.Tokens) Micro {
	return Micro(min(max(tokens, 0), admission.MaxLimitTokens+1)) * MicroPerToken
}

// Instant is a time by the clock of Redis in microseconds since the Unix epoch, 0 to 2⁵³.
type Instant int64

// InstantOf returns the microsecond in which t lies.
func InstantOf(t time.Time) Instant { return Instant(t.UnixMicro()) }

// Time returns the instant in UTC.
func (i Instant) Time() time.Time { return time.UnixMicro(int64(i)).UTC() }

// Span is a length of time in microseconds, 0 to 2⁵³.
type Span int64

// Duration returns the span as a time.Duration. Waits and fills stay far below its 292 years.
func (s Span) Duration() time.Duration { return time.Duration(s) * time.Microsecond }
