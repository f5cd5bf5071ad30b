package anomaly

import (
	"math"
	"slices"
)

// What makes a rate unusual.
const (
	// History is how many minutes a minute is held against.
	History = 60
	// MinHistory is how many of them must be known.
	MinHistory = 30
	// Score is above which distance from the median, in deviations, a minute is not usual, and InARow how many of these make an alarm.
	Score  = 6
	InARow = 2
	// MinRate is above which count a minute is told of at all.
	MinRate = 10

	// normal makes a standard deviation of the MAD of what is normal: 1/Φ⁻¹(3/4).
	normal = 1.4826
	// leastPart is the least deviation as a part of the median.
	leastPart = 0.1
	// unknown stands for a count that is not known.
	unknown = -1
)

// track is the counts of one name over History minutes. It is for one goroutine.
type track struct {
	// ring has the count of each minute, the minute modulo History, unknown where it is not known.
	ring [History]int32
	// sorted are those that are known, in order; the first n of it.
	sorted [History]int32
	n      int
	// above and below are how many minutes in a row were not usual.
	above, below int
}

func newTrack() track {
	t := track{}
	for i := range t.ring {
		t.ring[i] = unknown
	}
	return t
}

// observe judges the count of a minute by those before it, and then takes it among them.
func (t *track) observe(minute, count int64) (judged verdict) {
	at := int(minute % History)
	was := t.ring[at] // An hour old: it still counts for this minute.
	value := int32(min(count, math.MaxInt32))
	if value != unknown && t.n >= MinHistory {
		judged = t.judge(float64(value))
	}
	t.above, t.below = streak(t.above, judged.above()), streak(t.below, judged.below())
	t.ring[at] = value
	if was != unknown {
		i, _ := slices.BinarySearch(t.sorted[:t.n], was)
		copy(t.sorted[i:t.n], t.sorted[i+1:t.n])
		t.n--
	}
	if value != unknown {
		i, _ := slices.BinarySearch(t.sorted[:t.n], value)
		copy(t.sorted[i+1:t.n+1], t.sorted[i:t.n])
		t.sorted[i] = value
		t.n++
	}
	return judged
}

func streak(before int, goesOn bool) int {
	if goesOn {
		return before + 1
	}
	return 0
}

// verdict is what a count is beside what is usual. The zero verdict is of a count that nobody can judge.
type verdict struct{ rate, usual, deviation, score float64 }

func (v verdict) above() bool { return v.score > Score && v.rate > MinRate }
func (v verdict) below() bool { return v.score < -Score && v.usual > MinRate }

func (t *track) judge(rate float64) verdict {
	known := t.sorted[:t.n]
	median := medianOf(known)
	deviation := max(normal*distanceOf(known, median), math.Sqrt(max(median, 1)), leastPart*median)
	return verdict{rate: rate, usual: median, deviation: deviation, score: (rate - median) / deviation}
}

// medianOf returns the median of what is in order.
func medianOf(sorted []int32) float64 {
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return float64(sorted[half])
	}
	return (float64(sorted[half-1]) + float64(sorted[half])) / 2
}

// distanceOf returns the median of the distances from the median: they are walked from the nearest on, to both sides at once.
func distanceOf(sorted []int32, median float64) float64 {
	right, _ := slices.BinarySearchFunc(sorted, median, func(v int32, m float64) int {
		if float64(v) < m {
			return -1
		}
		return 1
	})
	left := right - 1
	before, last := 0.0, 0.0
	for range len(sorted)/2 + 1 {
		before = last
		switch {
		case left < 0 || right < len(sorted) && float64(sorted[right])-median <= median-float64(sorted[left]):
			last = float64(sorted[right]) - median
			right++
		default:
			last = median - float64(sorted[left])
			left--
		}
	}
	if len(sorted)%2 == 1 {
		return last
	}
	return (before + last) / 2
}
