package pressure_test

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/pressure"
)

func levelNamed(t *testing.T, name string) pressure.Level {
	t.Helper()
	level, ok := admission.ParsePressureLevel(name)
	if !ok {
		t.Fatalf("no level %q", name)
	}
	return pressure.Level(level)
}

// TestLevelsBeginAtTheirBounds: at a bound the level is the higher one, a hair below the lower one.
func TestLevelsBeginAtTheirBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		from float64
		want pressure.Level
	}{{0, 1}, {.5, 2}, {.7, 3}, {.85, 4}, {.95, 5}, {1, 5}} {
		one := pressure.Weights{pressure.Wait: 1}
		if got := pressure.Score(pressure.Inputs{pressure.Wait: c.from}, one); got.Level != c.want {
			t.Errorf("score %v is at %v, not %v", got.Score, got.Level, c.want)
		}
		below := math.Nextafter(c.from, -1)
		if got := pressure.Score(pressure.Inputs{pressure.Wait: below}, one).Level; c.from > 0 && c.from < 1 && got != c.want-1 {
			t.Errorf("score %v is at %v, not %v", below, got, c.want-1)
		}
	}
}

// TestHealthIsWhatTheWeightsLeave: of run time 0.4, failures 0.3, cpu 0.2 and depth 0.1 each that is as bad as may be takes its weight of a health of 1, half as
// bad half of it, and what is worse no more.
func TestHealthIsWhatTheWeightsLeave(t *testing.T) {
	t.Parallel()
	weights := pressure.Weights{pressure.RunTime: .4, pressure.Failed: .3, pressure.CPU: .2, pressure.Depth: .1}
	if err := weights.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ run, failed, cpu, depth, health float64 }{
		{0, 0, 0, 0, 1},
		{1, 0, 0, 0, .6},
		{0, 1, 0, 0, .7},
		{0, 0, 1, 0, .8},
		{0, 0, 0, 1, .9},
		{1, 1, 1, 1, 0},
		{.5, 0, 0, 0, .8},
		{0, .5, 0, 0, .85},
		{0, 0, .5, 0, .9},
		{0, 0, 0, .5, .95},
		{.5, .5, .5, .5, .5},
		{7, 0, 0, 0, .6},
		{0, 9, .5, 20, .5},
	} {
		got := 1 - pressure.Score(pressure.Inputs{pressure.RunTime: c.run, pressure.Failed: c.failed, pressure.CPU: c.cpu, pressure.Depth: c.depth}, weights).Score
		if math.Abs(got-c.health) > 1e-12 {
			t.Errorf("%+v leaves %v", c, got)
		}
	}
}

// TestWhatIsNotKnownIsNeutral: a signal that is absent, not a number or negative leaves the score where the others have it.
func TestWhatIsNotKnownIsNeutral(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		share := rapid.Float64Range(.01, .99).Draw(t, "weight")
		weights := pressure.Weights{pressure.Wait: share, pressure.Depth: 1 - share}
		x := rapid.Float64Range(0, 3).Draw(t, "wait")
		in := pressure.Inputs{pressure.Wait: x}
		if rapid.Bool().Draw(t, "there") {
			in[pressure.Depth] = rapid.SampledFrom([]float64{math.NaN(), -1, math.Inf(-1)}).Draw(t, "depth")
		}
		got := pressure.Score(in, weights)
		if math.Abs(got.Score-min(x, 1)) > 1e-12 {
			t.Fatalf("score %v of a wait of %v alone", got.Score, x)
		}
		if names := got.Neutral(); len(names) != 1 || names[0] != "depth" {
			t.Fatalf("%v are said to be neutral", names)
		}
	})
}

// TestLevelsFallLateAndRiseAtOnce, against a meter that counts by the words of the law.
func TestLevelsFallLateAndRiseAtOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		scores := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 60).Draw(t, "scores")
		var m pressure.Meter
		before := pressure.None
		for i, score := range scores {
			at, now := pressure.Score(pressure.Inputs{"x": score}, pressure.Weights{"x": 1}).Level, m.Observe(score)
			if now < at {
				t.Fatalf("%v at a score of %v", now, score)
			}
			if now > before && now != at {
				t.Fatalf("rose to %v at a score of %v", now, score)
			}
			bounds := map[pressure.Level]float64{2: .5, 3: .7, 4: .85, 5: .95}
			low := i >= 2 && max(score, scores[max(0, i-1)], scores[max(0, i-2)]) < bounds[before]-.05
			if fell := now < before; fell != (low && at < before) {
				t.Fatalf("from %v to %v after %v", before, now, scores[:i+1])
			}
			before = now
		}
	})
}
