package control_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/control"
)

// whole is all of the limits.
const whole = 1000

func newPart(t *testing.T, c control.PartConfig, limit int) *control.Part {
	t.Helper()
	if c.Interval == 0 {
		c.Interval = interval
	}
	if c.Min == 0 {
		c.Min, c.Max = 10, whole
	}
	p, err := control.NewPart(c, limit)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// pressed is the score of work that is offered and let in as far as a part of its limits says: 0.6 where what is let in is what can be done.
func pressed(offered float64, part int) float64 {
	use := offered * float64(part) / whole
	return math.Min(1, 0.6*use*use)
}

// TestAPartHoldsThePressure: with three times as much work as can be done the part that is let in is within 10 ticks of what can be done for
// each halving that this takes, and stays within 10 % of it with noise of 5 %; then it comes back to all.
func TestAPartHoldsThePressure(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		p, limit := newPart(t, control.PartConfig{}, whole), whole
		tick := func(offered float64) {
			limit = p.Tick(limit, pressed(offered, limit)*(1+0.05*(2*random.Float64()-1)), interval).Limit
		}
		for i := range 200 {
			tick(3)
			if let := 3 * float64(limit) / whole; i >= 20 && math.Abs(let-1) > 0.1 {
				t.Fatalf("seed %d: %.2f of what can be done is let in at tick %d", seed, let, i)
			}
		}
		for range 40 {
			tick(0.5)
		}
		if limit != whole {
			t.Errorf("seed %d: work has gone, and %d of %d is in force", seed, limit, whole)
		}
	}
}

// TestAPartByAIMD: with three times as much work as can be done 0.85 to 1.1 of that is let in from the 20th look on, with noise of 5 %; then it comes back to all.
func TestAPartByAIMD(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		p, limit := newPart(t, control.PartConfig{Controller: control.AIMD}, whole), whole
		tick := func(offered float64) {
			limit = p.Tick(limit, pressed(offered, limit)*(1+0.05*(2*random.Float64()-1)), interval).Limit
		}
		for i := range 200 {
			tick(3)
			if let := 3 * float64(limit) / whole; i >= 20 && (let < 0.85 || let > 1.1) {
				t.Fatalf("seed %d: %.2f of what can be done is let in at tick %d", seed, let, i)
			}
		}
		for range 40 {
			tick(0.5)
		}
		if limit != whole {
			t.Errorf("seed %d: work has gone, and %d of %d is in force", seed, limit, whole)
		}
	}
}

// TestTheStepThatTruncationNeverMoves: a twentieth of a small part is less than a unit, and a step cut to whole units would leave it there for good. Here parts of a
// unit add up, so that the least part is at the most again.
func TestTheStepThatTruncationNeverMoves(t *testing.T) {
	t.Parallel()
	p, limit := newPart(t, control.PartConfig{Controller: control.AIMD, Min: 1, Max: whole}, 1), 1
	var course []int
	for range 400 {
		step := p.Tick(limit, 0.1, interval)
		if limit = step.Limit; step.Changed() && len(course) < 9 {
			course = append(course, limit)
		}
	}
	if fmt.Sprint(course) != "[2 3 4 5 6 7 8 9 10]" || limit != whole {
		t.Errorf("from 1 it went by %v, and came to %d", course, limit)
	}
	p, limit = newPart(t, control.PartConfig{Controller: control.AIMD, Min: 1, Max: whole}, 4), 4
	for range 20 { // A tenth of 4 is less than a unit, too.
		limit = p.Tick(limit, 0.9, interval).Limit
	}
	if limit != 1 {
		t.Errorf("from 4 it came to %d", limit)
	}
}

