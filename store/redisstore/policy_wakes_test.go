package redisstore

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// TestAnEditWakesBehindWhatItWrites: after a call that ran out of moves an edit of the policy goes on with what waits behind the gates that
// it writes, and leaves the rest to the timers of that call, in the scripts as in the model.
func TestAnEditWakesBehindWhatItWrites(t *testing.T) {
	t.Parallel()
	const parked = 6 // waiters that the moves did not suffice for
	queue := func(limit int) store.Cap { return store.Cap{Gate: store.QueueGate("mail"), Limit: limit} }
	every := func(limit int) store.Cap { return store.Cap{Gate: store.DownstreamGate(store.Every), Limit: limit} }
	other := store.Cap{Gate: store.DownstreamGate("db"), Limit: 200}
	rate := store.Cap{Gate: store.DownstreamRateGate("api"), Rate: admission.PerSecond(200, 200)}
	for name, row := range map[string]struct {
		before, after []store.Cap
		woken, ran    int
	}{
		"no caps":            {},
		"the same cap":       {before: []store.Cap{queue(200)}, after: []store.Cap{queue(200)}},
		"the same rate":      {before: []store.Cap{rate}, after: []store.Cap{rate}},
		"another gate's cap": {before: []store.Cap{queue(200)}, after: []store.Cap{queue(200), other}},
		"another cap":        {before: []store.Cap{queue(200)}, after: []store.Cap{queue(201)}, ran: fairqueue.Moves},
		"a new cap":          {after: []store.Cap{queue(200)}, ran: fairqueue.Moves},
		"no cap any more":    {before: []store.Cap{queue(200)}, ran: fairqueue.Moves},
		"a new default":      {after: []store.Cap{every(200)}, woken: parked, ran: fairqueue.Moves - parked},
		"another default":    {before: []store.Cap{every(200)}, after: []store.Cap{every(201)}, woken: parked, ran: fairqueue.Moves - parked},
		"no default anymore": {before: []store.Cap{every(200)}, woken: parked, ran: fairqueue.Moves - parked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &walk{
				tb: t, ctx: t.Context(), store: newYard(t).store, model: newModel(), now: ahead(), scopes: map[admission.Scope]bool{admission.Global: true},
			}
			w.store.conn.Now = strconv.FormatInt(w.now, 10)
			w.model.register(w.now, "w1", yardPool, 200, 60_000_000)
			_, err := w.store.Register(w.ctx, "w1", yardPool, 200, time.Minute)
			check(t, err)
			w.putCaps(row.before)
			w.admitToAPI("one")
			w.setAPI(0)
			for i := range fairqueue.Moves + parked {
				w.admitToAPI(fmt.Sprint("tenant-", i))
			}
			w.setAPI(store.Unlimited)
			pool := w.model.room.Pools[yardPool.ID()]
			if waiting := w.parkedAtAPI(); len(pool.Ready) != 1 || waiting != parked {
				t.Fatalf("before the edit %d run and %d are parked, want 1 and %d", len(pool.Ready), waiting, parked)
			}
			w.putCaps(row.after)
			if woken, ran := parked-w.parkedAtAPI(), len(pool.Ready)-1; woken != row.woken || ran != row.ran {
				t.Errorf("the edit woke %d and dispatched %d, want %d and %d", woken, ran, row.woken, row.ran)
			}
		})
	}
}

// putCaps, admitToAPI and setAPI do the same to both, and compare them.
func (w *walk) putCaps(caps []store.Cap) {
	w.tb.Helper()
	check(w.tb, w.store.PutPolicy(w.ctx, store.PolicyUpdate{Expected: w.version, Version: w.version + 1, Text: []byte("{}"), Window: 30 * time.Second, Caps: caps}))
	w.version++
	w.model.putPolicy(w.now, caps)
	w.equal()
}

func (w *walk) admitToAPI(tenant string) {
	w.tb.Helper()
	job := mail(tenant, "job")
	job.Downstream = "api"
	jobs := []store.Candidate{{Job: &job, Class: 1, Limits: &[admission.Levels]admission.Limit{{Disabled: true}, {Disabled: true}, {Disabled: true}, {Disabled: true}}}}
	w.model.admit(w.now, jobs)
	verdicts, err := w.store.Admit(w.ctx, w.version, jobs)
	check(w.tb, err)
	check(w.tb, verdicts[0].Err())
	w.equal()
}

func (w *walk) setAPI(limit int) {
	w.tb.Helper()
	g := store.Gate{Name: store.DownstreamGate("api"), Limit: limit, By: store.Intervention{Reason: w.tb.Name()}}
	w.model.setGate(w.now, g)
	_, _, err := w.store.SetGate(w.ctx, g)
	check(w.tb, err)
	w.equal()
}

func (w *walk) equal() {
	w.tb.Helper()
	if diff := w.differences(); diff != nil {
		w.tb.Fatalf("the scripts and the model differ:\n%s", strings.Join(diff, "\n"))
	}
}

// parkedAtAPI counts those who wait behind the gate of the downstream api.
func (w *walk) parkedAtAPI() (n int) {
	for _, line := range w.model.room.Lines() {
		if strings.HasPrefix(line, "parked d:api ") {
			n++
		}
	}
	return n
}
