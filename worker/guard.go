package worker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/breaker"
)

// guard is one downstream.
type guard struct {
	name string
	// local is this worker's own breaker. It begins anew with each transition of the fleet's.
	local    *breaker.Breaker
	heldBack atomic.Int64
	// used is the Instant of the last call.
	used atomic.Int64

	mu struct {
		sync.Mutex
		view fleetView
		// opened counts the fleet's openings, the last of which began period openedIn.
		opened   int
		openedIn uint64
		lonely   bool
		// tallies is what is not reported yet, one a period, the oldest first.
		tallies []*tally
	}
}

// fleetView is the last word on the fleet's breaker. The zero value is that nothing is known of one.
type fleetView struct {
	state  breaker.State
	period uint64
	// forced says that an operator has closed it.
	forced bool
	// until is when it may be half-open again, where it is open; zero if nobody knows.
	until breaker.Instant
}

// fleet returns the last word on the fleet's breaker.
func (g *guard) fleet() fleetView {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.view
}

// hear takes a word on the fleet's breaker, unless it is an old one, and reports whether it is a new one.
func (g *guard) hear(now breaker.Instant, view fleetView) bool {
	g.mu.Lock()
	if view.state == breaker.Open && view.period > g.mu.openedIn {
		g.mu.opened++
		g.mu.openedIn = view.period
	}
	was := g.mu.view
	fresh := view.period > was.period
	if fresh {
		g.mu.view = view
	}
	g.mu.Unlock()
	// The first word on a closed one changes nothing for what the own breaker has counted.
	if fresh && (was.period != 0 || view.state != breaker.Closed) {
		g.local.ResetAt(now, "the fleet's breaker changed")
	}
	return fresh
}

// forget takes note that the fleet's breaker is gone: nothing was heard of it for long, or Redis has lost it.
func (g *guard) forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.view = fleetView{period: g.mu.view.period}
}

// setLonely reports whether that is a change.
func (g *guard) setLonely(is bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.mu.lonely
	g.mu.lonely = is
	return was != is
}

func (g *guard) status() BreakerStatus {
	own := g.local.State()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := BreakerStatus{
		Downstream: g.name, State: g.mu.view.state, Lonely: g.mu.lonely, Opened: g.mu.opened, HeldBack: int(g.heldBack.Load()),
	}
	if s.State == breaker.Closed && !g.mu.view.forced {
		s.State = own
	}
	return s
}

// tally is what was counted of calls of one period since the last report.
type tally struct {
	period uint64
	breaker.Counts
	streak uint64
	// events is the number of outcomes and slow calls in it, since when the first came.
	events int
	since  time.Time
	// told are closed when the fleet's breaker has counted the tally, or nobody will.
	told []chan struct{}
}

// count adds an outcome of a call. A tally that is older than the window begins anew: the fleet would not count it any
// more. It returns the number of outcomes that wait; told, if not nil, is closed when they are reported.
func (g *guard) count(period uint64, c breaker.Counts, told chan struct{}) (waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var t *tally
	for _, known := range g.mu.tallies {
		if known.period == period {
			t = known
		}
	}
	if t == nil {
		t = &tally{period: period, since: time.Now()}
		g.mu.tallies = append(g.mu.tallies, t)
	}
	if time.Since(t.since) > g.local.Config().Window {
		*t = tally{period: period, since: time.Now(), told: t.told}
	}
	if c.Successes > 0 {
		t.streak = 0
	}
	t.streak += c.Failures
	t.Successes += c.Successes
	t.Failures += c.Failures
	t.Slow += c.Slow
	t.SlowEnds += c.SlowEnds
	t.events++
	if told != nil {
		t.told = append(t.told, told)
	}
	return t.events
}

// take returns up to n tallies that are to be reported, numbered, and whether there are no more.
func (g *guard) take(n int, sequence *atomic.Uint64) (taken []*numbered, all bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n = min(n, len(g.mu.tallies))
	for _, t := range g.mu.tallies[:n] {
		taken = append(taken, &numbered{guard: g, tally: t, sequence: sequence.Add(1)})
	}
	g.mu.tallies = g.mu.tallies[n:]
	return taken, len(g.mu.tallies) == 0
}

// numbered is a tally on its way.
type numbered struct {
	guard *guard
	*tally
	sequence uint64
}

// settle tells those who wait for it.
func (n *numbered) settle() {
	for _, told := range n.told {
		close(told)
	}
	n.told = nil
}
