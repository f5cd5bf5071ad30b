package control_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/control"
)

// minute is what workers tell of the last one (package load): runs in slots of 5 s, of which the one that is not over yet is not told.
type minute struct{ slots []slot }

// slot is what ended in 5 s: each run took as long.
type slot struct{ seconds, runs, failed float64 }

const slotsOfAMinute = 12

func (m *minute) add(s slot) {
	m.slots = append(m.slots, s)
	m.slots = m.slots[max(0, len(m.slots)-slotsOfAMinute-1):]
}

// told are the slots of which workers told.
func (m *minute) told() []slot { return m.slots[:max(0, len(m.slots)-1)] }

// p95 is how long all but one in twenty took, NaN where none ran.
func (m *minute) p95() float64 {
	all, left := slices.Clone(m.told()), 0.0
	slices.SortFunc(all, func(a, b slot) int { return int(math.Copysign(1, a.seconds-b.seconds)) })
	for _, s := range all {
		left += 0.95 * s.runs
	}
	for _, s := range all {
		if left -= s.runs; left <= 0 {
			return s.seconds
		}
	}
	return math.NaN()
}

func (m *minute) failed() float64 {
	runs, failed := 0.0, 0.0
	for _, s := range m.told() {
		runs, failed = runs+s.runs, failed+s.failed
	}
	return failed / runs
}

// signalPlant is a downstream of which a signal grows with what runs at a time, as workers tell it.
type signalPlant struct {
	fits   float64 // so many calls at a time, each of 100 ms
	seen   minute
	random *rand.Rand
}

func (p *signalPlant) noise() float64 { return 1 + 0.05*(2*p.random.Float64()-1) }

// tick is what is seen in an interval under a limit of calls at a time, with a signal; paced is the same under one of calls a second.
func (p *signalPlant) tick(signal string, limit int, over time.Duration) control.Sample {
	return p.seeing(signal, float64(limit), over, func(seconds float64) float64 { return float64(limit) / seconds })
}

func (p *signalPlant) paced(signal string, rate float64, over time.Duration) control.Sample {
	return p.seeing(signal, rate, over, func(float64) float64 { return rate })
}

func (p *signalPlant) seeing(signal string, limit float64, over time.Duration, rate func(seconds float64) float64) control.Sample {
	s := control.Sample{Over: over, Bound: true}
	excess := math.Max(1, limit/p.fits)
	for range over / (5 * time.Second) {
		of := slot{seconds: 0.1}
		if signal == "run_p95" {
			of.seconds = 0.1 * excess * p.noise()
		}
		of.runs = 5 * rate(of.seconds)
		if signal == "error_rate" || signal == "pressure" { // What is too much is refused.
			of.failed = of.runs * (1 - 1/excess) * p.noise()
		}
		p.seen.add(of)
		s.Calls, s.Failures, s.Ran = s.Calls+int64(of.runs), s.Failures+int64(of.failed), s.Ran+time.Duration(of.runs*of.seconds*float64(time.Second))
	}
	switch signal {
	case "run_p95":
		s.Signal = p.seen.p95()
	case "error_rate":
		s.Signal = p.seen.failed()
	case "cpu":
		s.Signal = math.Min(1, limit/p.fits*p.noise())
	case "pressure": // Of a breaker with a window of two slots that opens where half of the calls fail, or ten in a row.
		share, streak := 0.0, 0.0
		for _, of := range p.seen.slots[max(0, len(p.seen.slots)-2):] {
			share += of.failed / of.runs / 2
		}
		for p.random.Float64() < share {
			streak++
		}
		s.Signal = math.Min(1, math.Max(share/0.5, streak/10))
	}
	return s
}

