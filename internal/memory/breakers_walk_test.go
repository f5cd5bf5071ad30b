package memory_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// breakerWalk does things at random to the breakers of two downstreams, their jobs and probes among them.
type breakerWalk struct {
	*pair
	rt       *rapid.T
	sequence uint64
	jobs     int
	leases   taken
	period   map[string]uint64
}

func pick[T any](rt *rapid.T, what string, of ...T) T { return rapid.SampledFrom(of).Draw(rt, what) }

func (w *breakerWalk) step() {
	downstream := pick(w.rt, "downstream", "smtp", "db")
	call := pick(w.rt, "call", "c1", "c2", "c3")
	switch pick(w.rt, "step", "report", "report", "report", "force", "reset", "begin", "begin", "end", "admit", "work", "promote", "move", "move") {
	case "report":
		w.report()
	case "force":
		to, length := pick(w.rt, "to", breaker.Open, breaker.Closed), pick(w.rt, "for", 0, time.Second, 3*time.Second)
		w.force(downstream, to, length, store.Intervention{Reason: "test"})
	case "reset":
		w.reset(downstream, store.Intervention{Author: "ada"})
	case "begin":
		w.probe(true, downstream, call)
	case "end":
		w.probe(false, downstream, call)
	case "admit":
		w.jobs++
		j := mail(pick(w.rt, "tenant", "acme", "bolt"), fmt.Sprint("j", w.jobs))
		j.Downstream = downstream
		w.admit(j)
	case "work":
		w.work()
	case "promote":
		w.promote()
	case "move":
		w.move(pick(w.rt, "by", 50*time.Millisecond, 300*time.Millisecond, time.Second, 4*time.Second, 30*time.Second, 25*time.Hour, -10*time.Second))
	}
	for _, state := range w.breakers("smtp") {
		w.period[state.Downstream] = state.Period
	}
	w.transitions()
}

func (w *breakerWalk) report() {
	from := store.Reporter{Name: pick(w.rt, "from", "w1", "w2", "w3"), Guest: pick(w.rt, "guest", true, false)}
	var reports []store.Outcomes
	for range pick(w.rt, "reports", 1, 1, 2, 3) {
		w.sequence++
		n := func(what string, most uint64) uint64 { return rapid.Uint64Range(0, most).Draw(w.rt, what) }
		o := outcomes(pick(w.rt, "sequence", w.sequence, w.sequence, 0, 1), 0, n("ok", 4), n("failed", 4))
		o.Downstream = pick(w.rt, "called", "smtp", "smtp", "db")
		known := w.period[o.Downstream]
		o.Period = pick(w.rt, "period", known, known, known, 0, known+1)
		o.Slow = n("slow", 2)
		o.SlowEnds = min(o.Successes+o.Failures, n("slow ends", 1))
		o.Version, o.Origin = int64(n("version", 9)/9), breaker.Origin(n("origin", 11)/5)
		if pick(w.rt, "other rules", false, false, true) {
			o.Config.FailureRate, o.Config.SlowCallRate, o.Config.MaxProbes, o.Config.Window = 0.3, 0.4, 1, 3*time.Second
		}
		if tenant := n("tenant", 3); tenant > 0 {
			o.Tenants = []breaker.TenantCounts{{Tenant: uint16(tenant), Counts: o.Counts, Streak: o.Streak}}
		}
		reports = append(reports, o)
	}
	w.pair.report(from, reports...)
}

// work takes jobs, or ends those that were taken.
func (w *breakerWalk) work() {
	if len(w.leases[0]) == 0 {
		w.leases = w.take("w1", mailPool, 3)
		return
	}
	how := pick(w.rt, "outcome", store.Complete, store.Release)
	w.finish("w1", mailPool, w.leases, store.Finish{Outcome: how})
	w.leases = taken{}
}

func TestBreakersAreEqual(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := &breakerWalk{pair: newPair(t), rt: rt, period: map[string]uint64{}}
		w.register("w1", mailPool, 3)
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			w.step()
		}
	})
}