// TestAIMDOfAPartKeepsItsBounds: a tenth down and a twentieth up at most at a time, rounding and what the dead band held left out, nothing within the least time from
// one change to the next, and never beyond its range, whatever is seen.
func TestAIMDOfAPartKeepsItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		least, limit := rapid.IntRange(1, 500).Draw(rt, "least"), rapid.IntRange(500, whole).Draw(rt, "limit")
		minChange := rapid.SampledFrom([]time.Duration{0, 3 * interval}).Draw(rt, "min change")
		p := newPart(t, control.PartConfig{Controller: control.AIMD, Min: least, Max: whole, MinChange: minChange}, limit)
		since := time.Hour
		for range rapid.IntRange(1, 60).Draw(rt, "looks") {
			score := rapid.SampledFrom([]float64{math.NaN(), -1, 0, 0.5, 0.61, 1, 50}).Draw(rt, "score")
			over := rapid.SampledFrom([]time.Duration{interval, interval, interval, 9 * interval, 0}).Draw(rt, "over")
			step := p.Tick(limit, score, over)
			before, to := float64(step.Before), float64(step.Limit)
			since += over
			if step.Limit < least || step.Limit > whole || to < 0.88*before-1 || to > 1.07*before+1 {
				rt.Fatalf("%+v", step)
			}
			if over > 4*interval || over == 0 || !(score >= 0) {
				if step.Limit < step.Before {
					rt.Fatalf("score %g over %s: %+v", score, over, step)
				}
			}
			if step.Changed() {
				if since < minChange {
					rt.Fatalf("%s after the last change: %+v", since, step)
				}
				since = 0
			}
			limit = step.Limit
		}
	})
}

// TestHealthGoesBySteps: half of the limit below 0.3, 1.2 of it above 0.8, nothing between, and no change within half a minute of another.
func TestHealthGoesBySteps(t *testing.T) {
	t.Parallel()
	for score, want := range map[float64]control.Step{
		0.71: {Limit: 250, Before: 500, Cause: control.CauseIll}, 0.70: {Limit: 500, Before: 500, Cause: control.CauseOnTarget},
		0.20: {Limit: 500, Before: 500, Cause: control.CauseOnTarget}, 0.19: {Limit: 600, Before: 500, Cause: control.CauseWell},
	} {
		if got := newPart(t, control.PartConfig{Controller: control.Health}, 500).Tick(500, score, interval); got != want {
			t.Errorf("score %g: got %+v, want %+v", score, got, want)
		}
	}
	p, limit, at := newPart(t, control.PartConfig{Controller: control.Health}, whole), whole, []int{}
	for tick := range 20 {
		step := p.Tick(limit, 1, interval)
		if limit = step.Limit; step.Changed() {
			at = append(at, tick)
		} else if step.Cause != control.CauseTooSoon {
			t.Errorf("tick %d: %+v", tick, step)
		}
	}
	if fmt.Sprint(at) != "[0 6 12 18]" || limit != 63 {
		t.Errorf("it changed at %v, to %d", at, limit)
	}
}

// TestHealthIsDamped: a single bad look among good ones is none, and three are half of it.
func TestHealthIsDamped(t *testing.T) {
	t.Parallel()
	p := newPart(t, control.PartConfig{Controller: control.Health, MinChange: time.Nanosecond}, 500)
	steps := []control.Cause{}
	for _, score := range []float64{0.5, 1, 0.5, 0.5, 1, 1, 1, 1} {
		steps = append(steps, p.Tick(500, score, interval).Cause)
	}
	want := []control.Cause{control.CauseOnTarget, control.CauseOnTarget, control.CauseOnTarget, control.CauseOnTarget, control.CauseOnTarget, control.CauseIll, control.CauseIll, control.CauseIll}
	if fmt.Sprint(steps) != fmt.Sprint(want) {
		t.Errorf("got %v", steps)
	}
}