// TestASignalIsHeldAtItsTarget: from twice what the target allows, and after what fits halved and grew to two and a half times that, the limit is where the signal is at
// its target from the twelfth look on, and stays around there. Only the minute over which a signal is told makes it hard.
func TestASignalIsHeldAtItsTarget(t *testing.T) {
	t.Parallel()
	for signal, of := range map[string]struct {
		target, holds float64 // holds is how much of what fits is right.
		interval      time.Duration
		least         map[control.Controller]float64 // part of what is right
	}{
		"run_p95":    {0.125, 1.25, time.Minute, map[control.Controller]float64{control.PID: 0.8, control.AIMD: 0.75}},
		"error_rate": {0.05, 1 / 0.95, time.Minute, map[control.Controller]float64{control.PID: 0.7, control.AIMD: 0.65}},
		"pressure":   {0.3, 1 / 0.85, 10 * time.Second, map[control.Controller]float64{control.PID: 0.8, control.AIMD: 0.7}},
		"cpu":        {0.7, 0.7, 5 * time.Second, map[control.Controller]float64{control.PID: 0.85, control.AIMD: 0.75}},
	} {
		for controller, least := range of.least {
			for seed := range uint64(20) {
				p := &signalPlant{fits: 100, random: rand.New(rand.NewPCG(seed, 3))}
				limit := int(2 * p.fits * of.holds)
				l, err := control.New(control.Config{Controller: controller, Min: 1, Max: most, Interval: of.interval, Target: of.target, MaxFailures: 1}, limit)
				if err != nil {
					t.Fatal(err)
				}
				for look := range 90 {
					switch look {
					case 30:
						p.fits /= 2
					case 60:
						p.fits *= 2.5
					}
					limit = l.Tick(limit, p.tick(signal, limit, of.interval)).Limit
					if at := float64(limit) / (p.fits * of.holds); look%30 >= 12 && (at < least || at > 1.25) {
						t.Fatalf("%s by %s, seed %d: %d is %.2f of what is right at look %d", signal, controller, seed, limit, at, look)
					}
				}
			}
		}
	}
}

// TestASignalGoesTheRightWay: down where it is above its target, up where it is below, and pid stays where it is near.
func TestASignalGoesTheRightWay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		controller control.Controller
		signal     float64
		want       control.Step
	}{
		{control.PID, 1.4, control.Step{Limit: 90, Before: 100, Cause: control.CauseAboveTarget}},
		{control.PID, 0.35, control.Step{Limit: 110, Before: 100, Cause: control.CauseBelowTarget}},
		{control.PID, 0.71, control.Step{Limit: 100, Before: 100, Cause: control.CauseOnTarget}},
		{control.PID, 0, control.Step{Limit: 110, Before: 100, Cause: control.CauseBelowTarget}},
		{control.AIMD, 70, control.Step{Limit: 80, Before: 100, Cause: control.CauseAboveTarget}},
		{control.AIMD, 0.71, control.Step{Limit: 90, Before: 100, Cause: control.CauseAboveTarget}},
		{control.AIMD, 0.7, control.Step{Limit: 110, Before: 100, Cause: control.CauseBelowTarget}},
	} {
		s := seen(1000, 0, time.Millisecond)
		s.Signal = c.signal
		if got := newLoop(t, control.Config{Controller: c.controller, Min: 1, Max: most, Target: 0.7}, 100).Tick(100, s); got != c.want {
			t.Errorf("%s at %g: got %+v, want %+v", c.controller, c.signal, got, c.want)
		}
	}
}

// TestASignalThatNobodyKnows: the limit stays, from the third look on it goes back to what is configured, brakes hold meanwhile, and so does a limit all of
// whose units are taken by calls of which none ends. One reading between begins anew.
func TestASignalThatNobodyKnows(t *testing.T) {
	t.Parallel()
	for _, controller := range []control.Controller{control.PID, control.AIMD} {
		for _, none := range []float64{math.NaN(), math.Inf(1), -1} {
			config := control.Config{Controller: controller, Min: 1, Max: most, Target: 0.7}
			unread := seen(1000, 0, time.Millisecond)
			unread.Signal = none
			l, limit := newLoop(t, config, 100), 100
			for look := range 40 {
				step := l.Tick(limit, unread)
				if limit = step.Limit; look < 2 && step != (control.Step{Limit: 100, Before: 100, Cause: control.CauseNoSample}) {
					t.Errorf("%s, look %d: %+v", controller, look, step)
				}
				if look >= 2 && step.Cause != control.CauseMissing {
					t.Errorf("%s, look %d: %+v", controller, look, step)
				}
			}
			if limit != most {
				t.Errorf("%s: nothing is known, and the limit is %d, not what is configured", controller, limit)
			}
			failing := seen(1000, 900, time.Millisecond)
			failing.Signal = none
			if step := newLoop(t, config, 100).Tick(100, failing); step.Limit != 80 || step.Cause != control.CauseFailures {
				t.Errorf("%s: no brake for failures: %+v", controller, step)
			}
			l = newLoop(t, config, 100)
			for range 10 {
				if step := l.Tick(100, control.Sample{Over: interval, Bound: true, Signal: none}); step.Changed() {
					t.Errorf("%s: no call ends: %+v", controller, step)
				}
			}
			l, limit = newLoop(t, config, 100), 100
			read := unread
			read.Signal, read.Bound = 0.7, false
			for range 10 {
				l.Tick(limit, unread)
				l.Tick(limit, unread)
				limit = l.Tick(limit, read).Limit
			}
			if limit != 100 {
				t.Errorf("%s: each third look knows it, and the limit went to %d", controller, limit)
			}
		}
	}
}

