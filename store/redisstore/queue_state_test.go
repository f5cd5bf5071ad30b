package redisstore

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

func TestQueueStateCountsEachPlace(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx := t.Context()
	y.kill("d1", "d2")
	later, other := mail("acme", "later"), mail("acme", "other")
	later.Delay = time.Hour
	other.Queue = "report"
	y.admit(mail("acme", "a"), mail("acme", "b"))
	y.read(1)
	y.admit(mail("acme", "c"), mail("bakery", "e"), mail("bakery", "f"), later, other)
	_, err := y.store.Pause(ctx, store.QueueGate("mail"), time.Hour, store.Intervention{Reason: "maintenance"})
	check(t, err)
	check(t, y.store.Suspend(ctx, store.QueueGate("mail"), 0, store.Intervention{Reason: "full"}))

	q, err := y.store.Queue(ctx, "mail")
	check(t, err)
	if q.Waiting() != 3 || q.Classes[1].Waiting != 3 || q.Ready != 1 || q.Running != 1 || q.Later != 1 || q.Dead != 2 || q.LaterAtLeast || !q.Paused() {
		t.Errorf("%+v", q)
	}
	if until := time.Until(q.Gate.Until); q.Gate.Reason != "maintenance" || until < 59*time.Minute || q.Gate.Held != 2 || q.Gate.Then != store.Unlimited {
		t.Errorf("gate %+v", q.Gate)
	}
	if q.Suspended == nil || q.Suspended.Reason != "full" || !q.Suspended.Until.IsZero() || q.Workers != 1 || q.Slots != 2 || len(q.Pools) != 1 {
		t.Errorf("%+v, suspended %+v", q, q.Suspended)
	}
	queues, err := y.store.Queues(ctx)
	if err != nil || len(queues) != 2 || queues[1].Name != "report" || queues[1].Waiting() != 1 || queues[1].Gate != nil {
		t.Errorf("%+v, %v", queues, err)
	}
	workers, err := y.store.Workers(ctx)
	if err != nil || len(workers) != 1 || workers[0].Name != "w1" || workers[0].Held != 1 || workers[0].Slots != 2 || time.Until(workers[0].LeaseEnd) < 30*time.Second {
		t.Errorf("%+v, %v", workers, err)
	}
	top, _, err := y.store.WaitingTenants(ctx, "mail", 1)
	if err != nil || len(top) != 1 || top[0] != (store.TenantWaiting{Tenant: "bakery", Waiting: 2}) {
		t.Errorf("%v, %v", top, err)
	}
	left, err := y.store.Remaining(ctx, "mail")
	if err != nil || left != (store.Remaining{Waiting: 3, Ready: 1, Running: 1, Later: 1}) {
		t.Errorf("%+v, %v", left, err)
	}
	for name, want := range map[string]error{"none": store.ErrUnknownQueue, "a:b": admission.ErrInvalid} {
		if _, err := y.store.Queue(ctx, name); !errors.Is(err, want) {
			t.Errorf("queue %s: %v", name, err)
		}
	}
}

func TestQueuePeekTellsTheOrder(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	held := mail("clinic", "h")
	held.Downstream = "smtp"
	_, _, err := y.store.SetGate(t.Context(), store.Gate{Name: store.TenantGate("clinic"), Then: store.Unlimited})
	check(t, err)
	y.admit(mail("acme", "a1"), mail("acme", "a2"), mail("bakery", "b1"), held)
	y.register(1) // a1 goes, so that bakery is before acme
	_, classes, err := y.store.Peek(t.Context(), "mail", 10)
	check(t, err)
	c := classes[1]
	if len(c.Next) != 3 || c.Waiting != 3 || c.Next[0].Tenant != "bakery" || c.Next[0].Next.Key.ID != "b1" || c.Next[2].Next.Key.ID != "a2" ||
		c.Next[0].Next.Record.Job.Priority != admission.Medium || c.Next[0].Behind != "" || c.Next[1].Behind != "t:clinic" {
		t.Errorf("%+v", c)
	}
	y.register(3) // All can go but the clinic, which parks.
	if _, classes, err = y.store.Peek(t.Context(), "mail", 10); err != nil || classes[1].Held != 1 || len(classes[1].Next) != 0 {
		t.Errorf("%+v, %v", classes[1], err)
	}
	if _, _, err := y.store.Peek(t.Context(), "none", 1); !errors.Is(err, store.ErrUnknownQueue) {
		t.Errorf("%v", err)
	}
}