// TestHealthMakesNoSmallChange: none of less than a twentieth of what is in force, but to an end of the range, whatever is seen and where it begins.
func TestHealthMakesNoSmallChange(t *testing.T) {
	t.Parallel()
	kept := false
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(10, whole).Draw(rt, "limit")
		p := newPart(t, control.PartConfig{Controller: control.Health, MinChange: time.Nanosecond}, limit)
		for range rapid.IntRange(1, 30).Draw(rt, "looks") {
			score := rapid.SampledFrom([]float64{math.NaN(), math.NaN(), math.NaN(), 0, 0.5, 1}).Draw(rt, "score")
			step := p.Tick(limit, score, interval)
			kept = kept || step.Cause == control.CauseDeadBand
			change := math.Abs(float64(step.Limit - step.Before))
			if step.Changed() && change < 0.05*float64(step.Before) && step.Limit != 10 && step.Limit != whole {
				rt.Fatalf("%+v is a change of %.1f %%", step, 100*change/float64(step.Before))
			}
			limit = step.Limit
		}
	})
	if !kept {
		t.Error("nothing was too little to change")
	}
}

// TestHealthComesBackByFifths from what a breaker's trip has halved, half a minute apart.
func TestHealthComesBackByFifths(t *testing.T) {
	t.Parallel()
	p, limit := newPart(t, control.PartConfig{Controller: control.Health}, whole), whole
	p.Tick(limit, 0, interval)
	limit = whole / 2
	var to, at []int
	for tick := range 30 {
		step := p.Tick(limit, 0, interval)
		if limit = step.Limit; step.Changed() {
			to, at = append(to, limit), append(at, tick)
		}
	}
	if fmt.Sprint(to) != "[600 720 864 1000]" || fmt.Sprint(at) != "[5 11 17 23]" {
		t.Errorf("it came back by %v at %v", to, at)
	}
}

// TestHealthComesBackFromTheLeastPart of which a fifth is no unit.
func TestHealthComesBackFromTheLeastPart(t *testing.T) {
	t.Parallel()
	for least := 1; least <= 10; least++ {
		p := newPart(t, control.PartConfig{Controller: control.Health, Min: least, Max: whole, MinChange: time.Nanosecond}, least)
		limit := least
		for range 60 {
			limit = p.Tick(limit, 0, interval).Limit
		}
		if limit != whole {
			t.Errorf("from %d it came back to %d of %d", least, limit, whole)
		}
	}
}

// TestADayOfHealth: in six hours of work that comes in a wave of an hour, with noise, the limits change 60 times at most, and two changes within five
// minutes go opposite ways only where health, damped as the test does it, was beyond its bound on that side.
func TestADayOfHealth(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 2))
		p, limit := newPart(t, control.PartConfig{Controller: control.Health}, whole), whole
		changes, last, way, damped := 0, -1, 0, math.NaN()
		for tick := range int(6 * time.Hour / interval) {
			offered := 0.8 + 0.9*math.Sin(2*math.Pi*float64(tick)*interval.Hours())
			score := pressed(max(0, offered)*(1+0.2*(2*random.Float64()-1)), limit)
			if damped += (score - damped) * (1 - math.Cbrt(0.5)); math.IsNaN(damped) {
				damped = score
			}
			step := p.Tick(limit, score, interval)
			if limit = step.Limit; !step.Changed() {
				continue
			}
			changes++
			now, beyond := 1, 1-damped > 0.8
			if step.Limit < step.Before {
				now, beyond = -1, 1-damped < 0.3
			}
			if now == -way && tick-last < int(5*time.Minute/interval) && !beyond {
				t.Errorf("seed %d: the other way within five minutes at tick %d, health is %.2f", seed, tick, 1-damped)
			}
			last, way = tick, now
		}
		if changes > 60 || changes == 0 {
			t.Errorf("seed %d: %d changes in six hours", seed, changes)
		}
	}
}

