package limiter

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
)

// TestFixedWindowsAreCountedInRedis, all of them, however busy limiters are: nothing of them is on lease, and a denial that is remembered tells
// the time of the next window as Redis did.
func TestFixedWindowsAreCountedInRedis(t *testing.T) {
	t.Parallel()
	quota, err := admission.FixedWindow(500, "24h", "12:00", "Europe/Berlin")
	check(t, err)
	store := open(t, redistest.Shared(t).Client(t))
	limits := limited(none, quota)
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
			if v.Source != Exact || v.TokensLeft != admission.Tokens(500-admitted) || v.Window != quota.Window {
				t.Fatalf("the %dth: %+v", admitted, v)
			}
			continue
		case v.Source == Cached:
			cached++
		}
		left := quota.Window.UntilNext(redistest.Now())
		if v.RetryAfter < left-time.Second || v.RetryAfter > left+time.Second || v.TokensLeft != 0 || v.Burst != 500 {
			t.Fatalf("%+v, new in %s", v, left)
		}
	}
	if admitted != 500 || cached == 0 {
		t.Errorf("%d were admitted, %d refused by a remembered denial", admitted, cached)
	}
	bound, err := limiters[0].Guarantee(t.Context(), "acme")
	check(t, err)
	const want = "acme: at most 500 a day, new at 12:00 in Europe/Berlin, and twice that in as long a time around a beginning; without redis: share, and up to 500 taken off on return"
	if bound.String() != want {
		t.Errorf("%s, want %s", bound, want)
	}
}
