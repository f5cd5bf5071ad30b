package forecast_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/headgate/headgate/internal/forecast"
)

const (
	day  = forecast.Day
	week = forecast.Week
)

// series draws points of a rate: as many as jobs come by chance, which for so many are normally distributed.
func series(seed uint64, points int, rate func(at int) float64) []float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	all := make([]float64, points)
	for at := range all {
		mean := rate(at)
		all[at] = math.Max(0, math.Round(mean+math.Sqrt(mean)*r.NormFloat64()))
	}
	return all
}

// worst returns by which part of what comes a forecast of it is away at most, and on average.
func worst(t *testing.T, f forecast.Forecast, at int, rate func(at int) float64) (most, mean float64) {
	t.Helper()
	for h, got := range f.Points {
		off := math.Abs(got/rate(at+h) - 1)
		most, mean = max(most, off), mean+off/forecast.Horizon
	}
	return most, mean
}

func of(t *testing.T, all []float64) forecast.Forecast {
	t.Helper()
	f, err := forecast.Of(all)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// wave is a day with four fifths more at its height and four fifths less at night, around ten a second.
func wave(at int) float64 { return 6000 * (1 + 0.8*math.Sin(2*math.Pi*float64(at)/float64(day))) }

// TestADailyWaveIsFollowed within 10 %, at each time of day, by two days and by nine, and its error says so.
func TestADailyWaveIsFollowed(t *testing.T) {
	t.Parallel()
	for _, days := range []int{2, 3, 9} {
		sum, most, n := 0.0, 0.0, 0
		for shift := 0; shift < day; shift += 5 {
			points := days*day + shift
			f := of(t, series(uint64(shift), points, wave))
			high, mean := worst(t, f, points, wave)
			sum, most, n = sum+mean, max(most, high), n+1
			if mean > .1 {
				t.Errorf("after %d days and %d points the hour is %.1f %% away: %v", days, shift, 100*mean, f.Points)
			}
			if f.Part() > .05 {
				t.Errorf("after %d days and %d points the error is told as %.1f %%", days, shift, 100*f.Part())
			}
		}
		t.Logf("%d days: an hour is %.1f %% away, a point at most %.1f %%", days, 100*sum/float64(n), 100*most)
	}
}

// TestAFlatQueueGetsItsMean, of which a point is away by chance alone, and by no more than what chance does to the days that it goes by.
func TestAFlatQueueGetsItsMean(t *testing.T) {
	t.Parallel()
	const seeds = 60
	flat, sum := func(int) float64 { return 2000 }, 0.0
	for seed := range uint64(seeds) {
		f := of(t, series(seed, 8*day, flat))
		if _, mean := worst(t, f, 0, flat); mean > .08 {
			t.Errorf("seed %d: of 2000 it foresees %v", seed, f.Points)
		}
		for _, got := range f.Points {
			sum += got / seeds / forecast.Horizon
		}
	}
	if math.Abs(sum/2000-1) > .01 {
		t.Errorf("of 2000 it foresees %.0f on average", sum)
	}
	constant := make([]float64, 3*day)
	for i := range constant {
		constant[i] = 7
	}
	f := of(t, constant)
	for _, got := range f.Points {
		if math.Abs(got-7) > 1e-9 || f.Mean != 0 || f.Naive != 0 {
			t.Errorf("of sevens it foresees %+v", f)
		}
	}
}

// TestAStepIsCaughtUpWith within an hour, where the naive method does not see it before the next day, and the error is below the naive's.
func TestAStepIsCaughtUpWith(t *testing.T) {
	t.Parallel()
	for _, times := range []float64{2, .4} {
		for seed := range uint64(10) {
			began := 4*day - 12
			rate := func(at int) float64 {
				if at >= began {
					return times * wave(at)
				}
				return wave(at)
			}
			all := series(seed, 4*day, rate)
			f := of(t, all[:began+forecast.Horizon])
			if _, mean := worst(t, f, began+forecast.Horizon, rate); mean > .1 {
				t.Errorf("seed %d: an hour after a step to %g times it foresees %v, %.0f %% away", seed, times, f.Points, 100*mean)
			}
			if f := of(t, all); f.Mean > .8*f.Naive {
				t.Errorf("seed %d: the error is %.0f, the naive's %.0f", seed, f.Mean, f.Naive)
			}
		}
	}
}

// TestARampIsLed by its trend: what comes is foreseen nearer than by the level alone.
func TestARampIsLed(t *testing.T) {
	t.Parallel()
	all := make([]float64, 3*day)
	began := 3*day - 18
	for at := range all {
		all[at] = 1000
		if at >= began {
			all[at] += 50 * float64(at-began)
		}
	}
	last := all[len(all)-1]
	if got := of(t, all).Points[0]; got < last-25 || got > last+75 {
		t.Errorf("after %g of a ramp of 50 a point it foresees %g", last, got)
	}
}

// TestWeekends: of seven days of which two have a fifth, and a week after, the first hours of a Monday are foreseen by the Monday before, too: it is half as far away as by the Sunday
// alone, and by the morning it is caught up with.
func TestWeekends(t *testing.T) {
	t.Parallel()
	rate := func(at int) float64 {
		if at/day%7 >= 5 {
			return wave(at) / 5
		}
		return wave(at)
	}
	for at, most := range map[int]float64{14 * day: .5, 14*day + day/3: .1} {
		with, without := of(t, series(1, at, rate)), of(t, series(1, at, rate)[at-4*day:])
		_, byWeek := worst(t, with, at, rate)
		_, byDay := worst(t, without, at, rate)
		if byWeek > most || at == 14*day && byWeek > .7*byDay {
			t.Errorf("point %d of a Monday is %.0f %% away with a week before it, %.0f %% without", at-14*day, 100*byWeek, 100*byDay)
		}
	}
}

// TestPointsThatAreNotKnown: with a third of them, in runs, a wave is followed all the same, and nothing that is known is left out of the error.
func TestPointsThatAreNotKnown(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		all := series(seed, 6*day, wave)
		r := rand.New(rand.NewPCG(seed, 2))
		for at := 1; at < len(all); at++ {
			if r.IntN(12) == 0 {
				for end := min(len(all), at+r.IntN(9)); at < end; at++ {
					all[at] = forecast.Unknown()
				}
			}
		}
		f := of(t, all)
		if _, mean := worst(t, f, len(all), wave); mean > .15 {
			t.Errorf("seed %d: the hour is %.1f %% away: %v", seed, 100*mean, f.Points)
		}
		if math.IsNaN(f.Part()) || f.Part() > .06 {
			t.Errorf("seed %d: the error is %.1f %%", seed, 100*f.Part())
		}
	}
	rate := func(at int) float64 {
		if at >= 4*day-40 {
			return 3 * wave(at)
		}
		return wave(at)
	}
	gap := series(1, 4*day, rate)
	for at := 4*day - 5; at < 4*day; at++ {
		gap[at] = forecast.Unknown()
	}
	if _, mean := worst(t, of(t, gap), 4*day, rate); mean > .25 {
		t.Errorf("behind a gap that follows a step the hour is %.0f %% away", 100*mean)
	}
	all := series(1, 3*day, wave)
	for at := range all[2*day:] { // The last day is gone.
		all[2*day+at] = forecast.Unknown()
	}
	if f, err := forecast.Of(all); err == nil {
		t.Errorf("of a day of which nothing is known it says %+v", f)
	} else if !strings.Contains(err.Error(), "of 3.0 days 288 points of ten minutes are known") {
		t.Error(err)
	}
}