// TestAPartHoldsASignal: of three times as much work as can be done so much is let in that half of the processors is used, or that runs take a second.
func TestAPartHoldsASignal(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		target, leastOfAIMD float64
		interval            time.Duration
		signal              func(m *minute, let, noise float64, over time.Duration) float64
	}{
		"cpu": {0.5, 0.85, 5 * time.Second, func(_ *minute, let, noise float64, _ time.Duration) float64 { return math.Min(1, 0.5*let*noise) }},
		"run_p95": {1, 0.75, time.Minute, func(m *minute, let, noise float64, over time.Duration) float64 {
			for range over / (5 * time.Second) {
				m.add(slot{seconds: let * noise, runs: 100 * let})
			}
			return m.p95()
		}},
	} {
		for seed := range uint64(40) {
			random := rand.New(rand.NewPCG(seed/2, 4))
			controller, least := control.PID, 0.85
			if seed%2 == 1 {
				controller, least = control.AIMD, of.leastOfAIMD
			}
			p, limit, m := newPart(t, control.PartConfig{Controller: controller, Interval: of.interval, Target: of.target, Signal: true}, whole), whole, &minute{}
			for look := range 120 {
				let := 3 * float64(limit) / whole
				limit = p.Tick(limit, of.signal(m, let, 1+0.05*(2*random.Float64()-1), of.interval), of.interval).Limit
				if look >= 25 && (let < least || let > 1.15) {
					t.Fatalf("%s by %s, seed %d: %.2f of what is right is let in at look %d", name, controller, seed, let, look)
				}
			}
			for range 60 {
				limit = p.Tick(limit, 0.1*of.target, of.interval).Limit
			}
			if limit != whole {
				t.Errorf("%s by %s, seed %d: work has gone, and %d of %d is in force", name, controller, seed, limit, whole)
			}
		}
	}
}

// TestWaitsAreHeld: with 1.3 and 3 times as much work as can be done, jobs wait 1.6 times the target at most once two hours have gone, and whoever works has work. What
// is let in too much stays and waits, and a wait is known only when it is over.
func TestWaitsAreHeld(t *testing.T) {
	t.Parallel()
	waitsAreHeld(t, control.PartConfig{Controller: control.PID, Gains: control.WaitGains}, 1.6, 0.97)
}

// TestWaitsAreHeldByAIMD: 2.5 times the target, and 0.93 of what can be done is.
func TestWaitsAreHeldByAIMD(t *testing.T) {
	t.Parallel()
	waitsAreHeld(t, control.PartConfig{Controller: control.AIMD}, 2.5, 0.93)
}

func waitsAreHeld(t *testing.T, config control.PartConfig, longest, least float64) {
	t.Helper()
	for _, target := range []float64{10, 60} {
		for _, offered := range []float64{1.3, 3} {
			for seed := range uint64(10) {
				random := rand.New(rand.NewPCG(seed, 5))
				config.Interval, config.Target, config.Signal = time.Minute, target, true
				p, limit, m := newPart(t, config, whole), whole, &minute{}
				waiting, done, highest := 0.0, 0.0, 0.0 // seconds of work
				const hours = 4
				for second := range hours * 3600 {
					waiting += offered * float64(limit) / whole * (1 + 0.05*(2*random.Float64()-1))
					did := math.Min(1, waiting)
					waiting -= did
					if second%5 == 0 {
						m.add(slot{seconds: waiting, runs: did})
					}
					if second%60 == 0 {
						limit = p.Tick(limit, m.p95(), time.Minute).Limit
					}
					if second >= hours*3600/2 {
						done, highest = done+did, math.Max(highest, waiting)
					}
				}
				if used := done / (hours * 3600 / 2); highest > longest*target || used < least {
					t.Errorf("a wait of %g s, %g times too much, seed %d: up to %.0f s, and %.2f of what can be done is", target, offered, seed, highest, used)
				}
			}
		}
	}
}

