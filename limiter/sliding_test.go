package limiter

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
)

// TestSlidingWindowsAreCountedInRedis, all of them, however busy limiters are: nothing of them is on lease, and a denial that is remembered tells
// when enough is as old as the window, as Redis did.
func TestSlidingWindowsAreCountedInRedis(t *testing.T) {
	t.Parallel()
	for _, make := range []func(admission.Tokens, string) (admission.Limit, error){admission.SlidingWindow, admission.SlidingLog} {
		limit, err := make(500, "24h")
		check(t, err)
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
			if v.RetryAfter < 23*time.Hour || v.RetryAfter > limit.Window.UntilNext(time.Time{}) || v.TokensLeft != 0 || v.Burst != 500 {
				t.Fatalf("%+v", v)
			}
		}
		if admitted != 500 || cached == 0 {
			t.Errorf("%d were admitted, %d refused by a remembered denial", admitted, cached)
		}
		bound, err := limiters[0].Guarantee(t.Context(), "acme")
		check(t, err)
		want := "acme: at most 500" + limit.Window.Words() + "; without redis: share, and up to 500 taken off on return"
		if bound.String() != want {
			t.Errorf("%s, want %s", bound, want)
		}
	}
}
