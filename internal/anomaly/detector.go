package anomaly

import (
	"cmp"
	"slices"
	"strings"
)

// Kind is what is not usual.
type Kind string

// The kinds of alarms.
const (
	Surge        Kind = "surge"
	Silence      Kind = "silence"
	RefusalSurge Kind = "refusal_surge"
)

// Subject says whose rate it is.
type Subject string

// Whose rates are watched. Deployment has no name.
const (
	Deployment Subject = "deployment"
	Tenant     Subject = "tenant"
	Queue      Subject = "queue"
)

// Name is somebody or something with a rate of its own.
type Name struct {
	Of   Subject
	Name string
}

// Decided is what was counted of a name in a minute.
type Decided struct{ Admitted, Refused int64 }

// Minute is what was counted in one.
type Minute struct {
	// At is the minute, counted from 1970.
	At int64
	// Counts are those of each name that was counted.
	Counts map[Name]Decided
	// Unsure are names that were counted for a part of the minute only. Unknown are subjects of which one that is not in Counts may have had
	// something: there were more tenants than are counted, or nobody counted queues. Else who is not there had nothing.
	Unsure  map[Name]bool
	Unknown map[Subject]bool
}

// Alarm is a name that has had rates that are not usual for InARow minutes, the one at At included.
type Alarm struct {
	Kind Kind
	Name
	At int64
	// Rate is the count of the minute, Usual the median of the hour before, Deviation that from it, Score how many of these Rate is away.
	Rate, Usual, Deviation, Score float64
}

// Bounds of what a Detector does.
const (
	// MaxNames is how many names are watched at a time, some 1.2 KB each. Later ones are not, until there is room.
	MaxNames = 4096
	// MaxAlarms is how many alarms a minute has at most, those with the highest scores.
	MaxAlarms = 64
)

// Detector watches rates, minute by minute. The zero Detector is ready. It is for one goroutine.
type Detector struct {
	names map[Name]*watched
	last  int64
}

// watched is a name, and when it was last counted.
type watched struct {
	all, refused track
	seen         int64
}

// Watched returns how many names are.
func (d *Detector) Watched() int { return len(d.names) }

// Last returns the last minute that was observed, 0 for none.
func (d *Detector) Last() int64 { return d.last }

// Observe judges a minute, and returns the alarms that are on in it, the highest score first: one that goes on is returned each minute.
// Minutes come in order: one that is not later than the last is not looked at, and those that are left out are not known.
func (d *Detector) Observe(m Minute) []Alarm {
	switch {
	case d.last != 0 && m.At <= d.last:
		return nil
	case d.names == nil || d.last == 0 || m.At-d.last > History:
		d.names = map[Name]*watched{}
	default:
		for skipped := d.last + 1; skipped < m.At; skipped++ {
			for _, w := range d.names {
				w.all.observe(skipped, unknown)
				w.refused.observe(skipped, unknown)
			}
		}
	}
	d.last = m.At
	d.welcome(&m)
	var alarms []Alarm
	for name, w := range d.names {
		if m.At-w.seen >= History {
			delete(d.names, name)
			continue
		}
		alarms = w.observe(alarms, name, &m)
	}
	return loudest(alarms)
}

// welcome begins to watch who was not, in an order of names, so that it is the same whoever asks.
func (d *Detector) welcome(m *Minute) {
	var fresh []Name
	for name := range m.Counts {
		if w := d.names[name]; w != nil {
			w.seen = m.At
		} else {
			fresh = append(fresh, name)
		}
	}
	slices.SortFunc(fresh, func(a, b Name) int { return cmp.Or(cmp.Compare(a.Of, b.Of), strings.Compare(a.Name, b.Name)) })
	for _, name := range fresh[:min(len(fresh), MaxNames-len(d.names))] {
		d.names[name] = &watched{all: newTrack(), refused: newTrack(), seen: m.At}
	}
}

// observe judges a name, and adds its alarms.
func (w *watched) observe(alarms []Alarm, name Name, m *Minute) []Alarm {
	counts, counted := m.Counts[name]
	all, refused := counts.Admitted+counts.Refused, counts.Refused
	if m.Unsure[name] || !counted && m.Unknown[name.Of] {
		all, refused = unknown, unknown
	}
	rate, refusals := w.all.observe(m.At, all), w.refused.observe(m.At, refused)
	for _, on := range []struct {
		kind  Kind
		times int
		v     verdict
	}{{Surge, w.all.above, rate}, {Silence, w.all.below, rate}, {RefusalSurge, w.refused.above, refusals}} {
		if on.times >= InARow {
			alarms = append(alarms, Alarm{on.kind, name, m.At, on.v.rate, on.v.usual, on.v.deviation, on.v.score})
		}
	}
	return alarms
}

// loudest returns the alarms that are told. Of a deployment that is silent as a whole that is told alone.
func loudest(alarms []Alarm) []Alarm {
	if slices.ContainsFunc(alarms, func(a Alarm) bool { return a.Kind == Silence && a.Of == Deployment }) {
		alarms = slices.DeleteFunc(alarms, func(a Alarm) bool { return a.Kind == Silence && a.Of != Deployment })
	}
	slices.SortFunc(alarms, func(a, b Alarm) int {
		return cmp.Or(cmp.Compare(abs(b.Score), abs(a.Score)), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Of, b.Of), strings.Compare(a.Name.Name, b.Name.Name))
	})
	return alarms[:min(len(alarms), MaxAlarms)]
}

func abs(x float64) float64 { return max(x, -x) }
