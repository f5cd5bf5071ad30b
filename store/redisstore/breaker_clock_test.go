package redisstore

import (
	"testing"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// TestHowLongABreakerIsOpenIsByTheClockOfRedis, read and heard of, however far that is from this machine's.
func TestHowLongABreakerIsOpenIsByTheClockOfRedis(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]time.Duration{"ahead": 10 * time.Minute, "behind": -10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Options{Clock: redistest.NewClock(t, off)})
			s, err := openOnly(t.Context(), server.Client(t), Config{})
			check(t, err)
			_, err = s.ForceBreaker(t.Context(), "api", breaker.Open, time.Hour, store.Intervention{Reason: "maintenance"})
			check(t, err)
			anHour := func(what string, d time.Duration) {
				t.Helper()
				if d <= 55*time.Minute || d > time.Hour {
					t.Errorf("%s, it is open for %s, want an hour", what, d)
				}
			}
			state, err := s.Breaker(t.Context(), "api")
			check(t, err)
			anHour("read", state.For)
			events, _, err := s.BreakerEvents(t.Context(), "0-0", -1)
			check(t, err)
			if len(events) == 0 {
				t.Fatal("nothing was told")
			}
			anHour("heard of", events[len(events)-1].For)
		})
	}
}
