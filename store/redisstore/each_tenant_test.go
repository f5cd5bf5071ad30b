package redisstore

import (
	"fmt"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestATierHasABoundOfItsOwn: in a queue that has settings and in one that has none, for the tenants of which it is told the tier, and for
// those whose own bound says nothing else. Who moves to a tier has its bound at once, with what waits already.
func TestATierHasABoundOfItsOwn(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	reject := func(jobs int) store.Overflow { return store.Overflow{Policy: store.Reject, MaxJobs: jobs} }
	update := func(version int64, tiers map[string]string) store.PolicyUpdate {
		return store.PolicyUpdate{
			Expected: version - 1, Version: version, Text: fmt.Appendf(nil, "%d", version), Window: time.Minute, Tiers: tiers,
			Queues: []store.QueueSettings{{
				Queue: "named", Classes: admission.DefaultClasses(), Horizon: time.Hour, Overflow: reject(3),
				Tiers: map[string]store.Overflow{"a.c": reject(5), "abc": reject(1), "free": {Policy: store.NoBound}},
			}, {Queue: "open", Classes: admission.DefaultClasses(), Horizon: time.Hour, Overflow: store.Overflow{Policy: store.NoBound}, Tiers: map[string]store.Overflow{"a.c": reject(4)}}},
			Overflows: []store.TenantOverflow{
				{Tenant: store.Every, Queue: store.Every, Overflow: reject(2), Tiers: map[string]store.Overflow{"a.c": reject(4)}},
				{Tenant: "own", Queue: "named", Overflow: reject(7)},
				{Tenant: store.Every, Tiers: map[string]store.Overflow{"all": reject(3)}},
			},
		}
	}
	tiers := map[string]string{"few": "all", "acme": "a.c", "bolt": "abc", "free": "free", "own": "a.c"}
	check(t, y.store.PutPolicy(t.Context(), update(1, tiers)))
	fill := func(version int64, tenant, queue, round string) (admitted int) {
		t.Helper()
		for n := range 10 {
			switch v := y.offerAt(version, in(queue, tenant, fmt.Sprint(queue, round, n))); {
			case v.Decision == admission.Admitted:
				admitted++
			case v.Reason != admission.ReasonOverflow:
				t.Errorf("%s in %s: %v", tenant, queue, v.Err())
			}
		}
		return admitted
	}
	for tenant, want := range map[string][2]int{"few": {3, 0}, "acme": {5, 4}, "bolt": {1, 2}, "free": {10, 2}, "own": {7, 4}, "other": {3, 2}} {
		if got := [2]int{fill(1, tenant, "named", "a"), fill(1, tenant, "any", "a")}; got != want {
			t.Errorf("of %s %v jobs were admitted, want %v", tenant, got, want)
		}
	}
	y.admitAt(1, in("open", "other", "1"), in("open", "other", "2"), in("open", "other", "3"))
	tiers["other"], tiers["free"] = "a.c", "abc"
	delete(tiers, "acme")
	check(t, y.store.PutPolicy(t.Context(), update(2, tiers)))
	for tenant, want := range map[string][2]int{"other": {2, 2}, "free": {0, 0}, "acme": {0, 0}} {
		if got := [2]int{fill(2, tenant, "named", "b"), fill(2, tenant, "any", "b")}; got != want {
			t.Errorf("of %s %v more jobs were admitted by its other tier, want %v", tenant, got, want)
		}
	}
	if got := fill(2, "other", "open", "b"); got != 1 {
		t.Errorf("%d jobs were admitted beside three that had come in without a bound, want 1", got)
	}
}

func in(queue, tenant, id string) admission.Job {
	j := admission.NewJob(tenant, queue, "t", nil)
	j.ID = id
	return j
}

// TestQueuesNobodyNamedHaveSettings: those of the queue Every, which is no queue that anybody sees.
func TestQueuesNobodyNamedHaveSettings(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{
		Version: 1, Text: []byte("{}"), Window: time.Minute,
		Queues: []store.QueueSettings{
			{Queue: store.Every, Classes: admission.DefaultClasses(), Horizon: time.Minute, MaxWait: time.Hour},
			{Queue: "named", Classes: admission.DefaultClasses(), Horizon: time.Hour, MaxWait: 2 * time.Hour},
			{Queue: "plain", Classes: admission.DefaultClasses(), Horizon: time.Hour},
		},
	}))
	for queue, want := range map[string]time.Duration{"mail": time.Hour, "named": 2 * time.Hour, "plain": 0} {
		check(t, y.offerAt(1, in(queue, "acme", queue)).Err())
		got := time.Duration(0)
		if job := y.look(queue).Record.Job; !job.Deadline.IsZero() {
			got = job.Deadline.Sub(y.look(queue).Record.Arrival)
		}
		if got != want {
			t.Errorf("a job in %s may wait %s, want %s", queue, got, want)
		}
	}
	queues, err := y.store.Queues(t.Context())
	check(t, err)
	if len(queues) != 3 || queues[0].Name != "mail" {
		t.Errorf("the queues are %+v", queues)
	}
	check(t, y.store.PutPolicy(t.Context(), store.PolicyUpdate{Expected: 1, Version: 2, Text: []byte("{}"), Window: time.Minute}))
	check(t, y.offerAt(2, in("mail", "acme", "later")).Err())
	if job := y.look("later").Record.Job; !job.Deadline.IsZero() {
		t.Errorf("without the settings it may wait until %s", job.Deadline)
	}
}
