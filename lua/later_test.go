package lua

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestWorkersDoNotWaitForAllThatIsDue: many jobs are due in the same moment, and workers get the first of them with the first call, not
// when the last has come back. Timers run beside them: a gate whose time is over opens.
func TestWorkersDoNotWaitForAllThatIsDue(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	start := ahead()
	at := func(after time.Duration) { y.store.now = strconv.FormatInt(start+after.Microseconds(), 10) }
	at(0)
	const jobs, slots = 300, 20
	all := make([]headgate.Job, jobs)
	for i := range all {
		all[i] = mail(fmt.Sprint("tenant-", i%7), fmt.Sprint("job-", i))
		all[i].Delay = time.Second
	}
	y.admit(all...)
	y.register(slots)
	_, _, err := y.store.SetGate(t.Context(), Gate{Name: TenantGate("tenant-1"), Limit: 0, For: time.Second, Then: Unlimited})
	check(t, err)
	at(time.Second + time.Millisecond)
	p, err := y.store.Promote(t.Context(), "s", time.Second)
	check(t, err)
	gates, err := y.store.Gates(t.Context())
	check(t, err)
	if ready := y.ready(); !p.More || ready != slots || len(gates) > 0 {
		t.Errorf("after one call %d jobs are ready, want %d, more %t; gates %v", ready, slots, p.More, gates)
	}
}
