package buckets

import (
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
)

// someInstant is a typical Redis time to start from.
const someInstant Instant = 1_763_000_000_000_000

// drawLimit draws a valid limit whose empty bucket fills within about an hour, or now and then any valid one.
func drawLimit(t *rapid.T, label string) Limit {
	valid := func(l admission.Limit) bool { return l.Validate(label) == nil }
	if rapid.IntRange(0, 9).Draw(t, label+" extreme") == 0 {
		return LimitOf(rapid.Custom(func(t *rapid.T) admission.Limit {
			return admission.Limit{
				Tokens: admission.Tokens(rapid.Int64Range(1, int64(admission.MaxLimitTokens)).Draw(t, "tokens")),
				Per:    time.Duration(rapid.Int64Range(int64(admission.MinLimitPer), int64(admission.MaxLimitPer)).Draw(t, "per")),
				Burst:  admission.Tokens(rapid.Int64Range(1, int64(admission.MaxLimitTokens)).Draw(t, "burst")),
			}
		}).Filter(valid).Draw(t, label))
	}
	return LimitOf(admission.Limit{
		Tokens: admission.Tokens(rapid.Int64Range(1, 500).Draw(t, label+" tokens")),
		Per:    time.Duration(rapid.Int64Range(1, 60_000).Draw(t, label+" per")) * time.Millisecond,
		Burst:  admission.Tokens(rapid.Int64Range(1, 60).Draw(t, label+" burst")),
	})
}

// drawSpan draws a time between two operations: usually short, sometimes long beside the refill of a bucket.
func drawSpan(t *rapid.T, label string) Span {
	largest := rapid.SampledFrom([]int64{0, 10, 1000, 1_000_000, 100_000_000, 100_000_000_000}).Draw(t, label+" scale")
	return Span(rapid.Int64Range(0, largest).Draw(t, label))
}

// drawBucket draws what a store may hold at now for a limit: absent, written under it, or under another one.
func drawBucket(t *rapid.T, label string, now Instant, limit Limit) Bucket {
	kind := rapid.IntRange(0, 4).Draw(t, label+" kind")
	if kind == 0 {
		return Bucket{}
	}
	written := limit
	if kind == 1 {
		written = drawLimit(t, label+" written")
	}
	level := Micro(rapid.Int64Range(0, int64(written.Burst)-1).Draw(t, label+" level"))
	stamp := now - Instant(drawSpan(t, label+" age"))
	if kind == 2 {
		stamp = now + Instant(drawSpan(t, label+" ahead"))
	}
	return NewBucket(level, stamp, written)
}
