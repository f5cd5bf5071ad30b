package breaker_test

import (
	"flag"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
)

// TestMain runs more schedules than rapid's hundred, unless the command line says how many: they cost 50 µs each without the race detector.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", strconv.Itoa(redistest.Some(3000))); err != nil {
		panic(err)
	}
	m.Run()
}

// rig runs a breaker beside its model.
type rig struct {
	breaker *breaker.Breaker
	model   *model
	now     breaker.Instant
	calls   []rigCall
	// changes counts the transitions handed out.
	changes int
}

type rigCall struct {
	call  *breaker.Call
	model *modelCall
}

func drawConfig(t *rapid.T) breaker.Config {
	second := func(name string, high int) time.Duration {
		return time.Duration(rapid.IntRange(1, high).Draw(t, name)) * time.Second
	}
	base := second("open base", 30)
	return breaker.Config{
		Window:           second("window", 20),
		Buckets:          rapid.IntRange(1, 12).Draw(t, "buckets"),
		MinCalls:         rapid.IntRange(1, 8).Draw(t, "min calls"),
		FailureRate:      breaker.Ratio(rapid.SampledFrom([]float64{0.01, 0.3, 0.5, 1}).Draw(t, "failure rate")),
		FailureThreshold: rapid.IntRange(1, 8).Draw(t, "failure threshold"),
		SlowCallDuration: second("slow after", 10),
		SlowCallRate:     breaker.Ratio(rapid.SampledFrom([]float64{0.1, 0.5, 0.8, 1}).Draw(t, "slow rate")),
		SuccessThreshold: rapid.IntRange(1, 4).Draw(t, "success threshold"),
		MaxProbes:        rapid.IntRange(1, 4).Draw(t, "max probes"),
		ProbeTimeout:     second("probe timeout", 20),
		OpenBase:         base,
		OpenMax:          base * time.Duration(rapid.IntRange(1, 20).Draw(t, "open max")),
		ResetAfter:       second("reset after", 60),
	}
}

func drawRig(t *rapid.T) *rig {
	config := drawConfig(t)
	jitter := rapid.Float64Range(0, 1).Draw(t, "jitter")
	config.Rand = func() float64 { return jitter }
	now := breaker.Instant(rapid.Int64Range(-1e18, 1e18).Draw(t, "origin"))
	b, err := breaker.NewAt(now, config)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{breaker: b, model: newModel(now, config, jitter), now: now}
}

func (r *rig) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"call ok":    func(*rapid.T) { r.whole(success) },
		"call fail":  func(*rapid.T) { r.whole(failure) },
		"start":      r.start,
		"start more": r.start,
		"end ok":     func(t *rapid.T) { r.report(t, success) },
		"end fail":   func(t *rapid.T) { r.report(t, failure) },
		"end ignore": func(t *rapid.T) { r.report(t, ignore) },
		"slow":       func(t *rapid.T) { r.report(t, stillRunning) },
		"tick":       func(*rapid.T) { r.model.advance(r.now); r.note(r.breaker.AdvanceAt(r.now)) },
		"wait":       r.step(0, 3*time.Second),
		"wait long":  r.step(0, 2*time.Minute),
		"wait slow":  func(*rapid.T) { r.now = r.now.Add(r.model.config.SlowCallDuration) },
		"wait due":   r.waitDue,
		"late":       r.step(-breaker.MaxLag, 0),
		"set back":   r.step(-time.Hour, 0),
		"operator":   r.operator,
	}
}

// step moves the clock by a time drawn from [low, high].
func (r *rig) step(low, high time.Duration) func(*rapid.T) {
	return func(t *rapid.T) {
		r.now = r.now.Add(time.Duration(rapid.Int64Range(int64(low), int64(high)).Draw(t, "step")))
	}
}

// waitDue moves the clock to the next change by time alone, or one nanosecond short of it.
func (r *rig) waitDue(t *rapid.T) {
	left, ok := r.breaker.NextChangeAt(r.now)
	if ok && left > 0 {
		r.now = r.now.Add(left - time.Duration(rapid.IntRange(0, 1).Draw(t, "short")))
	}
}

