package pressure

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Level is 1, None, to 5. Zero is that of a service that nobody measures.
type Level int

// None is the level below the first bound.
const None Level = 1

// Signal names what is measured.
type Signal string

// What is known of a queue.
const (
	// Wait is how long a job that came now would wait, over the wait aimed at.
	Wait Signal = "wait"
	// Depth is how many jobs wait, over how many may.
	Depth Signal = "depth"
	// Slots is which part of the workers' slots has a job.
	Slots Signal = "slots"
	// RunTime is how long all but one in twenty runs took, over how long they may; Failed is which part of the runs failed, over which may.
	RunTime Signal = "run_p95"
	Failed  Signal = "failed"
	// CPU and Memory are which part of these the worker uses that uses most.
	CPU    Signal = "cpu"
	Memory Signal = "memory"
	// RedisMemory is which part of its maxmemory Redis uses.
	RedisMemory Signal = "redis_memory"
)

// Told reports whether a signal is what workers tell of themselves.
func (s Signal) Told() bool { return s == RunTime || s == Failed || s == CPU || s == Memory }

// Inputs are signals as ratios.
type Inputs map[Signal]float64

// Weights say how much each signal counts. They add up to 1.
type Weights map[Signal]float64

// tolerance is by how much the sum of weights may miss 1.
const tolerance = 1e-9

type weightError struct{ field, value, allowed string }

func (e *weightError) Error() string {
	return "invalid " + e.field + " " + e.value + ": allowed is " + e.allowed
}

func (e *weightError) Invalid() (field, value, allowed string) { return e.field, e.value, e.allowed }

// Validate reports weights that are not above 0, or do not add up to 1, by an error that has Invalid.
func (w Weights) Validate() error {
	sum := 0.0
	for _, signal := range slices.Sorted(maps.Keys(w)) {
		if !(w[signal] > 0 && w[signal] <= 1) {
			return &weightError{"weights." + string(signal), number(w[signal]), "above 0, at most 1"}
		}
		sum += w[signal]
	}
	if math.Abs(sum-1) > tolerance {
		return &weightError{"weights", "with the sum " + number(sum), "weights that add up to 1"}
	}
	return nil
}

func number(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }

// Part is what one signal adds.
type Part struct {
	Signal Signal
	// Value is the signal, at most 1; Weight is its own.
	Value, Weight float64
	// Neutral is a signal that is absent, not a number or below 0: it counts for nothing.
	Neutral bool
}

// Reading is what signals come to.
type Reading struct {
	// Score is 0 to 1.
	Score float64
	Level Level
	// Parts has each signal that has a weight, by name.
	Parts []Part
}

// Score weighs signals. Without any it is 0.
func Score(in Inputs, weights Weights) Reading {
	var r Reading
	sum, whole := 0.0, 0.0
	for _, signal := range slices.Sorted(maps.Keys(weights)) {
		x, measured := in[signal]
		p := Part{Signal: signal, Value: min(x, 1), Weight: weights[signal]}
		if !measured || !(x >= 0) { // Not a number is neither above nor below.
			p.Value, p.Neutral = 0, true
		} else {
			sum, whole = sum+p.Weight*p.Value, whole+p.Weight
		}
		r.Parts = append(r.Parts, p)
	}
	if whole > 0 {
		r.Score = min(sum/whole, 1)
	}
	r.Level = LevelOf(r.Score)
	return r
}

// Neutral names the signals that count for nothing.
func (r Reading) Neutral() (names []string) {
	for _, p := range r.Parts {
		if p.Neutral {
			names = append(names, string(p.Signal))
		}
	}
	return names
}

// String tells of the parts, such as "wait 0.9 of weight 0.7, depth unknown of weight 0.3".
func (r Reading) String() string {
	var parts []string
	for _, p := range r.Parts {
		value := "unknown"
		if !p.Neutral {
			value = number(math.Round(p.Value*1000) / 1000)
		}
		parts = append(parts, string(p.Signal)+" "+value+" of weight "+number(p.Weight))
	}
	return strings.Join(parts, ", ")
}

// bounds are the scores from which on the levels hold, from the level above None on.
var bounds = [...]float64{0.5, 0.7, 0.85, 0.95}

// LevelOf returns the level of a score, 0 to 1, without a memory of others.
func LevelOf(score float64) Level {
	level := None
	for _, bound := range bounds {
		if score >= bound {
			level++
		}
	}
	return level
}
