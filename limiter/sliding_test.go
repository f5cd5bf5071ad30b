package limiter

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
)

// TestSlidingWindowsAreCountedInRedis: a denial that is remembered tells when enough is as old as the window, as Redis did.
func TestSlidingWindowsAreCountedInRedis(t *testing.T) {
	t.Parallel()
	for _, window := range []func(admission.Tokens, string) (admission.Limit, error){admission.SlidingWindow, admission.SlidingLog} {
		limit, err := window(500, "24h")
		check(t, err)
		countedInRedis(t, limit, limit.Window.Words(), func(wait time.Duration) bool {
			return wait >= 23*time.Hour && wait <= limit.Window.UntilNext(time.Time{})
		})
	}
}
