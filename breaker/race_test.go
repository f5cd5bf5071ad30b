package breaker

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestCountsAreExactWhileSlicesTurn has many goroutines succeed while the window slides under them every few calls. No
// success may be lost with the slice that it was counted in.
func TestCountsAreExactWhileSlicesTurn(t *testing.T) {
	t.Parallel()
	const goroutines, each = 16, 4000
	b := mustNew(t, Config{Window: 10 * time.Millisecond, Buckets: 2})
	var clock atomic.Int64
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			for range each {
				c, _, ok := b.TryAcquireAt(Instant(clock.Add(int64(time.Millisecond))))
				if !ok {
					t.Error("refused while closed")
				}
				c.SuccessAt(Instant(clock.Load()))
			}
		})
	}
	group.Wait()
	totals := b.SnapshotAt(Instant(clock.Load())).Totals
	totals.Slow = 0 // A goroutine may have been off the processor for long by this clock.
	if totals != (Totals{Successes: goroutines * each}) {
		t.Errorf("totals %+v, want %d successes", totals, goroutines*each)
	}
}

// TestManyGoroutinesTripAndRecover has many goroutines end calls in every way while an operator meddles. Every end is
// counted once, refusals too; probes in flight never pass MaxProbes in any half-open period; transitions
// form one chain.
func TestManyGoroutinesTripAndRecover(t *testing.T) {
	t.Parallel()
	const goroutines, each, maxProbes = 16, 4000, 3
	b := mustNew(t, Config{
		Window: time.Second, MinCalls: 5, FailureThreshold: 6, SuccessThreshold: 4, MaxProbes: maxProbes,
		ProbeTimeout: time.Hour, OpenBase: 200 * time.Millisecond, OpenMax: 400 * time.Millisecond, SlowCallDuration: 50 * time.Millisecond,
	})
	r := &race{breaker: b, inFlight: make([]atomic.Int32, goroutines*each)}
	var group sync.WaitGroup
	for i := range goroutines {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for range each {
				r.turn(random)
			}
		})
	}
	group.Wait()
	if high := r.high.Load(); high < 1 || high > maxProbes {
		t.Errorf("at most %d probes were in flight, want 1 to %d", high, maxProbes)
	}
	s := b.SnapshotAt(r.now())
	if ends := s.Totals.Successes + s.Totals.Failures + s.Totals.Ignored + s.Totals.Late; ends != r.passed.Load() {
		t.Errorf("%d calls passed and %d ends were counted: %+v", r.passed.Load(), ends, s.Totals)
	}
	if s.Totals.Refused != r.refused.Load() {
		t.Errorf("%d refusals, want %d", s.Totals.Refused, r.refused.Load())
	}
	r.checkChain(t, s)
}

// race is what the goroutines share.
type race struct {
	breaker         *Breaker
	clock           atomic.Int64
	passed, refused atomic.Uint64
	// inFlight counts probes by period, high is the largest of them ever seen.
	inFlight []atomic.Int32
	high     atomic.Int32
	// arrivals and departures count transitions by state.
	arrivals, departures [3]atomic.Int64
	trips                atomic.Uint64
}

func (r *race) now() Instant { return Instant(r.clock.Load()) }

func (r *race) note(change Transition) {
	if !change.Happened() {
		return
	}
	r.departures[change.From].Add(1)
	r.arrivals[change.To].Add(1)
	if change.To == Open && change.Cause != CauseForced {
		r.trips.Add(1)
	}
}

// turn is one call, or seldom an operator's word.
func (r *race) turn(random *rand.Rand) {
	now := Instant(r.clock.Add(random.Int64N(int64(2 * time.Millisecond))))
	if random.IntN(500) == 0 {
		r.meddle(random.IntN(3), now)
		return
	}
	c, change, ok := r.breaker.TryAcquireAt(now)
	r.note(change)
	if !ok {
		r.refused.Add(1)
		return
	}
	r.passed.Add(1)
	if c.Probe() {
		n := r.inFlight[c.period].Add(1)
		for high := r.high.Load(); n > high && !r.high.CompareAndSwap(high, n); high = r.high.Load() {
		}
		runtime.Gosched() // Let others ask meanwhile.
	}
	var timer sync.WaitGroup
	if random.IntN(8) == 0 {
		timer.Go(func() { r.note(c.MarkSlowAt(r.now())) })
	}
	if c.Probe() {
		r.inFlight[c.period].Add(-1)
	}
	switch random.IntN(4) {
	case 0:
		r.note(c.FailureAt(r.now()))
	case 1:
		r.note(c.IgnoreAt(r.now()))
	default:
		r.note(c.SuccessAt(r.now()))
	}
	timer.Wait()
}

func (r *race) meddle(what int, now Instant) {
	switch what {
	case 0:
		r.note(r.breaker.ForceOpenAt(now, now.Add(20*time.Millisecond), "race"))
	case 1:
		r.note(r.breaker.ForceClosedAt(now, now.Add(20*time.Millisecond), "race"))
	case 2:
		r.note(r.breaker.ResetAt(now, "race"))
	}
}

// checkChain holds that each transition was handed to one caller: every state was left as often as it was entered,
// but for the first and the present one.
func (r *race) checkChain(t *testing.T, s Snapshot) {
	t.Helper()
	r.arrivals[Closed].Add(1)
	r.departures[s.State].Add(1)
	for state := range r.arrivals {
		if in, out := r.arrivals[state].Load(), r.departures[state].Load(); in != out {
			t.Errorf("%v was entered %d times and left %d times", State(state), in, out)
		}
		if r.arrivals[state].Load() < 2 {
			t.Errorf("the schedule never reached %v", State(state))
		}
	}
	if s.Trips != r.trips.Load() {
		t.Errorf("%d trips, want %d", s.Trips, r.trips.Load())
	}
}

func mustNew(t *testing.T, config Config) *Breaker {
	t.Helper()
	b, err := NewAt(0, config)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
