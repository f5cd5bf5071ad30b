package forecast

import (
	"fmt"
	"math"
	"time"
)

// What a series is made of.
const (
	// Step is how long a point is, Horizon how many are foreseen.
	Step    = 10 * time.Minute
	Horizon = 6
	// Day and Week are how many points they have.
	Day  = int(24 * time.Hour / Step)
	Week = 7 * Day
	// Least is how many points there have to be: one day to go by, and one that is held out.
	Least = 2 * Day
)

// The parameters of the damped trend.
const (
	alpha = 0.4
	beta  = 0.2
	phi   = 0.85
)

// Unknown is a point of which nothing is known.
func Unknown() float64 { return math.NaN() }

// Known reports whether something is known of a point.
func Known(y float64) bool { return !math.IsNaN(y) }

// Forecast is what is foreseen after a series, in its unit.
type Forecast struct {
	// Points come next; one is not Known where no day before has anything at its time.
	Points [Horizon]float64
	Error
}

// Error is how far forecasts of the last day were away.
//
//nolint:recvcheck // It is a plain value, which one method fills.
type Error struct {
	// Mean and Naive are the means of absolute errors, of the forecast and of the seasonal naive method; Level is that of what came.
	Mean, Naive, Level float64
	// Forecasts is of how many they are.
	Forecasts int
}

// Part returns the Mean error over the Level, Unknown where nothing came. NaivePart is the same of the Naive.
func (e Error) Part() float64 { return part(e.Mean, e.Level) }

// NaivePart is the part that Part is, of the seasonal naive method.
func (e Error) NaivePart() float64 { return part(e.Naive, e.Level) }

func part(of, level float64) float64 {
	if level == 0 {
		return Unknown()
	}
	return of / level
}

// ShortError says that a series is too short, or has too little that is known, to say anything.
type ShortError struct {
	// Days are those from the first point of which more than nothing is known to the last, Known how many points of these are known.
	Days  float64
	Known int
}

// Error names what is lacking.
func (e *ShortError) Error() string {
	if e.Days >= 2 {
		return fmt.Sprintf("no forecast: of %.1f days %d points of ten minutes are known, too few to compare the last day with one before", e.Days, e.Known)
	}
	return fmt.Sprintf("no forecast: a day to go by and one to test it on are needed, 2 days of points, and there are %.1f", e.Days)
}

// Of returns the forecast of a series, whose last point has just ended. What comes before its first point above 0 is not looked at. An error is a
// *ShortError.
func Of(series []float64) (Forecast, error) {
	for len(series) > 0 && !(series[0] > 0) {
		series = series[1:]
	}
	short := &ShortError{Days: float64(len(series)) / float64(Day)}
	for _, y := range series {
		if Known(y) {
			short.Known++
		}
	}
	if len(series) < Least {
		return Forecast{}, short
	}
	var f Forecast
	var t trend
	for at := Day; at < len(series); at++ {
		t.observe(series[at] - season(series[:at], at))
		if at >= len(series)-Day-1 { // It is an origin of forecasts for the last day.
			f.judge(series, at, &t)
		}
	}
	if f.Forecasts == 0 {
		return Forecast{}, short
	}
	f.Mean, f.Naive, f.Level = f.Mean/float64(f.Forecasts), f.Naive/float64(f.Forecasts), f.Level/float64(f.Forecasts)
	for h := range f.Points {
		f.Points[h] = t.foresee(series, len(series)+h, h+1)
	}
	return f, nil
}

// judge adds the errors of the forecasts that are made after a point.
func (e *Error) judge(series []float64, origin int, t *trend) {
	for h := 1; h <= Horizon && origin+h < len(series); h++ {
		at := origin + h
		foreseen, naive := t.foresee(series[:origin+1], at, h), series[at-Day]
		if at < len(series)-Day || !Known(series[at]) || !Known(foreseen) || !Known(naive) {
			continue
		}
		e.Mean += math.Abs(foreseen - series[at])
		e.Naive += math.Abs(naive - series[at])
		e.Level += series[at]
		e.Forecasts++
	}
}

// season returns S(t) of the points before t.
func season(before []float64, t int) float64 {
	sum, n := 0.0, 0
	for _, lag := range [...]int{Day, Week} {
		if at := t - lag; at >= 0 && Known(before[at]) {
			sum, n = sum+before[at], n+1
		}
	}
	for lag := 2 * Day; n == 0 && lag < Week && t-lag >= 0; lag += Day {
		if Known(before[t-lag]) {
			sum, n = before[t-lag], 1
		}
	}
	if n == 0 {
		return Unknown()
	}
	return sum / float64(n)
}

// trend is ℓ and b. The zero trend is what there is before the first point.
type trend struct{ level, slope float64 }

// observe takes what the season did not tell of the next point.
func (t *trend) observe(left float64) {
	led, slope := t.level+phi*t.slope, phi*t.slope
	if !Known(left) {
		t.level, t.slope = led, slope
		return
	}
	level := (1-alpha)*led + alpha*left
	t.level, t.slope = level, (1-beta)*slope+beta*(level-t.level)
}

// foresee returns what is foreseen for a point, h after the last of those that are known.
func (t *trend) foresee(before []float64, at, h int) float64 {
	sum, damped := 0.0, 1.0
	for range h {
		damped *= phi
		sum += damped
	}
	return max(0, season(before, at)+t.level+sum*t.slope)
}
