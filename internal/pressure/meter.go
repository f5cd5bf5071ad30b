package pressure

import "slices"

// A level falls once the score has been Margin below its bound for Samples samples in a row.
const (
	Margin  = 0.05
	Samples = 3
)

// Meter is the level of one service over time. The zero Meter is at None. It is for one goroutine.
type Meter struct {
	level Level
	last  []float64
}

// ResumeAt returns a Meter that goes on at a level which another left.
func ResumeAt(level Level) *Meter { return &Meter{level: level} }

// Observe takes a score, 0 to 1, and returns the level.
func (m *Meter) Observe(score float64) Level {
	if m.last = append(m.last, score); len(m.last) > Samples {
		m.last = m.last[1:]
	}
	level := max(m.level, None)
	if len(m.last) == Samples {
		level = min(level, keeps(slices.Max(m.last)))
	}
	m.level = max(level, LevelOf(score))
	return m.level
}

// keeps returns the highest level that a score keeps from falling.
func keeps(score float64) Level {
	level := None
	for _, bound := range bounds {
		if score >= bound-Margin {
			level++
		}
	}
	return level
}
