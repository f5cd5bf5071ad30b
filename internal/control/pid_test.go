package control_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/headgate/headgate/internal/control"
)

// target is what the tests hold a run time of 100 ms at: 50 calls at a time where 400 a second are done.
const target = 125 * time.Millisecond

func pidConfig() control.Config {
	return control.Config{Controller: control.PID, Min: 1, Max: most, TargetRunTime: target}
}

// pidPlant is a plant for it, and where its limit is to be.
func pidPlant(noise float64, seed uint64) (p *plant, want func() float64) {
	p = newPlant(noise, seed)
	p.capacity, p.base = most, 100*time.Millisecond
	return p, func() float64 { return p.capacity * target.Seconds() }
}

// TestPIDSettles within 10 ticks of a step of the capacity, either way, beyond it by a fifth at most, and stays.
func TestPIDSettles(t *testing.T) {
	t.Parallel()
	for _, noise := range []float64{0, 0.02, 0.05} {
		for _, factor := range []float64{0.5, 0.75, 1.5, 2} {
			for seed := range uint64(20) {
				p, want := pidPlant(noise, seed)
				limit := int(want())
				l := newLoop(t, pidConfig(), limit)
				p.capacity *= factor
				for tick := range 60 {
					limit = l.Tick(limit, p.tick(limit)).Limit
					off := float64(limit)/want() - 1
					if beyond := math.Copysign(1, factor-1) * off; beyond > 0.2 {
						t.Fatalf("capacity times %g, noise %g, seed %d: %.2f beyond at tick %d", factor, noise, seed, beyond, tick)
					}
					if tick >= 10 && math.Abs(off) > 0.15 {
						t.Fatalf("capacity times %g, noise %g, seed %d: still %.2f off at tick %d", factor, noise, seed, off, tick)
					}
				}
			}
		}
	}
}

// TestPIDGoesTheRightWay: down where calls take longer than they may, up where they do not.
func TestPIDGoesTheRightWay(t *testing.T) {
	t.Parallel()
	for run, want := range map[time.Duration]control.Step{
		2 * target:     {Limit: 90, Before: 100, Cause: control.CauseAboveTarget},
		target / 2:     {Limit: 110, Before: 100, Cause: control.CauseBelowTarget},
		target:         {Limit: 100, Before: 100, Cause: control.CauseOnTarget},
		target * 9 / 8: {Limit: 96, Before: 100, Cause: control.CauseAboveTarget},
	} {
		if got := newLoop(t, pidConfig(), 100).Tick(100, seen(1000, 0, run)); got != want {
			t.Errorf("%s: got %+v, want %+v", run, got, want)
		}
	}
}

// TestPIDDoesNotWindUp: what it could not do for a minute, with the limit at an end of its range, is not made up for: 5 ticks after the
// downstream is another one the limit is on its way, and nowhere does it shoot over by more than a fifth.
func TestPIDDoesNotWindUp(t *testing.T) {
	t.Parallel()
	for _, saturated := range []float64{0.05, 20} { // It would go below 20, and above 100.
		p, want := pidPlant(0.05, 9)
		config := pidConfig()
		config.Min, config.Max = 20, 100
		limit := 50
		l := newLoop(t, config, limit)
		p.capacity *= saturated
		for range time.Minute/interval + 10 {
			limit = l.Tick(limit, p.tick(limit)).Limit
		}
		if end := map[bool]int{true: 20, false: 100}[saturated < 1]; limit != end {
			t.Fatalf("capacity times %g: the limit is %d, not at the end of its range", saturated, limit)
		}
		start := limit
		p.capacity /= saturated
		for tick := range 40 {
			limit = l.Tick(limit, p.tick(limit)).Limit
			left, at := math.Abs(float64(limit)-want()), math.Abs(float64(start)-want())
			if tick == 4 && left > at/2 {
				t.Errorf("capacity times %g: 5 ticks after its end the limit is %d, from %d, and belongs to %.0f", saturated, limit, start, want())
			}
			if over := (float64(limit)/want() - 1) * math.Copysign(1, want()-float64(start)); over > 0.2 {
				t.Errorf("capacity times %g: %.2f beyond at tick %d", saturated, over, tick)
			}
		}
	}
}

