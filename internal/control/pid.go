package control

import (
	"math"
	"strconv"
)

// Gains are those of a PID controller: by which part of the limit it moves for an error of 1 (Proportional), for one that has lasted an
// interval (Integral), and for a change of 1 in an interval (Derivative). Each is 0 to MaxGain.
type Gains struct{ Proportional, Integral, Derivative float64 }

// MaxGain is how much a gain is at most: from 10 on an error of a hundredth is a tenth of the limit, which is the longest step.
const MaxGain = 10.0

// DefaultGains are those of the papers, there for errors in percent, which saturate at once; of errors as parts they are well behaved.
var DefaultGains = Gains{Proportional: 0.5, Integral: 0.1, Derivative: 0.2}

// validate reports gains out of range, and any where they are of no use.
func (g Gains) validate(used bool, add func(field, value, allowed string)) {
	most, allowed := 0.0, "none, but of pid"
	if used {
		most, allowed = MaxGain, "0 to "+strconv.Itoa(MaxGain)
	}
	for _, gain := range []struct {
		name string
		of   float64
	}{{"kp", g.Proportional}, {"ki", g.Integral}, {"kd", g.Derivative}} {
		if !(gain.of >= 0 && gain.of <= most) {
			add(gain.name, strconv.FormatFloat(gain.of, 'g', -1, 64), allowed)
		}
	}
}

// WaitGains are those of PID by how long jobs waited: a wait adds up what is let in too much, so a controller that adds up as well would swing.
var WaitGains = Gains{Proportional: 0.1, Derivative: 2}

// CallWaitGains are those of PID where the waits are of jobs for a limit of calls (Config.Falls): it may grow by its root at a time, so what waits is gone sooner.
var CallWaitGains = Gains{Proportional: 0.3, Derivative: 2}

const (
	// tolerance is how far from its target a measurement may be, as a part of it, before anything is done: noise below it moves nothing.
	tolerance = 0.05
	// missedMost is how many looks in a row may see nothing before the limit goes back to the configured one.
	missedMost = 3
)

// pid is the controller of Gains, as the package's doc derives it: errors are parts of the target, the derivative is that of the
// measurement (a new target is no kick), and nothing is integrated that the limit cannot follow (conditional integration: Åström and
// Hägglund, "PID Controllers", 1995, section 3.5). Measurements are values that grow with the limit.
type pid struct {
	gains       Gains
	target      float64
	least, most float64
	// signal says that the target is of Sample.Signal, not of run times.
	signal bool
	// sum is the integral of the error, in intervals; before was measured last, NaN where nothing was.
	sum, before float64
}

func newPID(gains Gains, target float64, least, most int) *pid {
	p := &pid{gains: gains, target: target, least: float64(least), most: float64(most)}
	p.forget()
	return p
}

func (p *pid) pause() { p.forget() }

func (p *pid) forget() { p.sum, p.before = 0, math.NaN() }

// step returns where a limit goes by what was measured over a number of intervals, which is NaN or infinite where nothing was.
func (p *pid) step(limit, measured, intervals float64) (to float64, why Cause) {
	if math.IsNaN(measured) || math.IsInf(measured, 0) || !(intervals > 0) {
		return limit, CauseNoSample
	}
	intervals = math.Min(intervals, maxGap)
	e := beyond((p.target-measured)/p.target, tolerance)
	change := 0.0
	if !math.IsNaN(p.before) {
		change = beyond((measured-p.before)/p.target, 2*tolerance) / intervals // Two measurements, twice the noise.
	}
	p.before = measured
	sum := p.sum + e*intervals
	if sum*e < 0 {
		sum = 0 // What it was for is over: the error has gone to the other side.
	}
	wanted := p.gains.Proportional*e + p.gains.Integral*sum - p.gains.Derivative*change
	out := math.Max(-downMost, math.Min(wanted, math.Max(upMost, 1/math.Sqrt(limit))))
	to = limit * (1 + out)
	if saturated := out != wanted || to <= p.least || to >= p.most; !saturated || wanted*e < 0 {
		p.sum = sum
	}
	switch {
	case e == 0 && out == 0:
		return limit, CauseOnTarget
	case out < 0:
		return to, CauseAboveTarget
	}
	return to, CauseBelowTarget
}

// beyond is what of a value is beyond a bound, either way.
func beyond(v, bound float64) float64 {
	return v - math.Max(-bound, math.Min(v, bound))
}

// next holds the mean run time, or the signal, at the target.
func (p *pid) next(limit float64, _ int, s Sample, intervals float64) (float64, Cause) {
	if p.signal {
		return p.step(limit, s.Signal, intervals)
	}
	return p.step(limit, s.runTime().Seconds(), intervals)
}
