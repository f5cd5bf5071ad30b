package lua

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate"
)

// TestWhatADeadPoolHasNotReadGoesToOthers (law W): the last worker of a pool dies before it has read more jobs than a call moves,
// while a pool with other weights serves the same queue. The jobs once stayed in the ready stream of a pool without workers.
func TestWhatADeadPoolHasNotReadGoesToOthers(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	start := ahead()
	at := func(after time.Duration) { y.store.now = strconv.FormatInt(start+after.Microseconds(), 10) }
	at(0)
	const jobs = 300
	register := func(worker string, pool Pool, slots int, lease time.Duration) {
		t.Helper()
		_, err := y.store.Register(t.Context(), worker, pool, slots, lease)
		check(t, err)
	}
	dead, others := Pool{Queues: []QueueWeight{{"mail", 3}}}, Pool{Queues: []QueueWeight{{"mail", 2}, {"other", 1}}}
	register("dies", dead, jobs, time.Second)
	all := make([]headgate.Job, jobs)
	for i := range all {
		all[i] = mail("acme", fmt.Sprint("job-", i))
	}
	y.admit(all...)
	register("lives", others, jobs, time.Hour)
	for step := range 100 {
		at(2*time.Second + time.Duration(step)*10*time.Millisecond)
		p, err := y.store.Promote(t.Context(), "s", time.Second)
		check(t, err)
		if !p.More {
			break
		}
	}
	leases, err := y.store.Read(t.Context(), "lives", others.ID(), jobs, -1, false)
	check(t, err)
	left, err := y.client.Exists(t.Context(), y.store.partition.Ready(dead.ID())).Result()
	check(t, err)
	if len(leases) != jobs || left != 0 {
		t.Errorf("%d of %d jobs reached the other pool, and %d stream of the dead one is left", len(leases), jobs, left)
	}
}