// TestAPartWithoutAScore holds, and from the third look on goes back to all; a gap says nothing; what somebody else has set is the new start.
func TestAPartWithoutAScore(t *testing.T) {
	t.Parallel()
	for _, controller := range []control.Controller{control.PID, control.AIMD, control.Health} {
		p, limit := newPart(t, control.PartConfig{Controller: controller}, 100), 100
		for tick := range 600 {
			step := p.Tick(limit, math.NaN(), interval)
			if limit = step.Limit; tick < 2 && limit != 100 {
				t.Errorf("%s: tick %d: %+v", controller, tick, step)
			}
		}
		if limit != whole {
			t.Errorf("%s: nothing is known, and %d is in force", controller, limit)
		}
		p = newPart(t, control.PartConfig{Controller: controller}, 100)
		for _, over := range []time.Duration{5 * interval, 0, -interval} {
			if step := p.Tick(100, 1, over); step.Changed() || step.Cause != control.CauseGap {
				t.Errorf("%s: over %s: %+v", controller, over, step)
			}
		}
		if step := p.Tick(5, 1, interval); step.Limit != 10 || step.Cause != control.CauseOutOfRange {
			t.Errorf("%s: below the least: %+v", controller, step)
		}
		if step := p.Tick(400, 1, interval); step.Before != 400 || step.Limit > 400 {
			t.Errorf("%s: set by somebody else: %+v", controller, step)
		}
	}
}

func TestABadPartNamesEveryField(t *testing.T) {
	t.Parallel()
	_, err := control.NewPart(control.PartConfig{Controller: control.Gradient, Max: -1, Interval: -1, Target: 1, MinChange: -1, Gains: control.Gains{Derivative: -1}}, 1)
	told := admission.FieldErrors(errors.Unwrap(err))
	fields := map[string]bool{}
	for _, e := range told.(interface{ Unwrap() []error }).Unwrap() {
		if bad, ok := errors.AsType[*admission.FieldError](e); ok {
			fields[bad.Field] = true
		}
	}
	for _, field := range []string{"controller", "min", "max", "interval", "target_pressure", "min_change_interval", "kd"} {
		if !fields[field] {
			t.Errorf("%s is not named in %v", field, err)
		}
	}
	const knee = `invalid controller "gradient": allowed is "pid", "aimd" or "health": gradient looks for how many calls at a time throughput grows no more with, and a rate of admission has no such knee`
	if !strings.Contains(err.Error(), knee) {
		t.Errorf("got %v", err)
	}
	if _, err := control.NewPart(control.PartConfig{Controller: control.AIMD, Min: 1, Max: 2, Interval: 1, Gains: control.Gains{Integral: 1}}, 1); err == nil {
		t.Error("gains of aimd are let pass")
	}
	for _, c := range []control.PartConfig{{Target: 0.5}, {Gains: control.Gains{Integral: 1}}} {
		c.Controller, c.Min, c.Max, c.Interval = control.Health, 1, 2, time.Second
		if _, err := control.NewPart(c, 1); err == nil {
			t.Errorf("%+v is let pass", c)
		}
	}
}

// TestHealthWalk goes by scores as they come, at so many looks: what the damped health comes to shows in when a step is made.
func TestHealthWalk(t *testing.T) {
	t.Parallel()
	datadriven.RunTest(t, "testdata/health", func(t *testing.T, d *datadriven.TestData) string { //nolint:thelper // It is a test.
		var limit, least int
		d.ScanArgs(t, "limit", &limit)
		d.ScanArgs(t, "min", &least)
		p := newPart(t, control.PartConfig{Controller: control.Health, Min: least, Max: whole, MinChange: time.Nanosecond}, limit)
		var walk strings.Builder
		damped := math.NaN()
		for field := range strings.FieldsSeq(d.Input) {
			score, err := strconv.ParseFloat(field, 64)
			if err != nil {
				t.Fatal(err)
			}
			if damped += (score - damped) * (1 - math.Cbrt(0.5)); math.IsNaN(damped) {
				damped = score
			}
			step := p.Tick(limit, score, interval)
			fmt.Fprintf(&walk, "score %.2f: health %.2f, damped %.2f, limit %d to %d, %s\n", score, 1-score, 1-damped, step.Before, step.Limit, step.Cause)
			limit = step.Limit
		}
		return walk.String()
	})
}
