package control

import "math"

// aimd grows by a root of the limit while nothing brakes it: additive increase (Chiu and Jain, "Analysis of the Increase and Decrease
// Algorithms for Congestion Avoidance", 1989). The multiplicative decrease is the brake of the Loop, which holds for every rule.
type aimd struct{}

func (aimd) next(limit float64, _ int, _ Sample, _ float64) (float64, Cause) {
	return limit + math.Sqrt(limit), CauseAdditive
}

func (aimd) pause() {}

func (aimd) forget() {}
