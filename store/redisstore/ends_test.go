package redisstore

import (
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
)

// TestJobsOfTwoQueuesEndInOneCall, which count against the caps of their own queues.
func TestJobsOfTwoQueuesEndInOneCall(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx := t.Context()
	pool := store.Pool{Queues: []store.QueueWeight{{Queue: "hook", Weight: 1}, {Queue: "mail", Weight: 1}}}
	_, err := y.store.Register(ctx, "w1", pool, 10, time.Minute)
	check(t, err)
	hook := mail("acme", "h")
	hook.Queue = "hook"
	y.admit(hook, mail("acme", "m"))
	_, _, err = y.store.SetGate(ctx, store.Gate{Name: store.QueueGate("mail"), Limit: 1, Then: store.Unlimited}) // It counts the job that is there already.
	check(t, err)
	leases, err := y.store.Read(ctx, "w1", pool.ID(), 2, -1, false)
	check(t, err)
	if len(leases) != 2 {
		t.Fatalf("%d leases", len(leases))
	}
	ends := make([]store.Finish, 2)
	for _, l := range leases {
		at := 0
		if l.Job.Queue == "mail" {
			at = 1
		}
		ends[at] = store.Finish{Token: l.Token, Key: admission.Key{Tenant: "acme", ID: l.Job.ID}, Outcome: store.Complete, Queue: l.Job.Queue, Plain: true}
	}
	got, _, err := y.store.Finish(ctx, pool.ID(), "w1", ends)
	check(t, err)
	if got[0] != store.EndedDone || got[1] != store.EndedDone {
		t.Errorf("%v", got)
	}
	g, _, err := y.store.gateState(ctx, store.QueueGate("mail"))
	check(t, err)
	if g.Held != 0 {
		t.Errorf("%d of a cap of 1 are held by nobody", g.Held)
	}
}
