package crash_test

import (
	"testing"
	"time"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/worker"
)

// verdicts is what became of each downstream that fell ill.
type verdicts []verdict

// verdict is what an outage came to.
type verdict struct {
	behaviour string
	// Trips is how often the breaker opened from closed.
	trips int
	// Dispatched counts jobs that left the waiting room while the breaker was open, Called those of them that the
	// downstream saw. Late are calls of jobs that had left it before, by workers that did not know yet, LateFor the
	// time from the opening to the last of them.
	dispatched, called, late int
	lateFor                  time.Duration
	// Probes counts jobs dispatched while the breaker was half-open, ProbesBurnt those of them that lost an attempt.
	probes, probesBurnt int
	// Burnt is the attempts that failed, Bound what may be: each worker's, in each period in which calls pass.
	burnt, bound int
	// Openly is the time until all workers knew, Closedly that from the return until the breaker closed.
	openly, closedly time.Duration
	// Lost is jobs that were admitted and never completed, of all downstreams.
	lost int
}

// audit looks at all that happened since the outage began.
func (o *outage) audit() (all verdicts) {
	o.Helper()
	o.follow()
	census, err := o.store.Census(o.Context())
	o.check(err)
	accepted := 0
	for _, n := range o.offered {
		accepted += n
	}
	lost := accepted - int(census.Left["completed"])
	if !census.Conserved() || census.Accepted != int64(accepted) || census.Live > 0 {
		o.Errorf("law L4: producers know of %d jobs: %+v", accepted, census)
	}
	walks := walks(o.TB, o.store)
	for i, illness := range o.illnesses {
		v := o.judge(i+1, illness, walks[downstreamName(i+1)])
		v.lost = lost
		all = append(all, v)
	}
	return all
}

func (o *outage) judge(number int, illness string, w walk) verdict {
	v := verdict{behaviour: illness, trips: w.trips(o.struck / int64(time.Millisecond))}
	v.bound = w.closings(o.struck, o.mended) * outageWorkers * (callerMinCalls + callerSlots)
	if illness == cut {
		v.bound = callerMinCalls + callerSlots
	}
	v.count(o, downstreamName(number), w)
	for _, c := range o.calls[o.began.calls:] {
		if c.downstream != number {
			continue
		}
		millis, _ := tokenTime(c.token)
		at := c.at / int64(time.Millisecond)
		switch {
		case w.was(breaker.Open, millis):
			v.called++
		case w.was(breaker.Open, at) && w.was(breaker.Closed, millis):
			v.late++
			v.lateFor = max(v.lateFor, w.openFor(at))
		}
	}
	for _, at := range o.knowing(downstreamName(number)) {
		v.openly = max(v.openly, time.Duration(at-o.struck))
	}
	for _, e := range w {
		if after := time.Duration(e.At.UnixNano() - o.mended); e.To == breaker.Closed && after > 0 {
			v.closedly = after
			break
		}
	}
	return v
}

// count counts what was dispatched, and how it ended.
func (v *verdict) count(o *outage, downstream string, w walk) {
	for _, d := range o.dispatches(o.began) {
		switch {
		case d.downstream != downstream:
		case w.was(breaker.Open, d.millis):
			v.dispatched++
		case w.was(breaker.HalfOpen, d.millis):
			v.probes++
		}
	}
	for _, f := range o.ends[o.began.ends:] {
		if f.downstream != downstream || f.outcome != worker.Retried && f.outcome != worker.Dead {
			continue
		}
		v.burnt++
		if millis, _ := tokenTime(f.token); w.was(breaker.HalfOpen, millis) {
			v.probesBurnt++
		}
	}
}

// closings counts the periods in which the breaker was closed while its downstream was ill, between two times in
// nanoseconds: at first, and whenever a flapping one let enough probes pass.
func (w walk) closings(struck, mended int64) int {
	n := 1
	for _, e := range w {
		if at := e.At.UnixNano(); e.To == breaker.Closed && at > struck && at < mended {
			n++
		}
	}
	return n
}

// openFor returns how long a breaker had been open.
func (w walk) openFor(millis int64) (d time.Duration) {
	for _, e := range w {
		if at, _ := tokenTime(e.ID); e.To == breaker.Open && at <= millis {
			d = time.Duration(millis-at) * time.Millisecond
		}
	}
	return d
}

// assert asserts what does not depend on the machine's speed.
func (all verdicts) assert(tb testing.TB) {
	tb.Helper()
	for _, v := range all {
		if opened := v.trips > 0; opened == (v.behaviour == cut) {
			tb.Errorf("law L10: %s opened the breaker %d times", v.behaviour, v.trips)
		}
		if v.dispatched > 0 || v.called > 0 {
			tb.Errorf("law L10: %s: %d jobs were dispatched while it was open, and %d of them called", v.behaviour, v.dispatched, v.called)
		}
		if most := max(v.trips, 1) * outageWorkers * callerSlots; v.late > most {
			tb.Errorf("law L10: %s: %d calls after it opened, of jobs that had left before; at most %d can be held", v.behaviour, v.late, most)
		}
		if v.burnt > v.bound {
			tb.Errorf("law L10: %s burnt %d attempts, %d it may", v.behaviour, v.burnt, v.bound)
		}
		if v.probesBurnt > 0 || v.probes == 0 && v.behaviour != cut {
			tb.Errorf("law L11: %s: %d of %d probes burnt an attempt", v.behaviour, v.probesBurnt, v.probes)
		}
		if v.lost != 0 {
			tb.Errorf("law L4: %s: %d jobs are lost", v.behaviour, v.lost)
		}
	}
}
