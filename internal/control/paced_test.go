package control_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/control"
)

func newPaced(t *testing.T, c control.PartConfig, limit int) *control.Paced {
	t.Helper()
	c.Min, c.Max = unit, rateMost*unit
	if c.Interval == 0 {
		c.Interval = interval
	}
	p, err := control.NewPaced(c, limit)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestARateIsHeldByASignal: from twice what the target allows, and after what fits halved and grew to two and a half times that, the rate is where the signal is at its
// target from the 18th look on, and stays around there.
func TestARateIsHeldByASignal(t *testing.T) {
	t.Parallel()
	for signal, of := range map[string]struct {
		target, holds float64 // holds is how much of what fits is right.
		interval      time.Duration
		least         map[control.Controller]float64 // part of what is right
	}{
		"run_p95":    {0.125, 1.25, time.Minute, map[control.Controller]float64{control.PID: 0.85, control.AIMD: 0.75}},
		"error_rate": {0.05, 1 / 0.95, time.Minute, map[control.Controller]float64{control.PID: 0.85, control.AIMD: 0.85}},
		"pressure":   {0.3, 1 / 0.85, 10 * time.Second, map[control.Controller]float64{control.PID: 0.85, control.AIMD: 0.85}},
		"cpu":        {0.7, 0.7, 5 * time.Second, map[control.Controller]float64{control.PID: 0.85, control.AIMD: 0.8}},
	} {
		for controller, least := range of.least {
			for seed := range uint64(20) {
				p := &signalPlant{fits: 100, random: rand.New(rand.NewPCG(seed, 3))}
				limit := int(2 * p.fits * of.holds * unit)
				l := newPaced(t, control.PartConfig{Controller: controller, Interval: of.interval, Target: of.target}, limit)
				for look := range 150 {
					switch look {
					case 50:
						p.fits /= 2
					case 100:
						p.fits *= 2.5
					}
					limit = l.Tick(limit, p.paced(signal, float64(limit)/unit, of.interval)).Limit
					if at := float64(limit) / unit / (p.fits * of.holds); look%50 >= 18 && (at < least || at > 1.15) {
						t.Fatalf("%s by %s, seed %d: %.1f a second is %.2f of what is right at look %d", signal, controller, seed, float64(limit)/unit, at, look)
					}
				}
			}
		}
	}
}

// TestARateByASignalTakesOneStep: each look as far as slew allows, a tenth down and a twentieth up, and other steps only for what goes before a signal.
func TestARateByASignalTakesOneStep(t *testing.T) {
	t.Parallel()
	used := control.Sample{Over: interval, Calls: 490}
	seeing := func(s control.Sample, signal float64) control.Sample { s.Signal = signal; return s }
	for name, c := range map[string]struct {
		config control.PartConfig
		sample control.Sample
		want   float64 // of 100 a second
		cause  control.Cause
	}{
		"pid, too much":           {control.PartConfig{}, seeing(used, 1.4), 90, control.CauseAboveTarget},
		"pid, too little":         {control.PartConfig{}, seeing(used, 0.1), 105, control.CauseBelowTarget},
		"pid, as it may be":       {control.PartConfig{}, seeing(used, 0.71), 100, control.CauseOnTarget},
		"aimd, too much":          {control.PartConfig{Controller: control.AIMD}, seeing(used, 0.71), 90, control.CauseAboveTarget},
		"aimd, too little":        {control.PartConfig{Controller: control.AIMD}, seeing(used, 0.7), 105, control.CauseBelowTarget},
		"a wait, too long":        {control.PartConfig{Falls: true}, seeing(used, 1.4), 105, control.CauseAboveTarget},
		"a wait, short":           {control.PartConfig{Falls: true}, seeing(used, 0), 90, control.CauseBelowTarget},
		"aimd, a wait, too long":  {control.PartConfig{Controller: control.AIMD, Falls: true}, seeing(used, 1.4), 105, control.CauseAboveTarget},
		"aimd, a wait, short":     {control.PartConfig{Controller: control.AIMD, Falls: true}, seeing(used, 0), 90, control.CauseBelowTarget},
		"not used, too little":    {control.PartConfig{}, control.Sample{Over: interval, Calls: 360, Signal: 0.1}, 100, control.CauseNotBound},
		"not used, too much":      {control.PartConfig{}, control.Sample{Over: interval, Calls: 360, Signal: 1.4}, 90, control.CauseAboveTarget},
		"not used, a wait, short": {control.PartConfig{Falls: true}, control.Sample{Over: interval, Calls: 360, Signal: 0}, 100, control.CauseNotBound},
		"no calls":                {control.PartConfig{}, control.Sample{Signal: 0.1}, 100, control.CauseNoSample},
		"nobody knows":            {control.PartConfig{}, seeing(used, math.NaN()), 100, control.CauseNoSample},
		"a count went back":       {control.PartConfig{}, control.Sample{Over: interval, Calls: -3, Signal: 1.4}, 100, control.CauseGap},
		"a gap":                   {control.PartConfig{}, control.Sample{Over: 5 * interval, Calls: 2500, Signal: 1.4}, 100, control.CauseGap},
		"refused":                 {control.PartConfig{}, control.Sample{Over: interval, Calls: 400, Refused: 101, Signal: 0.1}, 76.04, control.CauseRefused},
		"refused, nobody knows":   {control.PartConfig{}, control.Sample{Over: interval, Calls: 400, Refused: 101, Signal: math.NaN()}, 76.04, control.CauseRefused},
		"refused, most":           {control.PartConfig{}, control.Sample{Over: interval, Calls: 20, Refused: 480, Signal: 0.1}, 50, control.CauseRefused},
		"a few refused":           {control.PartConfig{}, control.Sample{Over: interval, Calls: 495, Refused: 4, Signal: 0.1}, 105, control.CauseBelowTarget},
		"one of a few refused":    {control.PartConfig{}, control.Sample{Over: interval / 50, Calls: 9, Refused: 1, Signal: 1.4}, 90, control.CauseAboveTarget},
	} {
		config := c.config
		config.Target = 0.7
		step := newPaced(t, config, 100*unit).Tick(100*unit, c.sample)
		if got := float64(step.Limit) / unit; math.Abs(got-c.want) > 0.5 || step.Cause != c.cause {
			t.Errorf("%s: %.2f a second for %s, want %g for %s", name, got, step.Cause, c.want, c.cause)
		}
	}
}

// TestARateWithoutItsSignal stays, and from the third look on goes back to what the policy says, whether calls end or not; from outside of its range it comes in, and
// what somebody else has set is the new start.
func TestARateWithoutItsSignal(t *testing.T) {
	t.Parallel()
	for _, s := range []control.Sample{{Signal: math.NaN()}, {Over: interval, Calls: 500, Signal: -1}} {
		p, limit := newPaced(t, control.PartConfig{Target: 0.7}, 100*unit), 100*unit
		for look := range 100 {
			step := p.Tick(limit, s)
			if limit = step.Limit; look < 2 && step.Changed() || look >= 2 && step.Cause != control.CauseMissing {
				t.Errorf("look %d: %+v", look, step)
			}
		}
		if limit != rateMost*unit {
			t.Errorf("nothing is known, and %d is in force", limit)
		}
	}
	p := newPaced(t, control.PartConfig{Target: 0.7}, 2000*unit)
	if step := p.Tick(2000*unit, control.Sample{Signal: 0.7}); step.Limit != rateMost*unit || step.Cause != control.CauseOutOfRange {
		t.Errorf("above the most: %+v", step)
	}
	if step := p.Tick(50*unit, control.Sample{Over: interval, Calls: 250, Signal: 1.4}); step.Limit != 45*unit {
		t.Errorf("after somebody has set 50: %+v", step)
	}
	p = newPaced(t, control.PartConfig{Target: 0.7}, 100*unit)
	for range 10 { // Idle, with a signal that is known now and then.
		for _, signal := range []float64{math.NaN(), math.NaN(), 0.7} {
			if step := p.Tick(100*unit, control.Sample{Signal: signal}); step.Changed() {
				t.Errorf("each third look knows it: %+v", step)
			}
		}
	}
	if _, err := control.NewPaced(control.PartConfig{Min: unit, Max: unit, Interval: time.Second}, unit); err == nil {
		t.Error("one without a target is made")
	}
}

// TestAReceiverThatRefusesGoesBeforeASignal: with processors idle, whose signal would have ever more, a receiver of 40 a second gets 0.85 of that from the tenth look on,
// and refuses 3 % at most.
func TestAReceiverThatRefusesGoesBeforeASignal(t *testing.T) {
	t.Parallel()
	for _, controller := range []control.Controller{control.PID, control.AIMD} {
		for seed := range uint64(10) {
			r := &receiver{rate: 40, burst: 10, level: 10, jitter: 0.3, random: rand.New(rand.NewPCG(seed, seed))}
			p, limit := newPaced(t, control.PartConfig{Controller: controller, Target: 0.7}, rateMost*unit), rateMost*unit
			var through, refused float64
			const looks = 210
			for look := range looks {
				s := r.tick(float64(limit)/unit, interval)
				s.Signal = 0.1
				limit = p.Tick(limit, s).Limit
				if look >= 10 {
					through, refused = through+float64(s.Calls), refused+float64(s.Refused)
				}
			}
			if share := through / (40 * (looks - 10) * interval.Seconds()); share < 0.85 || refused > 0.03*(through+refused) {
				t.Errorf("%s, seed %d: %.2f of its rate got through, %.3f of the calls were refused", controller, seed, share, refused/(through+refused))
			}
		}
	}
}

// TestWaitsForADispatchAreHeld: the rate goes up while jobs that call the downstream wait longer than the target. From half of what is right, and after twice as much work came, they
// wait at most 1.3 times the target in the second hour, twice of aimd.
func TestWaitsForADispatchAreHeld(t *testing.T) {
	t.Parallel()
	for controller, of := range map[control.Controller]struct {
		gains   control.Gains
		longest float64
	}{control.PID: {control.CallWaitGains, 1.3}, control.AIMD: {control.Gains{}, 2}} {
		for _, target := range []float64{60, 300} {
			for seed := range uint64(10) {
				random := rand.New(rand.NewPCG(seed, 7))
				limit, m := 25*unit, &minute{}
				p := newPaced(t, control.PartConfig{Controller: controller, Interval: time.Minute, Target: target, Falls: true, Gains: of.gains}, limit)
				waiting, comes, calls := 0.0, 50.0, 0.0
				for second := range 4 * 3600 {
					if second == 2*3600 {
						comes *= 2
					}
					waiting += comes * (1 + 0.05*(2*random.Float64()-1))
					left := math.Min(float64(limit)/unit, waiting)
					waiting, calls = waiting-left, calls+left
					wait := waiting / float64(limit) * unit
					if second%5 == 0 {
						m.add(slot{seconds: math.Max(wait, 0.001), runs: left})
					}
					if second%60 == 59 {
						limit = p.Tick(limit, control.Sample{Over: time.Minute, Calls: int64(calls), Signal: m.p95()}).Limit
						calls = 0
					}
					if second%7200 >= 3600 && wait > of.longest*target {
						t.Fatalf("%s, a wait of %g s, seed %d: %.0f s at second %d by %.1f a second", controller, target, seed, wait, second, float64(limit)/unit)
					}
				}
			}
		}
	}
}

// TestARateOfFewMoves: one call in ten seconds is not too few for a step.
func TestARateOfFewMoves(t *testing.T) {
	t.Parallel()
	p, err := control.NewPaced(control.PartConfig{Min: unit / 100, Max: unit, Interval: time.Minute, Target: 1}, unit/10)
	if err != nil {
		t.Fatal(err)
	}
	limit, course := unit/10, []int{}
	for range 4 {
		limit = p.Tick(limit, control.Sample{Over: time.Minute, Calls: 6, Signal: 0.1}).Limit
		course = append(course, limit)
	}
	if fmt.Sprint(course) != "[105000 110250 115763 121551]" {
		t.Errorf("it went by %v", course)
	}
}