// TestLessThanTwoDaysIsAnError that says how much there is: of a queue that was new yesterday, whatever the days before had.
func TestLessThanTwoDaysIsAnError(t *testing.T) {
	t.Parallel()
	fresh := make([]float64, 15*day)
	for at := range fresh[14*day:] {
		fresh[14*day+at] = 10
	}
	for want, all := range map[string][]float64{
		"there are 1.0": fresh, "there are 0.0": nil, "there are 2.0": series(1, 2*day-1, wave),
	} {
		_, err := forecast.Of(all)
		if _, ok := errors.AsType[*forecast.ShortError](err); !ok || !strings.Contains(err.Error(), want) {
			t.Errorf("%d points are said to be %v, want %s", len(all), err, want)
		}
	}
	if _, err := forecast.Of(series(1, 2*day, wave)); err != nil {
		t.Errorf("two days are said to be %v", err)
	}
}

// TestNothingLaterIsSeen: the error is of forecasts that knew nothing of what they were held against. A last day that is foreseen point by point, by Of
// on what was there before each, has the same one.
func TestNothingLaterIsSeen(t *testing.T) {
	t.Parallel()
	all := series(3, 4*day, wave)
	f := of(t, all)
	sum, n := 0.0, 0
	for origin := 3*day - 1; origin < 4*day-1; origin++ {
		before := of(t, all[:origin+1])
		for h, got := range before.Points {
			if at := origin + 1 + h; at < len(all) {
				sum, n = sum+math.Abs(got-all[at]), n+1
			}
		}
	}
	if n != f.Forecasts || math.Abs(sum/float64(n)-f.Mean) > 1e-6 {
		t.Errorf("the error is told as %.3f of %d forecasts, and is %.3f of %d", f.Mean, f.Forecasts, sum/float64(n), n)
	}
}

// TestAnySeries is foreseen without a number below 0, or one that is none where there is a day to go by.
func TestAnySeries(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(rapid.OneOf(rapid.Float64Range(0, 1e9), rapid.Just(math.NaN()), rapid.Just(0.0)), 0, week+2*day).Draw(t, "points")
		f, err := forecast.Of(all)
		if err != nil {
			return
		}
		for h, got := range f.Points {
			known := false
			for lag := day; lag <= week && len(all)+h-lag >= 0; lag += day {
				known = known || forecast.Known(all[len(all)+h-lag])
			}
			if forecast.Known(got) != known && len(all) >= week || got < 0 || math.IsInf(got, 0) {
				t.Fatalf("point %d is %g: known before: %v", h, got, known)
			}
		}
		if f.Forecasts <= 0 || f.Mean < 0 || f.Naive < 0 || math.IsNaN(f.Mean+f.Naive+f.Level) {
			t.Fatalf("%+v", f.Error)
		}
	})
}

func ExampleOf() {
	points := make([]float64, 2*forecast.Day) // Two days: 60 jobs in ten minutes at night, 600 from six to six.
	for at := range points {
		if points[at] = 60; at%forecast.Day >= forecast.Day/4 && at%forecast.Day < 3*forecast.Day/4 {
			points[at] = 600
		}
	}
	f, err := forecast.Of(points)
	fmt.Printf("%.0f, error %.0f %%, %v\n", f.Points, 100*f.Part(), err)
	// Output: [60 60 60 60 60 60], error 0 %, <nil>
}
