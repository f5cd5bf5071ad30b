package control

import "math"

// gradient goes where goodput grows with the limit, as the package's doc derives it.
type gradient struct {
	most   float64
	points []point
	// way is that of the last step, 1 up and -1 down, 0 where the search begins; stride is how long it was. guessed says that it went without
	// knowing where to.
	way, stride float64
	guessed     bool
	// noise is by how much points are off in the mean, where the limits do not say why.
	noise float64
}

// point is what was seen under a limit. Both are logarithms, so that a slope of 1 is "so much more limit, so much more goodput".
type point struct{ limit, goodput float64 }

// What was searched for by simulation (TestGradientFindsTheBestLimit): with these every run of some thousand ends well. Strides are differences
// of logarithms too.
const (
	// pointsKept is how many points count, and fade the weight of each beside the one after it.
	pointsKept, fade = 5, 0.37
	// leastSpread is by how much limits have to differ (standard deviation) for a slope to say something.
	leastSpread = 0.006
	// From a slope of gain on a higher limit is worth it, up to one of noGain a lower one costs little. Throughput that is the
	// power of 1/gain-1 as dear as run time (Kleinrock) has its best at a slope of gain.
	gain, noGain = 0.6, 0.45
	// firstStride is that of a search, leastStride that around what it found, which is longer where there is much noise: then a short
	// one would show nothing. turned is what is left of a stride after one back.
	firstStride, leastStride, noiseStride, turned = 0.5, 0.075, 1.3, 0.3
	// surprise is by how much goodput is off, and by how many times the noise, where the downstream has become another one. noiseShare is
	// what the last point adds to the noise, and most that it counts for.
	surprise, surpriseOfNoise, noiseShare, mostNoise = 0.25, 5, 0.06, 0.5
)

// pause keeps the last point: where the downstream is what it was then, no search begins.
func (g *gradient) pause() { g.points = g.points[max(0, len(g.points)-1):] }

func (g *gradient) forget() { g.points = nil }

func (g *gradient) next(limit float64, in int, s Sample, _ float64) (float64, Cause) {
	goodput := math.Max(math.SmallestNonzeroFloat64, math.Min(s.goodput(in), math.MaxFloat64))
	seen := point{math.Log(float64(in)), math.Log(goodput)}
	off := g.off(seen)
	if len(g.points) == 0 || math.Abs(off) > math.Max(surprise, surpriseOfNoise*g.noise) {
		g.points, g.way, g.stride = nil, 0, firstStride
	}
	g.noise += noiseShare * (math.Min(math.Abs(off), mostNoise) - g.noise)
	if g.points = append(g.points, seen); len(g.points) > pointsKept {
		g.points = g.points[1:]
	}
	slope, known := g.slope()
	switch {
	case !known && (limit >= g.most || off < 0 && len(g.points) == 1):
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

// off is how far goodput is from what the last point and the limits since then let expect, which is anything from as much as before to as
// much more as the limit.
func (g *gradient) off(seen point) float64 {
	if len(g.points) == 0 {
		return 0
	}
	last := g.points[len(g.points)-1]
	limit, goodput := seen.limit-last.limit, seen.goodput-last.goodput
	return goodput - math.Max(math.Min(0, limit), math.Min(goodput, math.Max(0, limit)))
}

// step goes so far up or down: as far as the last time the same way, and less after one back, but where that was a guess.
func (g *gradient) step(limit, way float64) float64 {
	if g.way == -way && !g.guessed {
		g.stride = math.Max(g.stride*turned, math.Max(leastStride, noiseStride*g.noise))
	}
	g.guessed, g.way = g.way == 0, way
	to := limit * math.Exp(way*g.stride)
	if way > 0 {
		return math.Max(to, limit+leastStep)
	}
	return math.Min(to, limit-leastStep)
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
