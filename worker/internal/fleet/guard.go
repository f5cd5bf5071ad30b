package fleet

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/store"
)

// Guard is one downstream.
type Guard struct {
	Name string
	// by is what it goes by now.
	by       atomic.Pointer[guardRules]
	HeldBack atomic.Int64
	// used is the Instant of the last call.
	used atomic.Int64

	mu struct {
		sync.Mutex
		view View
		// opened counts the fleet's openings, the last of which began period openedIn.
		opened   int
		openedIn uint64
		lonely   bool
		// differs says that other rules than this worker's are known to be in force.
		differs bool
		// aside are tenants whose calls fail where others' do not, by number, and until when that is taken for granted.
		aside map[uint16]breaker.Instant
		// recent are the last outcomes, next the place of the one that is next.
		recent [recentOutcomes]verdict
		next   int
		// heldUntil is until when the downstream is held back by what this worker has told.
		heldUntil breaker.Instant
		// tallies is what is not reported yet, one a period, the oldest first.
		tallies []*tally
	}
}

// guardRules is what a guard goes by at one version of the policy.
type guardRules struct {
	// local is this worker's own breaker. It begins anew with each transition of the fleet's.
	local *breaker.Breaker
	// config is its own, origin says where that is from, version which policy was looked at.
	config  breaker.Config
	origin  breaker.Origin
	version int64
	// callTimeout is what a call may take of a job that says nothing of its own; zero where nobody else does either.
	callTimeout time.Duration
	// moves says that its dispatch moves by how many calls it refuses.
	moves bool
	// holdMost is for how long at most all workers hold its jobs back when it says after how long to come again; zero for not at all.
	holdMost time.Duration
}

// Local is the worker's own breaker.
func (g *Guard) Local() *breaker.Breaker { return g.by.Load().local }

// recentOutcomes is how many of the last outcomes are looked at to tell whose failures a worker saw.
const recentOutcomes = 16

// verdict is what is remembered of an outcome.
type verdict struct {
	tenant uint16
	bad    bool
}

// View is the last word on the fleet's breaker. The zero value is that nothing is known of one.
type View struct {
	State  breaker.State
	Period uint64
	// forced says that an operator has closed it.
	forced bool
	// until is when it may be half-open again, where it is open; zero if nobody knows.
	Until breaker.Instant
}

// Fleet returns the last word on the fleet's breaker.
func (g *Guard) Fleet() View {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.view
}

// hear takes a word on the fleet's breaker, unless it is an old one, and reports whether it is a new one.
func (g *Guard) hear(now breaker.Instant, view View) bool {
	g.mu.Lock()
	if view.State == breaker.Open && view.Period > g.mu.openedIn {
		g.mu.opened++
		g.mu.openedIn = view.Period
	}
	was := g.mu.view
	fresh := view.Period > was.Period
	if fresh {
		g.mu.view = view
	}
	g.mu.Unlock()
	// The first word on a closed one changes nothing for what the own breaker has counted.
	if fresh && (was.Period != 0 || view.State != breaker.Closed) {
		g.Local().ResetAt(now, "the fleet's breaker changed")
	}
	return fresh
}

// holds notes until when the downstream is to be held back, and reports whether that is news.
func (g *Guard) holds(until breaker.Instant) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.heldUntil != 0 && until.Sub(g.mu.heldUntil) < store.PauseSlack {
		return false
	}
	g.mu.heldUntil = until
	return true
}

// unhold forgets what holds has noted.
func (g *Guard) unhold() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.heldUntil = 0
}

// Forget takes note that the fleet's breaker is gone: nothing was heard of it for long, or Redis has lost it.
func (g *Guard) Forget() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.view = View{Period: g.mu.view.Period}
}

// setDiffers reports whether that is news.
func (g *Guard) setDiffers(is bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.mu.differs
	g.mu.differs = is
	return is && !was
}

// setLonely reports whether that is a change.
func (g *Guard) setLonely(is bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	was := g.mu.lonely
	g.mu.lonely = is
	return was != is
}

func (g *Guard) status() BreakerStatus {
	own := g.Local().State()
	g.mu.Lock()
	defer g.mu.Unlock()
	s := BreakerStatus{
		Downstream: g.Name, State: g.mu.view.State, Lonely: g.mu.lonely, Opened: g.mu.opened, HeldBack: int(g.HeldBack.Load()),
	}
	if s.State == breaker.Closed && !g.mu.view.forced {
		s.State = own
	}
	return s
}

