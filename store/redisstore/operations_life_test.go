package redisstore

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore/internal/policies"
)

// redrive returns the candidate of a dead letter.
func (w *walk) redrive(key string) store.Candidate {
	dead := w.model.live[key]
	j := admission.NewJob(dead.Tenant, dead.Queue, "t", dead.payload)
	j.ID, j.Cost, j.Downstream = dead.ID, dead.Cost, dead.Downstream
	j.Priority = admission.DefaultClasses()[dead.Class].Name
	if dead.Dated && !dead.timed {
		j.Deadline = time.UnixMicro(dead.Score)
	}
	return store.Candidate{Job: &j, Class: dead.Class, Limits: &w.limits[slices.Index(walkTenants, dead.Tenant)%len(w.limits)], Redrive: dead.Seq}
}

func (w *walk) cancel() {
	keys := slices.Sorted(maps.Keys(w.model.live))
	if len(keys) == 0 || w.number("any", 0, 9) == 0 {
		keys = append(keys, "ann:j0", "bob:nobody")
	}
	key := pick(w, "cancelled", keys)
	want, dispatched := w.model.cancel(w.now, key)
	k, err := store.DecodeKey(key)
	check(w.tb, err)
	running, _, err := w.store.Cancel(w.ctx, k, store.Intervention{Reason: "test"})
	got := "cancelled"
	switch {
	case errors.Is(err, admission.ErrUnknownJob):
		got = "unknown"
	case errors.Is(err, admission.ErrEnded):
		got = "ended"
		if want == "dead" && strings.Contains(err.Error(), "dead letter") {
			got = "dead"
		}
	case err != nil:
		check(w.tb, err)
	case running:
		got = "cancelling"
	}
	if got != want {
		w.rt.Fatalf("cancel %s: script says %s, model %s", key, got, want)
	}
	w.resend = func() { _, _, _ = w.store.Cancel(w.ctx, k, store.Intervention{Reason: "test"}) }
	w.service.dispatched(dispatched)
}

func (w *walk) purge() {
	if len(w.model.dead) == 0 {
		return
	}
	w.model.begin(w.now)
	key := pick(w, "purged", slices.Sorted(maps.Keys(w.model.dead)))
	w.model.endLetter(key, "purged")
	k, err := store.DecodeKey(key)
	check(w.tb, err)
	send := func() []bool {
		purged, err := w.store.Purge(w.ctx, []admission.Key{k, {Tenant: "ann", ID: "nobody"}}, store.Intervention{})
		check(w.tb, err)
		return purged
	}
	if purged := send(); !purged[0] || purged[1] {
		w.rt.Fatalf("purge %s and an unknown one: %v", key, purged)
	}
	w.resend = func() { send() }
}

func (w *walk) suspend() {
	tenant, queue := pick(w, "tenant", walkTenants), pick(w, "queue", walkQueues)
	name := pick(w, "suspended", []store.GateName{store.QueueGate(queue), store.TenantGate(tenant), store.TenantQueueGate(tenant, queue)})
	w.model.begin(w.now)
	delete(w.model.timers, "s"+string(name))
	if w.number("resume", 0, 2) > 0 {
		delete(w.model.suspended, string(name))
		w.resend = func() {
			_, err := w.store.Resume(w.ctx, name, store.Intervention{})
			check(w.tb, err)
		}
	} else {
		duration := time.Duration(w.number("for", 0, 2)) * time.Second
		w.model.suspended[string(name)] = 0
		if duration > 0 {
			w.model.suspended[string(name)] = w.now + duration.Microseconds()
			w.model.timers["s"+string(name)] = w.now + duration.Microseconds()
		}
		w.resend = func() { check(w.tb, w.store.Suspend(w.ctx, name, duration, store.Intervention{Reason: "test"})) }
	}
	w.resend()
}

func (w *walk) drawOverflow() store.Overflow {
	policy := pick(w, "overflow", []store.OverflowPolicy{"", "", store.Reject, store.DropOldest, store.DropOldest, store.Spillover, store.Spillover})
	if policy == "" {
		return store.Overflow{}
	}
	return store.Overflow{
		Policy: policy, MaxJobs: w.number("max jobs", 0, 8), MaxBytes: pick(w, "max bytes", []int64{0, 0, 200, 1000, 20_000}),
		MaxSpilled: w.number("max spilled", 1, 20), LowWater: pick(w, "low water", []int{0, 50, 100}),
	}
}

// drawTotals draws bounds of tenants over all their queues, and of each tenant in each queue that has none.
func (w *walk) drawTotals(u *store.PolicyUpdate) {
	for _, o := range []store.TenantOverflow{{Tenant: "ann"}, {Tenant: store.Every}, {Tenant: store.Every, Queue: store.Every}} {
		if w.number("total", 0, 2) > 0 {
			continue
		}
		o.Overflow = w.drawOverflow()
		if o.Queue == "" && o.Overflow.Policy != "" {
			o.Overflow = store.Overflow{Policy: store.Reject, MaxJobs: o.Overflow.MaxJobs, MaxBytes: o.Overflow.MaxBytes}
		}
		u.Overflows = append(u.Overflows, o)
		w.model.overflows[policies.OverflowName(o)] = o.Overflow
	}
}

// start marks handlers of suspects as begun.
func (w *walk) start() {
	for _, worker := range slices.Sorted(maps.Keys(w.held)) {
		for _, f := range w.held[worker] {
			j := w.model.live[f.Key.String()]
			if w.number("begin", 0, 2) == 2 || j == nil || !j.suspect || !w.model.holds(worker, f.Key.String()) {
				continue
			}
			pool, orphan := strings.CutPrefix(worker, "orphan-")
			if !orphan {
				pool = w.model.workers[worker].pool
			}
			err := w.store.Started(w.ctx, pool, worker, f.Token, f.Key)
			var want error
			if w.withTokens(pool, []store.Finish{f})[0].Key != f.Key {
				want = admission.ErrLeaseLost
			} else if w.model.beside(worker, j) {
				want = store.ErrBeside
			}
			if !errors.Is(err, want) {
				w.rt.Fatalf("start of %s by %s: %v, want %v", f.Key, worker, err, want)
			}
			if err == nil {
				w.model.started[f.Key.String()] = worker
			}
		}
	}
}