// operator forces or resets.
func (r *rig) operator(t *rapid.T) {
	until := r.now.Add(time.Duration(rapid.Int64Range(-1e9, 60e9).Draw(t, "length")))
	switch rapid.IntRange(0, 2).Draw(t, "to") {
	case 0:
		r.model.force(breaker.Open, breaker.CauseForced, r.now, until)
		r.note(r.breaker.ForceOpenAt(r.now, until, "test"))
	case 1:
		r.model.force(breaker.Closed, breaker.CauseForced, r.now, until)
		r.note(r.breaker.ForceClosedAt(r.now, until, "test"))
	case 2:
		r.model.force(breaker.Closed, breaker.CauseReset, r.now, r.now)
		r.note(r.breaker.ResetAt(r.now, "test"))
	}
}

func (r *rig) note(change breaker.Transition) {
	if change.Happened() {
		r.changes++
	}
}

func (r *rig) acquire() (rigCall, bool, bool) {
	c, change, ok := r.breaker.TryAcquireAt(r.now)
	r.note(change)
	expected, also := r.model.acquire(r.now)
	return rigCall{&c, expected}, ok, also
}

func (r *rig) start(t *rapid.T) {
	c, ok, expected := r.acquire()
	if ok != expected {
		t.Fatalf("passed: %v, want %v", ok, expected)
	}
	if ok {
		r.calls = append(r.calls, c)
	}
}

func (r *rig) whole(o outcome) {
	if c, ok, also := r.acquire(); ok && also {
		r.finish(c, o)
	}
}

func (r *rig) report(t *rapid.T, o outcome) {
	if len(r.calls) == 0 {
		return
	}
	r.finish(r.calls[rapid.IntRange(0, len(r.calls)-1).Draw(t, "call")], o)
}

func (r *rig) finish(c rigCall, o outcome) {
	switch o {
	case success:
		r.note(c.call.SuccessAt(r.now))
	case failure:
		r.note(c.call.FailureAt(r.now))
	case ignore:
		r.note(c.call.IgnoreAt(r.now))
	case stillRunning:
		r.note(c.call.MarkSlowAt(r.now))
	}
	r.model.report(c.model, o, r.now)
}

// check compares everything that can be seen.
func (r *rig) check(t *rapid.T) {
	s, m := r.breaker.SnapshotAt(r.now), r.model
	ahead := *m
	inner := ahead.read(r.now)
	counts := m.frozen
	if m.state == breaker.Closed {
		counts = m.window(m.slice(inner))
	}
	inRow := m.inRow
	if m.stable(inner) {
		inRow = 0
	}
	next, ends := m.next()
	want := breaker.Snapshot{
		State: m.state, Cause: m.cause, Since: m.began.Add(-ahead.skew), Forced: m.forced, Reason: s.Reason,
		Ends: ends, Window: counts, FailureStreak: m.streak,
		ProbesInFlight: len(m.probes), ProbesPassed: m.passed, SlowProbes: m.slow,
		Trips: m.trips, TripsInRow: inRow, Totals: m.totals,
	}
	if ends {
		want.Until = next.Add(-ahead.skew)
	}
	if s != want {
		t.Fatalf("snapshot\n got %+v\nwant %+v", s, want)
	}
	if left, ok := r.breaker.NextChangeAt(r.now); ok != ends || ok && left != max(0, next.Sub(inner)) {
		t.Fatalf("next change in %v, %v, want at %v, %v", left, ok, next, ends)
	}
	if r.changes != m.period {
		t.Fatalf("%d transitions handed out, want %d", r.changes, m.period)
	}
	if state := r.breaker.State(); state != m.state {
		t.Fatalf("state %v, want %v", state, m.state)
	}
}

// TestEqualsTheNaiveModel plays random schedules, with clocks that stand, leap and go back, and compares every count,
// state and time with a model that keeps all events.
func TestEqualsTheNaiveModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := drawRig(t)
		actions := r.actions()
		actions[""] = r.check
		t.Repeat(actions)
	})
}

// laws watches one breaker from outside, knowing nothing of how it works.
type laws struct {
	*rig
	// real is the time that has really passed; the clock differs from it by the steps below.
	real time.Duration
	// ahead is how far the clock was set forward in all, behind how long steps back may have made time stand.
	ahead, behind time.Duration
	// probes holds when each probe of the half-open period began, in real time.
	probes map[*breaker.Call]time.Duration
	// opened is when the breaker last opened, cooldown the least time that it must stay so.
	opened, cooldown time.Duration
}

