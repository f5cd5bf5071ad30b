package redisstore

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestWhatADeadPoolHasNotReadGoesToOthers (law W): the last worker of a pool dies before it has read more jobs than a call moves,
// while a pool with other weights serves the same queue. The jobs once stayed in the ready stream of a pool without workers.
func TestWhatADeadPoolHasNotReadGoesToOthers(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	r := y.rivals(surplusJobs, time.Second)
	r.at(2 * time.Second)
	y.promoteAll()
	left, err := y.client.Exists(t.Context(), y.store.conn.Partition.Ready(r.first.ID())).Result()
	check(t, err)
	if got := r.taken(); got != surplusJobs || left != 0 {
		t.Errorf("%d of %d jobs reached the other pool, and %d stream of the dead one is left", got, surplusJobs, left)
	}
}

// TestWhatAWorkerHasNoSlotsForGoesToOthers (law W): a worker gives slots up, as one that drains does, or whose slots go to another
// partition, while jobs for them wait in its pool's ready stream. They once stayed until its registration ended.
func TestWhatAWorkerHasNoSlotsForGoesToOthers(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	r := y.rivals(surplusJobs, time.Hour)
	const kept = 7
	_, err := y.store.Register(t.Context(), r.worker, r.first, kept, time.Hour)
	check(t, err)
	y.promoteAll()
	leases, err := y.store.Read(t.Context(), r.worker, r.first.ID(), surplusJobs, -1, false)
	check(t, err)
	if got := r.taken(); got != surplusJobs-kept || len(leases) != kept {
		t.Errorf("of %d jobs %d reached the other pool and %d the worker that keeps %d slots", surplusJobs, got, len(leases), kept)
	}
}

// surplusJobs are several times as many as a call moves.
const surplusJobs = 300

// rivals are two pools with a worker each that serve the same queue by other weights. The first has as many jobs as it has slots,
// none of them read, and the other has room for all of them.
type rivals struct {
	y             *yard
	worker        string
	first, second store.Pool
	start         int64
}

func (y *yard) rivals(jobs int, lease time.Duration) *rivals {
	y.tb.Helper()
	r := &rivals{
		y: y, worker: "first", first: store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 3}}}, second: store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 2}, {Queue: "other", Weight: 1}}},
		start: ahead(),
	}
	r.at(0)
	_, err := y.store.Register(y.tb.Context(), r.worker, r.first, jobs, lease)
	check(y.tb, err)
	all := make([]admission.Job, jobs)
	for i := range all {
		all[i] = mail("acme", fmt.Sprint("job-", i))
	}
	y.admit(all...)
	_, err = y.store.Register(y.tb.Context(), "second", r.second, jobs, time.Hour)
	check(y.tb, err)
	return r
}

func (r *rivals) at(after time.Duration) {
	r.y.store.conn.Now = strconv.FormatInt(r.start+after.Microseconds(), 10)
}

// taken returns how many jobs the second worker gets.
func (r *rivals) taken() int {
	r.y.tb.Helper()
	leases, err := r.y.store.Read(r.y.tb.Context(), "second", r.second.ID(), surplusJobs, -1, false)
	check(r.y.tb, err)
	return len(leases)
}