// saturations are by which part a limit is to be another than the end of its range, at which it was for a minute: as far as five steps of a twentieth up or a tenth
// down go (1.05^5 = 1.28, 0.9^5 = 0.59), and further than a measurement may be off.
var saturations = []float64{1.1, 1.15, 1.2, 1.28, 0.9, 0.8, 0.7, 0.65, 0.59}

// TestPIDRecoversWithinFiveTicks of a minute of saturation: it is on its way with the first, and within 15 % of where it belongs with the fifth, where slew lets it go so far.
func TestPIDRecoversWithinFiveTicks(t *testing.T) {
	t.Parallel()
	for _, noise := range []float64{0, 0.05} {
		for _, ratio := range saturations {
			for seed := range uint64(40) {
				p, want := pidPlant(noise, seed)
				config, limit, end := pidConfig(), 350, 200
				config.Min, config.Max = 200, 500
				drive := 0.05
				if ratio < 1 {
					drive, end = 20, 500
				}
				capacity := float64(end) * ratio / target.Seconds()
				p.capacity = capacity * drive
				l := newLoop(t, config, limit)
				for range time.Minute/interval + 10 {
					limit = l.Tick(limit, p.tick(limit)).Limit
				}
				if limit != end {
					t.Fatalf("driven by %g the limit is %d, not at the end of its range", drive, limit)
				}
				p.capacity = capacity
				recovers(t, fmt.Sprintf("%g times the end, noise %g, seed %d", ratio, noise, seed), limit, want(), func(limit int) int { return l.Tick(limit, p.tick(limit)).Limit })
			}
		}
	}
}

// recovers fails a test where five ticks do not bring a limit to where it belongs.
func recovers(t *testing.T, name string, end int, want float64, tick func(limit int) int) {
	t.Helper()
	limit := end
	for i := range 5 {
		limit = tick(limit)
		if up := want > float64(end); i == 0 && (limit == end || limit > end != up) {
			t.Errorf("%s: the first tick goes from %d to %d, and it belongs to %.0f", name, end, limit, want)
		}
	}
	if off := float64(limit)/want - 1; math.Abs(off) > 0.15 {
		t.Errorf("%s: from %d it is %d with the fifth tick, and belongs to %.0f", name, end, limit, want)
	}
}

// TestAPartRecoversWithinFiveTicks as a Loop does.
func TestAPartRecoversWithinFiveTicks(t *testing.T) {
	t.Parallel()
	for _, noise := range []float64{0, 0.05} {
		for _, ratio := range saturations {
			for seed := range uint64(40) {
				random := rand.New(rand.NewPCG(seed, 3))
				limit, end, drive := 600, 200, 1.0
				if ratio < 1 {
					end, drive = whole, 0
				}
				p := newPart(t, control.PartConfig{Min: 200, Max: whole}, limit)
				for range time.Minute/interval + 15 {
					limit = p.Tick(limit, drive, interval).Limit
				}
				if limit != end {
					t.Fatalf("driven by a score of %g the limit is %d, not at the end of its range", drive, limit)
				}
				want := float64(end) * ratio
				recovers(t, fmt.Sprintf("%g times the end, noise %g, seed %d", ratio, noise, seed), limit, want, func(limit int) int {
					return p.Tick(limit, math.Min(1, control.DefaultTarget*float64(limit)/want*(1+noise*(2*random.Float64()-1))), interval).Limit
				})
			}
		}
	}
}

// TestPIDHasNoLimitCycle: with noise of 5 % the limit stays within 10 % of where it belongs, and moves in less than a tenth of the ticks.
func TestPIDHasNoLimitCycle(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		p, want := pidPlant(0.05, seed)
		limit, moves := int(want()), 0
		l := newLoop(t, pidConfig(), limit)
		for tick := range 500 {
			step := l.Tick(limit, p.tick(limit))
			if limit = step.Limit; step.Changed() {
				moves++
			}
			if off := math.Abs(float64(limit)/want() - 1); off > 0.1 {
				t.Fatalf("seed %d: %.2f off at tick %d", seed, off, tick)
			}
		}
		if moves > 50 {
			t.Errorf("seed %d: %d moves in 500 ticks", seed, moves)
		}
	}
}

