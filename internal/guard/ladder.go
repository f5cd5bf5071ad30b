package guard

import (
	"fmt"
	"strconv"
	"time"
)

// State is how near a reading is to its limit.
type State int

// The states.
const (
	Normal State = iota
	Warning
	Violation
)

// String returns the name of the state.
func (s State) String() string { return [...]string{"normal", "warning", "violation"}[s] }

// Kind is what is limited.
type Kind string

// The kinds.
const (
	Memory       Kind = "memory"
	CgroupMemory Kind = "cgroup_memory"
	CPU          Kind = "cpu"
	CgroupCPU    Kind = "cgroup_cpu"
	Goroutines   Kind = "goroutines"
	SchedLatency Kind = "sched_latency"
	Requests     Kind = "requests"
	// Concurrent and Connections are calls and connections of a server, which bounds them itself.
	Concurrent  Kind = "concurrent"
	Connections Kind = "connections"
)

// Reading is how much there is of something, in the unit of its limit.
type Reading struct {
	Kind         Kind
	Value, Limit float64
	// Bounded says that somebody else refuses what is too much: it is told, and keeps no new work away.
	Bounded bool
}

// slack is by how much of its limit a reading must fall below a level to leave it.
const slack = 0.05

// Change is a reading that came to another state, or the first one, which comes from normal.
type Change struct {
	Reading

	From, To State
}

// ladder knows the state of each kind that it was shown.
type ladder struct {
	warnAt float64
	states map[Kind]State
	// violated are the kinds in violation that keep new work away.
	violated map[Kind]bool
}

func newLadder(warnAt float64) *ladder {
	return &ladder{warnAt: warnAt, states: map[Kind]State{}, violated: map[Kind]bool{}}
}

// step takes readings, and returns what they changed, and those of kinds that it had not seen. Kinds without one stay as they are.
func (l *ladder) step(readings []Reading) (changes []Change) {
	for _, r := range readings {
		from, known := l.states[r.Kind]
		to := l.next(from, r.Value/r.Limit)
		if known && from == to {
			continue
		}
		l.states[r.Kind] = to
		if to == Violation && !r.Bounded {
			l.violated[r.Kind] = true
		} else {
			delete(l.violated, r.Kind)
		}
		changes = append(changes, Change{r, from, to})
	}
	return changes
}

// throttled reports whether new work is to stay away.
func (l *ladder) throttled() bool { return len(l.violated) > 0 }

// warned reports whether something is at a warning that keeps new work away at its limit.
func (l *ladder) warned() bool {
	for kind, state := range l.states {
		if state == Warning && kind != Concurrent && kind != Connections {
			return true
		}
	}
	return false
}

func (l *ladder) next(from State, part float64) State {
	switch {
	case part >= 1, from == Violation && part >= 1-slack:
		return Violation
	case part >= l.warnAt, from != Normal && part >= l.warnAt-slack:
		return Warning
	}
	return Normal
}

// names are what a line of the log calls the kinds.
var names = map[Kind]string{
	Memory: "memory usage", CgroupMemory: "memory usage of the cgroup", CPU: "cpu usage", CgroupCPU: "cpu usage of the cgroup",
	Goroutines: "goroutines", SchedLatency: "scheduling latency p99", Requests: "request rate", Concurrent: "concurrent calls",
	Connections: "connections",
}

// String says what changed, in a line.
func (c Change) String() string {
	relation := "is below"
	switch {
	case c.To == Warning && c.From == Violation:
		relation = "is back below"
	case c.To == Warning:
		relation = "approaches"
	case c.To == Violation && c.Value > c.Limit:
		relation = "exceeds"
	case c.To == Violation:
		relation = "is at"
	}
	return fmt.Sprintf("%s %s %s limit %s", names[c.Kind], c.show(c.Value), relation, c.show(c.Limit))
}

// show writes a value with its unit. A MB is 2^20 bytes, and all of a core 100 %.
func (r Reading) show(value float64) string {
	switch r.Kind {
	case Memory, CgroupMemory:
		return strconv.FormatFloat(value/(1<<20), 'f', 1, 64) + "MB"
	case CPU, CgroupCPU:
		return strconv.FormatFloat(value*100, 'f', 1, 64) + "%"
	case SchedLatency:
		return time.Duration(value * float64(time.Second)).Round(time.Microsecond).String()
	case Requests:
		return strconv.FormatFloat(value, 'f', 0, 64) + "/min"
	case Goroutines, Concurrent, Connections:
	}
	return strconv.FormatFloat(value, 'f', 0, 64)
}
