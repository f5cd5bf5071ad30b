package load

import (
	"maps"
	"slices"
	"sort"
	"strings"
	"time"
)

// The shapes of the load of scenario overload.
const (
	ShapeStep    = "step"
	ShapeRamp    = "ramp"
	ShapeBursts  = "bursts"
	ShapeSlow    = "slow"
	ShapeRetries = "retries"
	ShapeDrain   = "drain"
)

// The parts of the run between which more arrives than can be served, and what arrives before and after, in parts of what can be.
const (
	overloadFrom, overloadTo = 0.2, 0.6
	overloadBase             = 0.5
	// slowBase arrives all the time where handlers slow down, drainBase after the overload where it drains slowly.
	slowBase, drainBase = 0.75, 0.9
	// burstEvery and burstFor are how often a burst comes, and for how long.
	burstEvery, burstFor = 500 * time.Millisecond, 100 * time.Millisecond
	// retries is how often a caller asks again who was refused.
	retries = 3
)

// shape is how a load goes over a run.
type shape struct {
	about string
	// rate is what arrives at a part of a run that lasts so long, in parts of what the slots can serve while handlers are as fast as
	// otherwise. times is how much more than that the overload is.
	rate func(at, times float64, lasts time.Duration) float64
}

var shapes = map[string]shape{
	ShapeStep:    {"so much from two to six tenths of the run, else half", step(overloadBase)},
	ShapeRamp:    {"from half up to so much, evenly", ramp},
	ShapeBursts:  {"so much for 100 ms every 500 ms", everySoOften},
	ShapeSlow:    {"three quarters all the time, while handlers take so many times as long", func(float64, float64, time.Duration) float64 { return slowBase }},
	ShapeRetries: {"a step, and who is refused asks again three times", step(overloadBase)},
	ShapeDrain:   {"a step, and nine tenths after it", step(drainBase)},
}

// Shapes are the names of all shapes.
func Shapes() []string { return slices.Sorted(maps.Keys(shapes)) }

// AboutShapes says of each shape what it is.
func AboutShapes() string {
	var all []string
	for _, name := range Shapes() {
		all = append(all, name+": "+shapes[name].about)
	}
	return strings.Join(all, "; ")
}

func step(after float64) func(at, times float64, lasts time.Duration) float64 {
	return func(at, times float64, _ time.Duration) float64 {
		switch {
		case at < overloadFrom:
			return overloadBase
		case at < overloadTo:
			return times
		}
		return after
	}
}

func ramp(at, times float64, _ time.Duration) float64 {
	if at < overloadFrom || at >= overloadTo {
		return overloadBase
	}
	return overloadBase + (times-overloadBase)*(at-overloadFrom)/(overloadTo-overloadFrom)
}

func everySoOften(at, times float64, lasts time.Duration) float64 {
	if at < overloadFrom || at >= overloadTo {
		return overloadBase
	}
	if since := time.Duration((at - overloadFrom) * float64(lasts)); since%burstEvery >= burstFor {
		return overloadBase
	}
	return times
}

// curve is a rate, looked at in even steps over a run, and what has arrived by the end of each.
type curve struct {
	lasts   time.Duration
	rates   []float64
	arrived []float64
}

// curveStep is how long a step of a curve is at most: a tenth of a burst.
const curveStep = burstFor / 10

func newCurve(rate func(at, times float64, lasts time.Duration) float64, times float64, lasts time.Duration) *curve {
	const least = 1000
	n := max(least, int(lasts/curveStep))
	c := &curve{lasts: lasts, rates: make([]float64, n), arrived: make([]float64, n)}
	sum := 0.0
	for i := range c.rates {
		c.rates[i] = rate((float64(i)+0.5)/float64(n), times, lasts)
		sum += c.rates[i]
		c.arrived[i] = sum
	}
	return c
}

// mean is what arrives in the mean, in parts of what the slots can serve.
func (c *curve) mean() float64 { return c.arrived[len(c.arrived)-1] / float64(len(c.arrived)) }

// bend maps an even draw in [0, 1) to a part of the run, so that what is drawn arrives at the rates of the curve.
func (c *curve) bend(u float64) float64 {
	u *= c.arrived[len(c.arrived)-1]
	i := min(sort.SearchFloat64s(c.arrived, u), len(c.arrived)-1)
	return (float64(i) + 1 - (c.arrived[i]-u)/c.rates[i]) / float64(len(c.arrived))
}

// possible is the part of what the slots can serve that who wastes nothing serves in an overload: what waits, and at most what can be served
// within the longest wait, goes first.
func (c *curve) possible(o *Overload) float64 {
	n := float64(len(c.rates))
	each := c.lasts.Seconds() / n
	waits, served, span := 0.0, 0.0, 0.0
	for i, rate := range c.rates {
		at := time.Duration((float64(i) + 0.5) / n * float64(c.lasts))
		if at < o.From || at >= o.To {
			continue
		}
		span += each
		have := waits + rate*o.Slower*each
		now := min(have, each)
		served += now
		waits = min(have-now, o.MaxWait.Seconds())
	}
	return served / span
}
