package limiter

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
)

// TestFixedWindowsAreCountedInRedis: a denial that is remembered tells the time of the next window as Redis did.
func TestFixedWindowsAreCountedInRedis(t *testing.T) {
	t.Parallel()
	quota, err := admission.FixedWindow(500, "24h", "12:00", "Europe/Berlin")
	check(t, err)
	countedInRedis(t, quota, " a day, new at 12:00 in Europe/Berlin, and twice that in as long a time around a beginning", func(wait time.Duration) bool {
		left := quota.Window.UntilNext(redistest.Now())
		return wait >= left-time.Second && wait <= left+time.Second
	})
}

// countedInRedis: a limit of 500 in a window is counted in Redis alone, however busy limiters are: nothing of it is on lease. In words it is as said,
// and waits are those that may be.
func countedInRedis(t *testing.T, limit admission.Limit, words string, may func(wait time.Duration) bool) {
	t.Helper()
	store := open(t, redistest.Shared(t).Client(t))
	limits := limited(none, limit)
	limiters := []*Limiter{
		start(t, store, Config{Policy: limits, Timeout: patient}), start(t, store, Config{Policy: limits, Timeout: patient, Strict: true}),
	}
	admitted, cached := 0, 0
	for i := range 800 {
		v, err := limiters[i%2].Check(t.Context(), Request{Tenant: "acme", Remaining: true})
		check(t, err)
		switch {
		case v.Admitted:
			admitted++
			if v.Source != Exact || v.TokensLeft != admission.Tokens(500-admitted) || v.Window != limit.Window {
				t.Fatalf("the %dth: %+v", admitted, v)
			}
			continue
		case v.Source == Cached:
			cached++
		}
		if !may(v.RetryAfter) || v.TokensLeft != 0 || v.Burst != 500 {
			t.Fatalf("%+v", v)
		}
	}
	if admitted != 500 || cached == 0 {
		t.Errorf("%d were admitted, %d refused by a remembered denial", admitted, cached)
	}
	bound, err := limiters[0].Guarantee(t.Context(), "acme")
	check(t, err)
	if want := "acme: at most 500" + words + "; without redis: share, and up to 500 taken off on return"; bound.String() != want {
		t.Errorf("%s, want %s", bound, want)
	}
}
