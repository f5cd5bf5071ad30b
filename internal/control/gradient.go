package control

import "math"

// gradient goes where goodput grows with the limit, as the package's doc derives it.
type gradient struct {
	most   float64
	points []point
	// way is that of the last step, 1 up and -1 down, 0 before the first; pace how long it was, of the longest that may be.
	way, pace float64
}

// point is what was seen under a limit. Both are logarithms, so that a slope of 1 is "so much more limit, so much more goodput".
type point struct{ limit, goodput float64 }

// What was searched for by simulation (TestGradientFindsTheBestLimit): with these every run of some thousand ends well.
const (
	// pointsKept is how many points count, and fade the weight of each beside the one after it: a change of the downstream is
	// forgotten in about four.
	pointsKept, fade = 8, 0.6
	// leastSpread is by how much limits have to differ (standard deviation, about 1.5 %) for a slope to say something.
	leastSpread = 0.015
	// From a slope of gain on a higher limit is worth it, up to one of noGain a lower one costs little. Throughput that is the
	// power of 1/gain-1 as dear as run time (Kleinrock) has its best at a slope of gain.
	gain, noGain = 0.5, 0.35
	// longer multiplies the pace of a step the same way as the last, turned is that of one back. leastPace is the least part of the
	// limit by which a step goes: shorter ones would drown in noise.
	longer, turned, leastPace = 1.2, 0.2, 0.04
)

func (g *gradient) forget() { g.points, g.way, g.pace = nil, 0, 0 }

func (g *gradient) next(limit float64, in int, s Sample, _ float64) (float64, Cause) {
	g.points = append(g.points, point{math.Log(float64(in)), math.Log(math.Max(s.goodput(in), math.SmallestNonzeroFloat64))})
	if len(g.points) > pointsKept {
		g.points = g.points[1:]
	}
	slope, known := g.slope()
	switch {
	case !known && limit >= g.most:
		return g.step(limit, -1), CauseProbe
	case !known:
		return g.step(limit, 1), CauseProbe
	case slope >= gain:
		return g.step(limit, 1), CauseGain
	case slope <= noGain:
		return g.step(limit, -1), CauseNoGain
	}
	return limit, CauseUndecided
}

// step goes up by a root of the limit or down by a tenth at most: first so far, then longer the same way, and a fifth back.
func (g *gradient) step(limit, way float64) float64 {
	switch g.way {
	case 0:
		g.pace = 1
	case way:
		g.pace = math.Min(1, g.pace*longer)
	default:
		g.pace = turned
	}
	g.way = way
	if way > 0 {
		return limit + max(g.pace*math.Sqrt(limit), leastPace*limit, leastStep)
	}
	return limit - max(g.pace*downMost*limit, leastPace*limit, leastStep)
}

// slope is that of goodput over the limits of the points, by least squares with weights; it is not known where the limits hardly differ.
func (g *gradient) slope() (slope float64, known bool) {
	var sum, limit, goodput float64
	for i, p := range g.points {
		w := g.weight(i)
		sum, limit, goodput = sum+w, limit+w*p.limit, goodput+w*p.goodput
	}
	limit, goodput = limit/sum, goodput/sum
	var variance, covariance float64
	for i, p := range g.points {
		w := g.weight(i) / sum
		variance, covariance = variance+w*(p.limit-limit)*(p.limit-limit), covariance+w*(p.limit-limit)*(p.goodput-goodput)
	}
	if variance < leastSpread*leastSpread {
		return 0, false
	}
	return covariance / variance, true
}

func (g *gradient) weight(i int) float64 { return math.Pow(fade, float64(len(g.points)-1-i)) }
