package control

import "math"

// aimd grows by a root of the limit while nothing brakes it: additive increase (Chiu and Jain, "Analysis of the Increase and Decrease
// Algorithms for Congestion Avoidance", 1989). The multiplicative decrease is the brake of the Loop, which holds for every rule; with a target
// a signal above it is one more, by a tenth to a fifth: how far it is above says little of how much is too much where it is no time.
type aimd struct{ target float64 }

func (a aimd) next(limit float64, _ int, s Sample, _ float64) (float64, Cause) {
	switch {
	case a.target == 0:
		return limit + math.Sqrt(limit), CauseAdditive
	case s.Signal > a.target:
		return limit * math.Max(failureCut, math.Min(a.target/s.Signal, 1-downMost)), CauseAboveTarget
	}
	return limit + math.Sqrt(limit), CauseBelowTarget
}

func (aimd) pause() {}

func (aimd) forget() {}