// TestPIDWithoutASample: it holds, from the third look on it goes back to what is configured, and not while calls that do not end have all
// of the limit. A clock gap is no sample and no reason to go.
func TestPIDWithoutASample(t *testing.T) {
	t.Parallel()
	l, limit := newLoop(t, pidConfig(), 100), 100
	for tick := range 40 {
		step := l.Tick(limit, control.Sample{})
		if limit = step.Limit; tick < 2 && step != (control.Step{Limit: 100, Before: 100, Cause: control.CauseNoSample}) {
			t.Errorf("tick %d: %+v", tick, step)
		}
		if tick >= 2 && step.Cause != control.CauseMissing || float64(limit) > 1.11*float64(step.Before) {
			t.Errorf("tick %d: %+v", tick, step)
		}
	}
	if limit != most {
		t.Errorf("nothing is seen, and the limit is %d, not what is configured", limit)
	}
	for name, s := range map[string]control.Sample{
		"bound": {Bound: true}, "a gap": {Over: 5 * interval, Calls: 5000, Ran: 5000 * time.Hour, Bound: true}, "no calls end": {Over: interval, Bound: true},
		"the time went back": {Over: -interval, Calls: 1000, Ran: time.Hour, Bound: true},
	} {
		l := newLoop(t, pidConfig(), 100)
		for range 10 {
			if step := l.Tick(100, s); step.Changed() {
				t.Errorf("%s: %+v", name, step)
			}
		}
	}
	l, limit = newLoop(t, pidConfig(), 100), 100
	for range 10 {
		l.Tick(limit, control.Sample{})
		limit = l.Tick(limit, seen(1000, 0, target)).Limit
	}
	if limit != 100 {
		t.Errorf("every other look sees something, and the limit went to %d", limit)
	}
}

// TestPIDIntegratesWhatLasts: an error too small for its proportional part to move a limit of a few does so in the end, and not without an
// integral part.
func TestPIDIntegratesWhatLasts(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		gains control.Gains
		most  int
	}{{control.Gains{Proportional: 0.02, Integral: 0.02}, 7}, {control.Gains{Proportional: 0.02}, 19}} {
		config := pidConfig()
		config.Gains = test.gains
		l, ticks := newLoop(t, config, 10), 0
		for limit := 10; limit == 10 && ticks < 100; ticks++ {
			limit = l.Tick(limit, seen(1000, 0, target*13/10)).Limit
		}
		if ticks > test.most || test.gains.Integral == 0 && ticks < 8 {
			t.Errorf("%+v: moved after %d ticks", test.gains, ticks)
		}
	}
}

// TestPIDLooksAtTheMeasurement: its derivative brakes a limit whose run times rise on the way to the target.
func TestPIDLooksAtTheMeasurement(t *testing.T) {
	t.Parallel()
	rise := func(gains control.Gains) (limit int) {
		config := pidConfig()
		config.Gains = gains
		l := newLoop(t, config, 100)
		limit = l.Tick(100, seen(1000, 0, target*6/10)).Limit
		return l.Tick(limit, seen(1000, 0, target*8/10)).Limit
	}
	if without, with := rise(control.Gains{Proportional: 0.2}), rise(control.Gains{Proportional: 0.2, Derivative: 0.5}); with >= without {
		t.Errorf("%d with a derivative, %d without", with, without)
	}
}

// TestPIDPlot draws a course as TestPlots does: | is where the limit belongs.
func TestPIDPlot(t *testing.T) {
	t.Parallel()
	datadriven.RunTest(t, "testdata/pid", func(t *testing.T, d *datadriven.TestData) string { //nolint:thelper // It is a test.
		var start, percent int
		var seed uint64
		d.ScanArgs(t, "start", &start)
		d.ScanArgs(t, "noise", &percent)
		d.ScanArgs(t, "seed", &seed)
		p, want := pidPlant(float64(percent)/100, seed)
		l, limit := newLoop(t, pidConfig(), start), start
		p.random = rand.New(rand.NewPCG(seed, seed))
		var plot strings.Builder
		for tick := range 90 {
			switch tick {
			case 30:
				p.capacity /= 2
			case 60:
				p.capacity *= 3
			}
			step := l.Tick(limit, p.tick(limit))
			if limit = step.Limit; tick%2 == 0 {
				row := []byte(strings.Repeat(" ", 72))
				row[min(len(row)-1, int(want())/2)] = '|'
				row[min(len(row)-1, limit/2)] = '#'
				fmt.Fprintf(&plot, "%3d %4d %-12s %s\n", tick, limit, step.Cause, strings.TrimRight(string(row), " "))
			}
		}
		return plot.String()
	})
}