// TestQueuePeekTellsTheNextJobBesideALaneThatIsHeld: of a tenant whose jobs for one downstream wait behind its gate, the next job is that of its other lane.
func TestQueuePeekTellsTheNextJobBesideALaneThatIsHeld(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	held := mail("acme", "held")
	held.Downstream = "smtp"
	_, _, err := y.store.SetGate(t.Context(), store.Gate{Name: store.DownstreamGate("smtp"), Then: store.Unlimited})
	check(t, err)
	y.admit(held) // before the others, by the clock too
	y.admit(mail("acme", "a1"), mail("acme", "a2"))
	y.register(1) // The held one comes to the head and parks, and a1 goes.
	_, classes, err := y.store.Peek(t.Context(), "mail", 10)
	check(t, err)
	if c := classes[1]; len(c.Next) != 1 || c.Next[0].Next.Key.ID != "a2" {
		t.Errorf("%+v, want a2", c.Next)
	}
}

// TestQueueRemainingIsTrueAtZero: the count at one instant sees each place.
func TestQueueRemainingIsTrueAtZero(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	want := func(what string, want store.Remaining) {
		t.Helper()
		if left, err := y.store.RemainingAtOnce(t.Context(), "mail"); err != nil || left != want {
			t.Errorf("%s: %+v, %v", what, left, err)
		}
	}
	want("nothing", store.Remaining{})
	later := mail("acme", "later")
	later.Delay = time.Hour
	y.admit(mail("acme", "a"), later)
	want("waiting", store.Remaining{Waiting: 1})
	y.register(1)
	want("ready", store.Remaining{Ready: 1})
	y.read(1)
	want("running", store.Remaining{Ready: 1})
	y.finish("a", store.Finish{Outcome: store.Kill, Reason: "discarded"})
	want("later", store.Remaining{Later: 1})
	_, _, err := y.store.Cancel(t.Context(), admission.Key{Tenant: "acme", ID: "later"}, store.Intervention{})
	check(t, err)
	want("a dead letter only", store.Remaining{})
}

// TestWhatRemainsIsSeenWhileItMoves: a job that leaves the timers while the others of them are read, some at a time, is seen in its queue.
func TestWhatRemainsIsSeenWhileItMoves(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	client := redistest.Shared(t).Client(t)
	other, err := openOnly(t.Context(), client, y.store.config)
	check(t, err)
	last := mail("acme", "last")
	last.Delay = 2 * time.Hour
	y.admit(last)
	for n := range store.ListPortion + 1 {
		j := mail("acme", fmt.Sprint("n", n))
		j.Queue, j.Delay = "report", time.Hour
		y.admit(j)
	}
	pages := 0
	client.AddHook(between{func() {
		if pages++; pages == 2 { // after the pools and the first page of the timers
			y.store.conn.Now = strconv.FormatInt(time.Now().Add(3*time.Hour).UnixMicro(), 10)
			y.promoteAll()
		}
	}})
	if left, err := other.RemainingAtOnce(t.Context(), "mail"); err != nil || left != (store.Remaining{Waiting: 1}) {
		t.Errorf("%+v, %v", left, err)
	}
}

// TestQueuePauseKeepsItsCap: a pause stands in for a cap and gives way to it again.
func TestQueuePauseKeepsItsCap(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ctx, gate := t.Context(), store.QueueGate("mail")
	limit := func() int {
		g, found, err := y.store.gateState(ctx, gate)
		check(t, err)
		if !found {
			return store.Unlimited
		}
		return g.Limit
	}
	pause := func() {
		_, err := y.store.Pause(ctx, gate, 0, store.Intervention{Reason: "twice"})
		check(t, err)
	}
	for _, was := range []int{3, store.Unlimited} {
		_, _, err := y.store.SetGate(ctx, store.Gate{Name: gate, Limit: was, Then: store.Unlimited})
		check(t, err)
		pause()
		pause()
		if limit() != 0 {
			t.Errorf("paused: limit %d", limit())
		}
		if ended, err := y.store.Unpause(ctx, gate, store.Intervention{}); err != nil || !ended || limit() != was {
			t.Errorf("resumed: limit %d, want %d; %t, %v", limit(), was, ended, err)
		}
		if again, err := y.store.Unpause(ctx, gate, store.Intervention{}); err != nil || again {
			t.Errorf("resumed twice: %t, %v", again, err)
		}
	}
}

func TestReasonsOfPausesAreBounded(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.admit(mail("acme", "a"))
	long := strings.Repeat("x", 2*store.MaxReason)
	_, paused := y.store.Pause(t.Context(), store.QueueGate("mail"), 0, store.Intervention{Reason: long})
	for _, err := range []error{paused, y.store.Suspend(t.Context(), store.QueueGate("mail"), 0, store.Intervention{Reason: long})} {
		if !errors.Is(err, admission.ErrInvalid) {
			t.Errorf("%v", err)
		}
	}
	q, err := y.store.Queue(t.Context(), "mail")
	check(t, err)
	if q.Gate != nil || q.Suspended != nil {
		t.Errorf("%+v, %+v", q.Gate, q.Suspended)
	}
}
