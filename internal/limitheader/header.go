package limitheader

import (
	"math"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
)

// The fields' names as net/http writes them.
const (
	PolicyField = "Ratelimit-Policy"
	LimitField  = "Ratelimit"

	OldLimitField     = "X-Ratelimit-Limit"
	OldRemainingField = "X-Ratelimit-Remaining"
	OldResetField     = "X-Ratelimit-Reset"

	RetryAfterField = "Retry-After"
)

// Bucket is a token bucket as an answer tells of it.
type Bucket struct {
	// Name has no byte that a string of structured fields escapes, as no scope has.
	Name  string
	Rate  admission.TokensPerSecond // above zero
	Burst admission.Tokens
	Left  float64 // tokens; below zero is told as none
	// Window is that of a limit of windows, which have Burst each.
	Window admission.Window
}

// Policy is the bucket's item of RateLimit-Policy.
func (b Bucket) Policy() string {
	quota, window := rateOf(b.Rate)
	if !b.Window.IsZero() {
		quota, window = int64(b.Burst), Seconds(lengthOf(b.Window))
	}
	text := append(b.named(), ";q="...)
	text = strconv.AppendInt(text, quota, 10)
	text = append(text, ";w="...)
	text = strconv.AppendInt(text, window, 10)
	text = append(text, ";headgate-burst="...)
	return string(strconv.AppendInt(text, int64(b.Burst), 10))
}

// lengthOf is how long a window is, of a month 31 days. It does not follow from burst and rate: a partition's part of a limit is rounded down.
func lengthOf(w admission.Window) time.Duration {
	if length, err := time.ParseDuration(w.Length()); err == nil {
		return length
	}
	return admission.MaxLimitPer
}

// Limit is the bucket's item of RateLimit. retryAfter is the answer's, zero where it has none.
func (b Bucket) Limit(retryAfter time.Duration) string {
	window := b.window()
	if retryAfter > 0 {
		window = min(window, retryAfter)
	}
	text := append(b.named(), ";r="...)
	text = strconv.AppendInt(text, b.Remaining(), 10)
	text = append(text, ";t="...)
	return string(strconv.AppendInt(text, Seconds(window), 10))
}

func (b Bucket) named() []byte {
	text := append(make([]byte, 0, len(b.Name)+48), '"')
	return append(append(text, b.Name...), '"')
}

// Remaining is what is left in whole tokens, rounded down.
func (b Bucket) Remaining() int64 { return int64(math.Floor(max(0, b.Left))) }

// UntilFull is how long the bucket takes to be full.
func (b Bucket) UntilFull() time.Duration {
	if !b.Window.IsZero() && b.Left < float64(b.Burst) {
		return b.Window.UntilNext(time.Now())
	}
	return b.after(float64(b.Burst) - b.Left)
}

// window is the effective one, as the package says.
func (b Bucket) window() time.Duration {
	if !b.Window.IsZero() {
		return b.Window.UntilNext(time.Now())
	}
	if whole := b.Remaining(); whole > 0 {
		return b.after(float64(whole))
	}
	return b.after(1 - b.Left)
}

// after is how long the rate takes for some tokens, to the microsecond.
func (b Bucket) after(tokens float64) time.Duration {
	return time.Duration(tokens/float64(b.Rate)*1e6) * time.Microsecond
}

// Seconds is a time in whole seconds, rounded up.
func Seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// Delay is a value of Retry-After: seconds, rounded up, one at the least.
func Delay(d time.Duration) string { return strconv.FormatInt(max(1, Seconds(d)), 10) }

// rateOf writes a rate as whole tokens in the least of some windows, in seconds; one that is whole in none loses a fraction of a token a
// day.
func rateOf(rate admission.TokensPerSecond) (quota, window int64) {
	for _, window := range []int64{1, 60, 3600, 86400} {
		quota := float64(rate) * float64(window)
		if whole := math.Round(quota); whole >= 1 && math.Abs(quota-whole) < 1e-6*whole {
			return int64(whole), window
		}
	}
	const most = 31 * 86400 // The slowest rate is a token in it.
	for window := int64(86400); ; window = most {
		if quota := int64(float64(rate) * float64(window)); quota >= 1 || window == most {
			return max(quota, 1), window
		}
	}
}
