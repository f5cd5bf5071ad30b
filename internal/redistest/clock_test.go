package redistest_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
)

// TestAClockOfItsOwn: what Redis says of the time, and what it does by it, follow the clock.
func TestAClockOfItsOwn(t *testing.T) {
	t.Parallel()
	clock := redistest.NewClock(t, -10*time.Minute)
	client := redistest.Start(t, redistest.Options{Clock: clock}).Client(t)
	ahead := func() time.Duration {
		t.Helper()
		now, err := client.Time(t.Context()).Result()
		must(t, err)
		return time.Until(now)
	}
	near := func(want time.Duration) {
		t.Helper()
		if got := ahead(); got < want-5*time.Minute || got > want+5*time.Minute {
			t.Errorf("the clock is %s ahead, want %s", got, want)
		}
	}
	near(-10 * time.Minute)
	must(t, client.Set(t.Context(), "key", "", 15*time.Minute).Err())
	clock.Step(t, 20*time.Minute)
	near(10 * time.Minute)
	if n, err := client.Exists(t.Context(), "key").Result(); n != 0 || err != nil {
		t.Errorf("a key is there after its time: %d, %v", n, err)
	}
	clock.Step(t, -time.Hour)
	near(-50 * time.Minute)
}