// TestWaitsForADownstreamAreHeld: its limit goes up while jobs that call it wait longer than the target, and down while they wait less. From half of what is right, after
// twice as much work came and after that went again, they wait at most 1.3 times the target in the second hour, twice of aimd, and the limit is where it belongs.
func TestWaitsForADownstreamAreHeld(t *testing.T) {
	t.Parallel()
	for controller, of := range map[control.Controller]struct {
		gains                control.Gains
		longest, least, most float64
	}{control.PID: {control.CallWaitGains, 1.3, 0.9, 1.3}, control.AIMD: {control.Gains{}, 2, 0.6, 1.6}} {
		for _, target := range []float64{60, 300} {
			for seed := range uint64(10) {
				random := rand.New(rand.NewPCG(seed, 7))
				config := control.Config{Controller: controller, Min: 1, Max: most, Interval: time.Minute, Target: target, Falls: true, Gains: of.gains, MaxFailures: 1}
				limit, m := 25, &minute{}
				l, err := control.New(config, limit)
				if err != nil {
					t.Fatal(err)
				}
				waiting, right := 0.0, 50.0 // Jobs of a second each; so many come in a second.
				for second := range 4 * 3600 {
					if second == 2*3600 {
						right *= 2
					}
					waiting += right * (1 + 0.05*(2*random.Float64()-1))
					began := math.Min(float64(limit), waiting)
					waiting -= began
					wait := waiting / float64(limit)
					if second%5 == 0 {
						m.add(slot{seconds: math.Max(wait, 0.001), runs: began})
					}
					if second%60 == 59 {
						limit = l.Tick(limit, control.Sample{Over: time.Minute, Calls: 1000, Ran: time.Second, Bound: waiting > 0, Signal: m.p95()}).Limit
					}
					if second%7200 < 3600 {
						continue
					}
					if at := float64(limit) / right; waiting > 0 && (wait > of.longest*target || at < of.least || at > of.most) {
						t.Fatalf("%s, a wait of %g s, seed %d: %.0f s at second %d with %d at a time, %.2f of what is right", controller, target, seed, wait, second, limit, at)
					}
				}
			}
		}
	}
}

// TestASignalThatFallsGoesTheOtherWay: more of a limit makes waits for it less, so it grows above the target, and a wait that nobody knows leaves it alone.
func TestASignalThatFallsGoesTheOtherWay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		controller control.Controller
		signal     float64
		want       control.Step
	}{
		{control.PID, 30, control.Step{Limit: 110, Before: 100, Cause: control.CauseAboveTarget}},
		{control.PID, 0, control.Step{Limit: 90, Before: 100, Cause: control.CauseBelowTarget}},
		{control.PID, 10.4, control.Step{Limit: 100, Before: 100, Cause: control.CauseOnTarget}},
		{control.AIMD, 30, control.Step{Limit: 110, Before: 100, Cause: control.CauseAboveTarget}},
		{control.AIMD, 0, control.Step{Limit: 80, Before: 100, Cause: control.CauseBelowTarget}},
		{control.PID, math.NaN(), control.Step{Limit: 100, Before: 100, Cause: control.CauseNoSample}},
		{control.AIMD, -1, control.Step{Limit: 100, Before: 100, Cause: control.CauseNoSample}},
	} {
		s := seen(1000, 0, time.Millisecond)
		s.Signal = c.signal
		if got := newLoop(t, control.Config{Controller: c.controller, Min: 1, Max: most, Target: 10, Falls: true}, 100).Tick(100, s); got != c.want {
			t.Errorf("%s at %g: got %+v, want %+v", c.controller, c.signal, got, c.want)
		}
	}
}

// TestBadTargets name their field.
func TestBadTargets(t *testing.T) {
	t.Parallel()
	config := control.Config{Min: 1, Max: 9, Interval: time.Second}
	for want, change := range map[string]func(c *control.Config){
		"invalid target -1: allowed is above 0":                                   func(c *control.Config) { c.Controller, c.Target = control.AIMD, -1 },
		"invalid target NaN: allowed is above 0":                                  func(c *control.Config) { c.Controller, c.Target = control.AIMD, math.NaN() },
		"invalid target 1: allowed is none, but of pid and aimd":                  func(c *control.Config) { c.Target = 1 },
		"invalid target_run_time 1s: allowed is none beside a target of a signal": func(c *control.Config) { c.Controller, c.Target, c.TargetRunTime = control.PID, 1, time.Second },
	} {
		c := config
		change(&c)
		if err := c.Validate(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	for want, c := range map[string]control.PartConfig{
		"invalid target 0: allowed is above 0":                         {Signal: true},
		"invalid signal (there): allowed is none, but of pid and aimd": {Signal: true, Target: 1, Controller: control.Health},
	} {
		c.Min, c.Max, c.Interval = 1, 9, time.Second
		if err := c.Validate(); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
