package lua

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestAClockThatIsSetBackStopsNothing: rates go by a clock that never goes back, and fills and wakes that ran out of moves are to go on at
// once. Their timers once stood by the old clock, and waited until that time came again.
func TestAClockThatIsSetBackStopsNothing(t *testing.T) {
	t.Parallel()
	const plain, parked, rated = 100, 100, 3
	y := newYard(t)
	start := ahead()
	at := func(after time.Duration) { y.store.now = strconv.FormatInt(start+after.Microseconds(), 10) }
	at(0)
	check(t, y.store.PutPolicy(t.Context(), PolicyUpdate{
		Version: 1, Text: []byte("{}"), Window: 30 * time.Second,
		Caps: []Cap{{Gate: DownstreamRateGate("slow"), Rate: headgate.Limit{Tokens: 1, Per: time.Second, Burst: 1}}},
	}))
	_, _, err := y.store.SetGate(t.Context(), Gate{Name: DownstreamGate("api"), Limit: 0, Reason: t.Name()})
	check(t, err)
	var all []headgate.Job
	for downstream, n := range map[string]int{"": plain, "api": parked, "slow": rated} {
		for i := range n {
			j := mail(fmt.Sprint("tenant-", i), downstream+"job")
			j.Downstream = downstream
			all = append(all, j)
		}
	}
	y.admitAt(1, all...)
	more, err := y.store.Register(t.Context(), "w1", yardPool, len(all), 24*time.Hour)
	check(t, err)
	at(-time.Hour)
	y.promoteAll()
	if ready := y.ready(); !more || ready != plain+1 {
		t.Errorf("%d jobs are ready when the clock was set back while a pool is filled, want %d; more %t", ready, plain+1, more)
	}
	_, more, err = y.store.SetGate(t.Context(), Gate{Name: DownstreamGate("api"), Limit: parked})
	check(t, err)
	at(-2 * time.Hour)
	y.promoteAll()
	if ready := y.ready(); !more || ready != plain+parked+1 {
		t.Errorf("%d jobs are ready when it was set back while waiters wake, want %d; more %t", ready, plain+parked+1, more)
	}
	for second := range rated - 1 {
		at(-2*time.Hour + time.Duration(second+1)*time.Second)
		y.promoteAll()
		if ready, want := y.ready(), plain+parked+2+second; ready != want {
			t.Errorf("%d jobs are ready %d s later, want %d: a token a second", ready, second+1, want)
		}
	}
}

func (y *yard) ready() int {
	y.tb.Helper()
	census, err := y.store.Census(y.tb.Context())
	check(y.tb, err)
	return int(census.Ready)
}