// TestProbesAndRefusals holds, over random schedules with clock steps in both directions: no call passes while the
// breaker is open and its cooldown has not really passed; no more than MaxProbes are in flight; no probe keeps
// the breaker half-open longer than ProbeTimeout, but for the time that a step back lost.
func TestProbesAndRefusals(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l := &laws{rig: drawRig(t), probes: map[*breaker.Call]time.Duration{}}
		wait := func(high time.Duration) func(*rapid.T) {
			return func(t *rapid.T) {
				d := time.Duration(rapid.Int64Range(0, int64(high)).Draw(t, "real"))
				l.real += d
				l.now = l.now.Add(d)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"wait":       wait(2 * time.Second),
			"wait long":  wait(30 * time.Second),
			"wait due":   l.waitReally,
			"step":       l.step,
			"ask":        l.ask,
			"ask again":  l.ask,
			"end ok":     func(t *rapid.T) { l.end(t, success) },
			"end fail":   func(t *rapid.T) { l.end(t, failure) },
			"end ignore": func(t *rapid.T) { l.end(t, ignore) },
		})
	})
}

// waitReally lets the time pass until something is due.
func (l *laws) waitReally(*rapid.T) {
	left, _ := l.breaker.NextChangeAt(l.now)
	l.real += left
	l.now = l.now.Add(left)
}

// step sets the clock. It asks before and after: real time that nobody saw on the old clock, or that fills a step
// back before anybody looked at the new one, is lost, and no clock can tell.
func (l *laws) step(t *rapid.T) {
	l.saw(t, l.breaker.AdvanceAt(l.now))
	d := time.Duration(rapid.Int64Range(-int64(time.Hour), int64(time.Minute)).Draw(t, "set"))
	if rapid.Bool().Draw(t, "small") {
		d /= 1000
	}
	l.now = l.now.Add(d)
	l.ahead += max(0, d)
	l.behind += min(breaker.MaxLag, max(0, -d))
	l.saw(t, l.breaker.AdvanceAt(l.now))
}

func (l *laws) saw(t *rapid.T, change breaker.Transition) {
	if !change.Happened() {
		return
	}
	clear(l.probes)
	if change.To == breaker.Open {
		l.opened, l.ahead, l.behind = l.real, 0, 0
		l.cooldown = l.breaker.Config().OpenBase / 2
	}
	if change.From == breaker.Open && l.real-l.opened+l.ahead < l.cooldown {
		t.Fatalf("open for %v of real time and %v of clock steps, less than %v", l.real-l.opened, l.ahead, l.cooldown)
	}
	if change.To == breaker.HalfOpen {
		l.ahead, l.behind = 0, 0
	}
}

func (l *laws) ask(t *rapid.T) {
	c, change, ok := l.breaker.TryAcquireAt(l.now)
	l.saw(t, change)
	state, config := l.breaker.State(), l.breaker.Config()
	if ok && state == breaker.Open {
		t.Fatal("a call passed while open")
	}
	if ok && state == breaker.HalfOpen {
		l.probes[&c] = l.real
	}
	if len(l.probes) > config.MaxProbes {
		t.Fatalf("%d probes in flight, at most %d", len(l.probes), config.MaxProbes)
	}
	for _, began := range l.probes {
		if held := l.real - began; held >= config.ProbeTimeout+l.behind && held > 0 {
			t.Fatalf("half-open though a probe has been in flight for %v, %v of it lost", held, l.behind)
		}
	}
	if ok {
		l.calls = append(l.calls, rigCall{call: &c})
	}
}

func (l *laws) end(t *rapid.T, o outcome) {
	if len(l.calls) == 0 {
		return
	}
	i := rapid.IntRange(0, len(l.calls)-1).Draw(t, "call")
	c := l.calls[i].call
	l.calls = append(l.calls[:i], l.calls[i+1:]...)
	delete(l.probes, c)
	switch o {
	case success:
		l.saw(t, c.SuccessAt(l.now))
	case failure:
		l.saw(t, c.FailureAt(l.now))
	case ignore, stillRunning:
		l.saw(t, c.IgnoreAt(l.now))
	}
}
