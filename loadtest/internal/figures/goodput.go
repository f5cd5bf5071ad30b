package figures

import (
	"time"

	"github.com/headgate/headgate/loadtest/internal/load"
	"github.com/headgate/headgate/loadtest/internal/record"
)

// Goodput is how an overload went.
type Goodput struct {
	// Times is what arrived in it, in parts of what the slots can serve.
	Times float64 `json:"times"`
	// OfCapacity is the jobs that started in it in time, in parts of what the slots can serve of what arrives.
	OfCapacity float64 `json:"of_capacity"`
	// MostUrgent is the part of the jobs of the first class, of the whole run, that started in time.
	MostUrgent float64 `json:"most_urgent_in_time"`
	// Last is the part of the refusals, and of the jobs that were let in and late, that were of the last class.
	Last float64 `json:"last_class_of_refused"`
	// Late is the part of the jobs let in that did not start in time.
	Late float64 `json:"late_of_admitted"`
	// RecoveryS is how many seconds after it the last job was refused or late in a half second in which less than recovered of those that arrived
	// started in time: no such half second follows.
	RecoveryS float64 `json:"recovery_s"`
	// LastTurnedAwayS is for how many seconds after it any job was refused, or late: also one of many, as there are where little less arrives than
	// can be served.
	LastTurnedAwayS float64 `json:"last_turned_away_s"`
}

// An overload is over for good once of the jobs of each recoveryStep that follows this part is in time.
const (
	recovered    = 0.95
	recoveryStep = 500 * time.Millisecond
)

// aftermath is what arrived after an overload, in steps of recoveryStep.
type aftermath []step

type step struct {
	all, turnedAway int
	last            time.Duration // when the last was turned away, since the end of the overload
}

// add counts one that arrived so long after the end, below zero where it was before.
func (a *aftermath) add(since time.Duration, good bool) {
	if since < 0 {
		return
	}
	at := int(since / recoveryStep)
	for len(*a) <= at {
		*a = append(*a, step{})
	}
	s := &(*a)[at]
	s.all++
	if !good {
		s.turnedAway++
		s.last = max(s.last, since)
	}
}

// over returns when the last was turned away of a step that was not well, and when the last of all.
func (a *aftermath) over() (well, last time.Duration) {
	for _, s := range *a {
		last = max(last, s.last)
		if float64(s.turnedAway) > (1-recovered)*float64(s.all) {
			well = s.last
		}
	}
	return well, last
}

// inTime reports whether a job started within the longest wait of an overload, from when its caller asked, or last asked again.
func inTime(o *load.Overload, a *load.Arrival, e *record.Entry) bool {
	return e.Started() > 0 && e.Started()-max(a.At, e.Again) <= o.MaxWait
}

// goodputOf returns how the overload of a run went, nil where it has none.
func goodputOf(r *Run) *Goodput {
	o := r.Plan.Overload
	if o == nil {
		return nil
	}
	g := &Goodput{Times: o.Times}
	var served time.Duration
	var urgent, urgentInTime, turnedAway, ofLast, admitted, late int
	var after aftermath
	entries := r.Book.Entries()
	for i := range entries {
		e, a := &entries[i], &r.Plan.Arrivals[i]
		good := inTime(o, a, e)
		if good && e.Started() >= o.From && e.Started() < o.To {
			served += time.Duration(float64(a.Work) * o.Slower)
		}
		if a.Class == 0 {
			urgent++
			if good {
				urgentInTime++
			}
		}
		if e.Answer.Outcome == record.Admitted {
			admitted++
			if !good {
				late++
			}
		}
		if e.Answer.Outcome == record.Unsent {
			continue
		}
		after.add(max(a.At, e.Again)-o.To, good)
		if good {
			continue
		}
		turnedAway++
		if a.Class == len(r.Plan.Classes)-1 {
			ofLast++
		}
	}
	part := func(n, of int) float64 { return float64(n) / float64(max(1, of)) }
	g.OfCapacity = served.Seconds() / (float64(r.Plan.Slots) * (o.To - o.From).Seconds() * o.Possible)
	g.MostUrgent, g.Last, g.Late = part(urgentInTime, urgent), part(ofLast, turnedAway), part(late, admitted)
	well, last := after.over()
	g.RecoveryS, g.LastTurnedAwayS = well.Seconds(), last.Seconds()
	return g
}
