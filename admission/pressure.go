package admission

import (
	"strconv"
	"time"
)

// PressureLevel says how much more a queue is asked for than it does: 1, none, to 5. Zero is that of a queue that nobody measures.
type PressureLevel int

// The levels, and the score from which on each holds.
const (
	PressureNone     PressureLevel = iota + 1
	PressureLow                    // 0.5
	PressureMedium                 // 0.7
	PressureHigh                   // 0.85
	PressureCritical               // 0.95
)

var levelNames = [...]string{"", "NONE", "LOW", "MEDIUM", "HIGH", "CRITICAL"}

// String returns the level's name in capitals, empty for none measured.
func (l PressureLevel) String() string {
	if l < 0 || int(l) >= len(levelNames) {
		return strconv.Itoa(int(l))
	}
	return levelNames[l]
}

// ParsePressureLevel is the opposite of String.
func ParsePressureLevel(name string) (PressureLevel, bool) {
	for l := PressureNone; l <= PressureCritical; l++ {
		if levelNames[l] == name {
			return l, true
		}
	}
	return 0, false
}

// Pressure is how much a queue is pressed, as an answer tells it. The zero Pressure is that of a queue that nobody measures.
type Pressure struct {
	Level PressureLevel
	// Score is what the level comes from, 0 to 1, to the thousandth.
	Score float64
	// RetryAfter is for how long a caller that can wait should send less: zero at PressureNone.
	RetryAfter time.Duration
}
