package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestAWorkerHearsOfAsManyCancelledJobsAsItMayHold, in one heartbeat: more words than Lua hands over at once.
func TestAWorkerHearsOfAsManyCancelledJobsAsItMayHold(t *testing.T) {
	t.Parallel()
	const jobs = 4000
	y := newYard(t)
	y.register(1)
	y.admit(mail("acme", "job"))
	leases, err := y.store.Read(t.Context(), "w1", yardPool.ID(), 1, -1, false)
	check(t, err)
	running, _, err := y.store.Cancel(t.Context(), admission.Key{Tenant: "acme", ID: "job"}, store.Intervention{Author: "ada", Reason: "too late"})
	if err != nil || !running || len(leases) != 1 {
		t.Fatal(running, err)
	}
	marks := y.store.Keys().Base() + "cancelled"
	mark := y.client.HVals(t.Context(), marks).Val()[0]
	others := make(map[string]any, jobs)
	for i := range jobs - 1 { // A call for each would take half a minute.
		others[fmt.Sprint("acme:other-", i)] = mark
	}
	check(t, y.client.HSet(t.Context(), marks, others).Err())
	beat, err := y.store.Heartbeat(t.Context(), "w1", time.Minute, "")
	if err != nil || len(beat.Cancelled) != jobs {
		t.Errorf("it hears of %d, %v", len(beat.Cancelled), err)
	}
}
