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
	// RecoveryS is for how many seconds after it a job still was refused, or late.
	RecoveryS float64 `json:"recovery_s"`
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
	last := o.To
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
		if good || e.Answer.Outcome == record.Unsent {
			continue
		}
		turnedAway++
		if a.Class == len(r.Plan.Classes)-1 {
			ofLast++
		}
		last = max(last, a.At, e.Again)
	}
	part := func(n, of int) float64 { return float64(n) / float64(max(1, of)) }
	g.OfCapacity = served.Seconds() / (float64(r.Plan.Slots) * (o.To - o.From).Seconds() * o.Possible)
	g.MostUrgent, g.Last, g.Late = part(urgentInTime, urgent), part(ofLast, turnedAway), part(late, admitted)
	g.RecoveryS = (last - o.To).Seconds()
	return g
}
