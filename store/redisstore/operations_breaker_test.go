package redisstore_test

import (
	"fmt"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// walkCalls name calls of those who are no workers.
var walkCalls = []string{"c1", "c2"}

// walkRules are two configs of workers, with short times: the second is rolled out now and then.
func walkRules() [2]breaker.Config {
	first := breaker.Config{
		Window: 2 * time.Second, Buckets: 4, MinCalls: 3, FailureThreshold: 4, SuccessThreshold: 2, MaxProbes: 2,
		ProbeTimeout: time.Second, OpenBase: 500 * time.Millisecond, OpenMax: 8 * time.Second, ResetAfter: 20 * time.Second,
	}
	second := first
	second.Window, second.FailureRate, second.SlowCallRate, second.MaxProbes = 3*time.Second, 0.3, 0.4, 1
	var all [2]breaker.Config
	all[0], _ = first.Complete()
	all[1], _ = second.Complete()
	return all
}

// report draws what a worker counted of one or both downstreams: calls of the present period or another, probes among
// them when it is half-open.
func (w *walk) report() {
	from := store.Reporter{Name: fmt.Sprintf("w%d", w.number("reporter", 0, 19)%5), Guest: w.number("guest", 0, 3) == 0}
	var reports []store.Outcomes
	for range w.number("reports", 1, 3) {
		downstream := pick(w, "called", []string{"api", "db"})
		w.sequence++
		o := store.Outcomes{Downstream: downstream, Config: walkRules()[w.number("rules", 0, 7)/7]}
		o.Sequence, o.Streak = pick(w, "sequence", []uint64{w.sequence, w.sequence, w.sequence, 0}), uint64(w.number("streak", 0, 3))
		if b, err := w.memory.Breaker(w.ctx, downstream); err == nil && b.Period > 0 {
			o.Period = pick(w, "period", []uint64{b.Period, b.Period, b.Period, 0, b.Period - 1})
		}
		kind := pick(w, "kind", []string{"bad", "good", "mixed"})
		if kind != "bad" {
			o.Successes = uint64(w.number("ok", 0, 4))
		}
		if kind != "good" {
			o.Failures = uint64(w.number("failed", 0, 4))
			o.Slow = uint64(w.number("slow", 0, 2))
			o.SlowEnds = min(o.Successes+o.Failures, uint64(w.number("slow ends", 0, 1)))
		}
		o.Tenants = w.tenantsOf(&o)
		if o.Ran = time.Duration(o.Successes+o.Failures) * time.Millisecond; o.Failures > 0 && w.number("told", 0, 2) == 2 {
			o.Errors = []store.CallError{{Text: fmt.Sprintf("dial %d: refused\tby peer", w.sequence), Count: int64(o.Failures)}}
		}
		o.Refused = uint64(max(0, w.number("refused", -3, 3)))
		if w.number("pushes", 0, 3) == 3 {
			o.Push = admission.PressureLevel(w.number("push", 1, 5))
			o.PushFor = time.Duration(w.number("push for", 0, 8)) * time.Second
		}
		o.Version, o.Origin = int64(w.number("version", 0, 9)/9), breaker.Origin(w.number("origin", 0, 11)/5)
		reports = append(reports, o)
	}
	w.resend = func() {
		w.replied(fmt.Sprintf("reports of %s: %+v", from.Name, reports), func(s store.Partition) redistest.Reply {
			return redistest.Replied(s.ReportOutcomes(w.ctx, from, reports))
		})
	}
	w.resend()
}

// tenantsOf draws whose calls a report's are: of no tenant, of one, or of two.
func (w *walk) tenantsOf(o *store.Outcomes) []breaker.TenantCounts {
	first := breaker.TenantCounts{Tenant: uint16(w.number("tenant", 0, 3)), Counts: o.Counts, Streak: o.Streak}
	if first.Tenant == 0 {
		return nil
	}
	if o.Successes == 0 || o.Failures == 0 || w.number("tenants", 1, 2) == 1 {
		return []breaker.TenantCounts{first}
	}
	second := breaker.TenantCounts{Tenant: first.Tenant + 1, Counts: breaker.Counts{Failures: o.Failures}, Streak: o.Streak}
	first.Failures, first.Streak = 0, 0
	return []breaker.TenantCounts{first, second}
}

// force lets an operator choose.
func (w *walk) force() {
	downstream, to := pick(w, "forced", []string{"api", "db"}), pick(w, "to", []string{"reset", "open", "closed"})
	length := time.Duration(w.number("for", 0, 5)) * time.Second
	by := w.by()
	w.replied(to+" of "+downstream, func(s store.Partition) redistest.Reply {
		switch to {
		case "open":
			return redistest.Replied(s.ForceBreaker(w.ctx, downstream, breaker.Open, length, by))
		case "closed":
			return redistest.Replied(s.ForceBreaker(w.ctx, downstream, breaker.Closed, length, by))
		}
		return redistest.Replied(s.ResetBreaker(w.ctx, downstream, by))
	})
}

// probe begins or ends a call of somebody who is no worker.
func (w *walk) probe() {
	downstream, call, ends := pick(w, "probed", []string{"api", "db"}), pick(w, "call", walkCalls), w.number("ends", 0, 1) == 1
	w.resend = func() {
		w.replied("probe of "+downstream, func(s store.Partition) redistest.Reply {
			if ends {
				return redistest.Replied(s.EndProbe(w.ctx, downstream, call))
			}
			return redistest.Replied(s.BeginProbe(w.ctx, downstream, call))
		})
	}
	w.resend()
}
