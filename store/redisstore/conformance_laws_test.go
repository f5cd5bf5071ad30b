package redisstore_test

import (
	"slices"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/fairqueue"
	"github.com/headgate/headgate/store"
)

// assertShed asserts that a level of pressure lets in nobody whom the policy has refused from that level on, and refuses nobody whom it keeps to a
// higher one, or to none (law of the order of shedding: drawShedding never has a higher class or tier go first).
func (w *walk) assertShed(loads []store.QueueLoad, jobs []store.Candidate, verdicts []admission.Verdict) {
	for i, v := range verdicts {
		of := slices.IndexFunc(loads, func(l store.QueueLoad) bool { return l.Queue == jobs[i].Job.Queue })
		level, from := max(loads[of].Level, admission.PressureNone), jobs[i].ShedFrom
		switch {
		case v.Reason == admission.ReasonShed && (from == 0 || level < jobs[i].ShedOverFrom):
			w.rt.Fatalf("job %d is shed at %s, and is to be from %s on, or from %s if its tenant has its share", i, level, from, jobs[i].ShedOverFrom)
		case v.Decision == admission.Admitted && from > 0 && level >= from:
			w.rt.Fatalf("job %d is let in at %s, and is to be shed from %s on", i, level, from)
		}
	}
}

// assertMoved asserts that each limit that moves by itself is between the bounds of the policy, and what is in force of it not above them.
func (w *walk) assertMoved(op string) {
	if w.before == nil {
		return
	}
	all, err := w.memory.Adaptations(w.ctx)
	check(w.tb, err)
	for i := range all {
		a := &all[i]
		of := slices.IndexFunc(w.before.Caps, func(c store.Cap) bool { return c.Gate == a.Gate })
		if of < 0 || w.before.Caps[of].Loop == "" {
			w.rt.Fatalf("after %s %s moves, which the policy does not let it", op, a.Gate)
		}
		if c := w.before.Caps[of]; a.Limit < c.Least || a.Limit > c.Most || a.InForce() > a.Limit || a.Push == 0 && a.InForce() != a.Limit {
			w.rt.Fatalf("after %s %s is at %d, of which %d are in force, and may be from %d to %d", op, a.Gate, a.Limit, a.InForce(), c.Least, c.Most)
		}
	}
}

// assertWakeUp asserts law W: no pool has room while a job could run in it, and none has more that nobody has read than it has slots
// for, unless a timer that stands as near as a script puts it continues the work.
func (w *walk) assertWakeUp(op string) {
	room := w.inside.Room()
	if w.inside.Leapt() || w.now != w.inside.Last() {
		return // promote has yet to bring timers near that an old clock put far ahead, or no script has seen this one.
	}
	continues := func(timer string) bool {
		at, ok := w.inside.Timer(timer)
		return ok && at <= w.now+w.back+fairqueue.ContinueAfter
	}
	for name := range w.inside.Timers() {
		gone := room.Gates[name[1:]] == nil && name[1] != 'h' // Of those that are gone nobody keeps a list to look at again.
		if name[0] == 'k' && (continues(name) || gone) {
			return
		}
	}
	for _, p := range room.Pools {
		if continues("f" + p.ID) {
			continue
		}
		unread := slices.ContainsFunc(p.Ready, func(e *fairqueue.Entry) bool { return e.Worker == "" })
		if len(p.Ready) > p.Slots && unread {
			w.rt.Fatalf("after %s: pool %s has %d slots, and jobs that nobody has read\n%s", op, p.ID, p.Slots, room.Dump())
		}
		if len(p.Ready) >= p.Slots {
			continue
		}
		if key, ok := room.CouldRun(p.Queues, w.now); ok {
			w.rt.Fatalf("law W after %s: pool %s has room for %s\n%s", op, p.ID, key, room.Dump())
		}
	}
}

// assertConserved asserts law L4 by what Redis holds.
func (w *walk) assertConserved() {
	census, err := w.store.Census(w.ctx)
	check(w.tb, err)
	if !census.Conserved() {
		w.rt.Fatalf("law L4: %+v", census)
	}
}
