package buckets

import (
	"time"

	"github.com/headgate/headgate/admission"
)

// Micro is an amount of millionths of a token. Amounts are -1e15 to 1e15, so that a double holds them exactly.
type Micro int64

// MicroPerToken is one token.
const MicroPerToken Micro = 1_000_000

// maxMicro is the largest burst and so the largest level.
const maxMicro = Micro(admission.MaxLimitTokens) * MicroPerToken

// MicroOf returns whole tokens in micro-tokens. An amount below zero counts as zero, one above the largest burst
// as one token more than that, so that no cost can wrap around to a small one.
func MicroOf(tokens admission.Tokens) Micro {
	return Micro(min(max(tokens, 0), admission.MaxLimitTokens+1)) * MicroPerToken
}

// Tokens returns the amount in whole tokens, rounded down, a debt to the larger one.
func (m Micro) Tokens() admission.Tokens {
	whole := m / MicroPerToken
	if m%MicroPerToken < 0 {
		whole--
	}
	return admission.Tokens(whole)
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
