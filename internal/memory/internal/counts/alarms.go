package counts

import (
	"slices"
	"time"

	"github.com/headgate/headgate/store"
)

// Alarms are rates that were not usual. Script anomaly keeps the same.
type Alarms struct {
	kept []store.Anomaly
	gone int64
	// until is when one that goes on is told anew, by what it is of; by kind how many there were.
	until  map[store.Anomaly]int64
	byKind map[string]int64
}

// NewAlarms returns empty ones.
func NewAlarms() Alarms { return Alarms{until: map[store.Anomaly]int64{}, byKind: map[string]int64{}} }

// Note keeps those that do not go on, and returns how many. over is now, or a time before all by which nothing is forgotten.
func (l *Alarms) Note(anomalies []store.Anomaly, now, over int64, id func() string) (kept int) {
	for of, until := range l.until {
		if until <= over {
			delete(l.until, of)
		}
	}
	for _, a := range anomalies {
		of := store.Anomaly{Kind: a.Kind, Of: a.Of, Name: a.Name}
		_, goesOn := l.until[of]
		l.until[of] = now + store.AnomalyQuiet.Microseconds()
		if goesOn {
			continue
		}
		a.ID, a.At = id(), time.UnixMicro(now)
		l.kept = append(l.kept, a)
		if len(l.kept) > store.MaxAnomalies {
			l.kept, l.gone = slices.Delete(l.kept, 0, 1), l.gone+1
		}
		l.byKind[a.Kind]++
		kept++
	}
	return kept
}

// After returns those behind a position, "" for all.
func (l *Alarms) After(position string, count int, behind func(id, position string) bool) store.Stretch[store.Anomaly] {
	of := store.Stretch[store.Anomaly]{Position: position, Gone: l.gone, Kept: int64(len(l.kept))}
	for _, a := range l.kept {
		if len(of.Entries) < count && (position == "" || behind(a.ID, position)) {
			of.Entries, of.Position = append(of.Entries, a), a.ID
		}
	}
	return of
}

// ByKind returns how many there were. It is not to be changed.
func (l *Alarms) ByKind() map[string]int64 { return l.byKind }
