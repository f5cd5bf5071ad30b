package redisstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// TestATenantsBacklogIsClearedInPortions: all that waits of one tenant in one queue goes, 64 a call, counted and conserved, and nothing
// else. The audit has one entry of it.
func TestATenantsBacklogIsClearedInPortions(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{
		Version: 1, Text: []byte("{}"), Window: time.Minute,
		Overflows: []store.TenantOverflow{{Tenant: "evil", Queue: "mail", Overflow: store.Overflow{Policy: store.Spillover, MaxJobs: 150, MaxSpilled: 50, LowWater: 50}}},
	}))
	for n := range 200 {
		j := mail("evil", fmt.Sprint("j", n))
		j.Downstream = fmt.Sprint("api-", n%3)
		if n%2 == 0 {
			j.Deadline = time.Now().Add(time.Hour)
		}
		check(t, y.offerAt(1, j).Err())
	}
	later, elsewhere := mail("evil", "later"), mail("evil", "elsewhere")
	later.Delay, elsewhere.Queue = time.Hour, "hook"
	y.admitAt(1, elsewhere, mail("acme", "mine"))
	backlogs, err := y.store.Backlogs(t.Context(), "evil")
	check(t, err)
	if want := []store.Backlog{{Queue: "mail", Waiting: 150, Spilled: 50}, {Queue: "hook", Waiting: 1}}; !slices.Equal(backlogs, want) {
		t.Errorf("backlogs %+v, want %+v", backlogs, want)
	}
	by, cancelled, calls := store.Intervention{Author: "op", Reason: "test", Act: "one"}, 0, 0
	for more := true; more; calls++ {
		var n int
		n, more, err = y.store.ClearTenant(t.Context(), "evil", "mail", by)
		check(t, err)
		if cancelled += n; n > fairqueue.Moves {
			t.Errorf("a call cancelled %d jobs", n)
		}
		census, err := y.store.Census(t.Context())
		check(t, err)
		if !census.Conserved() || census.Left["cancelled"] != int64(cancelled) {
			t.Errorf("after %d: %+v", cancelled, census)
		}
	}
	if cancelled != 200 || calls > 200/fairqueue.Moves+2 {
		t.Errorf("%d were cancelled in %d calls", cancelled, calls)
	}
	if q, err := y.store.Queue(t.Context(), "mail"); err != nil || q.Waiting() != 1 {
		t.Errorf("in the queue %d wait, want that of another tenant: %v", q.Waiting(), err)
	}
	if waits := y.client.HLen(t.Context(), y.store.conn.Partition.Waits()).Val(); waits != 0 {
		t.Errorf("jobs wait for %d downstreams", waits)
	}
	y.admitAt(1, later)
	if n, more, err := y.store.ClearTenant(t.Context(), "evil", "mail", by); n != 0 || more || err != nil {
		t.Errorf("of what waits for a time %d, %t, %v", n, more, err)
	}
	backlogs, err = y.store.Backlogs(t.Context(), "evil")
	check(t, err)
	if want := []store.Backlog{{Queue: "hook", Waiting: 1}}; !slices.Equal(backlogs, want) {
		t.Errorf("left %+v, want %+v", backlogs, want)
	}
	if sight := y.look("mine"); sight.Place != admission.PlaceWaiting {
		t.Errorf("another tenant's is %s", sight.Place)
	}
	page, err := y.store.Audit(t.Context(), store.AuditQuery{Action: store.AuditClear})
	check(t, err)
	entries := 0
	for _, entry := range page.Entries {
		if entry.Action == store.AuditClear {
			entries++
			if entry.Jobs != 200 || entry.Name != string(store.TenantQueueGate("evil", "mail")) {
				t.Errorf("%+v", entry)
			}
		}
	}
	if entries != 1 {
		t.Errorf("%d entries in the audit", entries)
	}
}

// TestWhatIsKeptAsideIsClearedAtOnce: jobs that had no room do not come in where others were cleared.
func TestWhatIsKeptAsideIsClearedAtOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{
		Version: 1, Text: []byte("{}"), Window: time.Minute,
		Overflows: []store.TenantOverflow{{Tenant: "evil", Queue: "mail", Overflow: store.Overflow{Policy: store.Spillover, MaxJobs: 1, MaxSpilled: 5}}},
	}))
	for n := range 4 {
		check(t, y.offerAt(1, mail("evil", fmt.Sprint("j", n))).Err())
	}
	cancelled, more, err := y.store.ClearTenant(t.Context(), "evil", "mail", store.Intervention{Author: "op"})
	if err != nil || more || cancelled != 4 {
		t.Errorf("%d of 4 are cancelled, more %t, %v", cancelled, more, err)
	}
	backlogs, err := y.store.Backlogs(t.Context(), "evil")
	if err != nil || len(backlogs) != 0 {
		t.Errorf("left are %+v, %v", backlogs, err)
	}
}