// setAside takes note of tenants of which the fleet says that their calls fail where others' do not, unless most of the failures
// that this worker saw last are others'. It reports whether it has.
func (g *Guard) setAside(tenants []uint16, until breaker.Instant) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	theirs, all := 0, 0
	for _, v := range g.mu.recent {
		if v.bad {
			all++
			if slices.Contains(tenants, v.tenant) {
				theirs++
			}
		}
	}
	if 2*theirs <= all {
		return false
	}
	if g.mu.aside == nil {
		g.mu.aside = make(map[uint16]breaker.Instant)
	}
	for _, tenant := range tenants {
		g.mu.aside[tenant] = until
	}
	return true
}

// isAside reports whether failures of a tenant's calls say nothing about this worker.
func (g *Guard) isAside(tenant uint16, now breaker.Instant) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	until, ok := g.mu.aside[tenant]
	if ok && now >= until {
		delete(g.mu.aside, tenant)
	}
	return ok && now < until
}

// outcome is what one call came to, or that it became slow.
type outcome struct {
	breaker.Counts
	// tenant is a breaker.TenantNumber, ran how long the call took if it has ended, err what it failed by; refused is 1 if the downstream
	// refused it as one too many, and that is to be told.
	tenant  uint16
	ran     time.Duration
	err     error
	refused uint64
	// push and pushFor are how much the downstream pushed back, and for how long, if that is to be told.
	push    admission.PressureLevel
	pushFor time.Duration
}

// tally is what was counted of calls of one period since the last report.
type tally struct {
	period uint64
	breaker.Counts
	streak  uint64
	ran     time.Duration
	refused uint64
	push    admission.PressureLevel
	pushFor time.Duration
	// tenants is what each tenant has of it, by number: at most breaker.TenantNumbers.
	tenants map[uint16]breaker.TenantCounts
	// errors are the last of each kind, the newest first.
	errors []store.CallError
	// events is the number of outcomes and slow calls in it, since when the first came.
	events int
	since  time.Time
	// told are closed when the fleet's breaker has counted the tally, or nobody will.
	told []chan struct{}
}

// count adds an outcome of a call. A tally that is older than the window begins anew: the fleet would not count it any
// more. It returns the number of outcomes that wait; told, if not nil, is closed when they are reported.
func (g *Guard) count(period uint64, o outcome, told chan struct{}) (waiting int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var t *tally
	for _, known := range g.mu.tallies {
		if known.period == period {
			t = known
		}
	}
	if t == nil {
		t = newTally(period)
		g.mu.tallies = append(g.mu.tallies, t)
	}
	if time.Since(t.since) > g.Local().Config().Window {
		told := t.told
		*t = *newTally(period)
		t.told = told
	}
	t.add(o)
	g.mu.recent[g.mu.next] = verdict{o.tenant, o.Failures+o.Slow > 0}
	g.mu.next = (g.mu.next + 1) % recentOutcomes
	if told != nil {
		t.told = append(t.told, told)
	}
	return t.events
}

func newTally(period uint64) *tally {
	return &tally{period: period, since: time.Now(), tenants: make(map[uint16]breaker.TenantCounts)}
}

func (t *tally) add(o outcome) {
	own := t.tenants[o.tenant]
	own.Tenant = o.tenant
	if o.Successes > 0 {
		t.streak, own.Streak = 0, 0
	}
	t.streak, own.Streak = t.streak+o.Failures, own.Streak+o.Failures
	t.Counts, own.Counts = t.Plus(o.Counts), own.Plus(o.Counts)
	t.tenants[o.tenant] = own
	t.ran, t.refused = t.ran+o.ran, t.refused+o.refused
	t.push, t.pushFor = max(t.push, o.push), max(t.pushFor, o.pushFor)
	if o.err != nil {
		t.errors = store.AddCallError(t.errors, store.CallError{Text: o.err.Error(), Count: 1})
	}
	t.events++
}

// report is the tally as the fleet's breaker counts it.
func (t *tally) report() breaker.Report {
	r := breaker.Report{Period: t.period, Counts: t.Counts, Streak: t.streak}
	for _, own := range t.tenants {
		r.Tenants = append(r.Tenants, own)
	}
	slices.SortFunc(r.Tenants, func(a, b breaker.TenantCounts) int { return cmp.Compare(a.Tenant, b.Tenant) })
	return r
}

// unreported reports whether there is something to report.
func (g *Guard) unreported() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.mu.tallies) > 0
}

// take returns up to n tallies that are to be reported, numbered, and whether there are no more.
func (g *Guard) take(n int, sequence *atomic.Uint64) (taken []*numbered, all bool) {
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
	guard *Guard
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
