package redisstore_test

import (
	"slices"

	"github.com/headgate/headgate/admission"
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
