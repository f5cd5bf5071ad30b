package redisstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// TestWorkersDoNotWaitForAllThatIsDue: many jobs are due in the same moment, and workers get the first of them with the first call, not
// when the last has come back. Timers run beside them: a gate whose time is over opens.
func TestWorkersDoNotWaitForAllThatIsDue(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	start := ahead()
	at := func(after time.Duration) { y.store.conn.Now = strconv.FormatInt(start+after.Microseconds(), 10) }
	at(0)
	const jobs, slots = 300, 20
	all := make([]admission.Job, jobs)
	for i := range all {
		all[i] = mail(fmt.Sprint("tenant-", i%7), fmt.Sprint("job-", i))
		all[i].Delay = time.Second
	}
	y.admit(all...)
	y.register(slots)
	_, _, err := y.store.SetGate(t.Context(), store.Gate{Name: store.TenantGate("tenant-1"), Limit: 0, For: time.Second, Then: store.Unlimited})
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

// TestAFillGoesOnBehindOtherTimers (law W): promote makes all its moves for timers that are due, here to purge dead letters, before it
// comes to a fill that is to go on, and says that there is more. It once let workers wait for 50 ms.
func TestAFillGoesOnBehindOtherTimers(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	start := ahead()
	at := func(after time.Duration) { y.store.conn.Now = strconv.FormatInt(start+after.Microseconds(), 10) }
	at(0)
	const letters, jobs = fairqueue.Moves, 200
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Minute, Queues: []store.QueueSettings{{
		Queue: "mail", Classes: admission.DefaultClasses(), Horizon: time.Hour, KeepDead: time.Second,
	}}}))
	all := make([]admission.Job, letters)
	for i := range all {
		all[i] = mail("acme", fmt.Sprint("dies-", i))
		all[i].Deadline = time.UnixMicro(start + 1)
	}
	y.admitAt(1, all...)
	at(time.Millisecond)
	y.promoteAll()
	at(2 * time.Second)
	all = make([]admission.Job, jobs)
	for i := range all {
		all[i] = mail("acme", fmt.Sprint("job-", i))
	}
	y.admitAt(1, all...)
	y.register(jobs) // fills 64, and is to go on
	y.promoteAll()
	if ready := y.ready(); ready != jobs {
		t.Errorf("%d jobs are ready, want %d", ready, jobs)
	}
}
