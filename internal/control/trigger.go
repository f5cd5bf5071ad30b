package control

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Threshold is a value that has been beyond a bound for a time.
type Threshold struct {
	// Below says that the value is beyond where it is less than Bound, else where it is more.
	Below bool
	Bound float64
	// For is how long it has to be, at each look.
	For time.Duration
}

// Beyond reports whether a value is beyond the bound; one that is no number is not.
func (t Threshold) Beyond(value float64) bool {
	if t.Below {
		return value < t.Bound
	}
	return value > t.Bound
}

// Switch is a trigger: off until On has held for its time, then on until Off has for its. It is not safe for several goroutines.
type Switch struct {
	On, Off Threshold
	// Active says that it is on; a Switch may begin so, where it takes over.
	Active bool

	// since is from when on the threshold that would turn it has held, last the look before; zero for none.
	since, last time.Time
}

// switchGap is how far apart two looks may be: what was between them is not known then.
const switchGap = 30 * time.Second

// Look takes what is seen, NaN for what nobody knows, and reports whether the Switch turned. What nobody knows turns none on, and one that is on
// off: no cause is seen any more. Where both bounds are the same, what is at it turns off, too: a depth of 0 is never below 0.
func (s *Switch) Look(value float64, now time.Time) (turned bool) {
	turns := s.On
	holds := turns.Beyond(value)
	if s.Active {
		turns = s.Off
		holds = math.IsNaN(value) || turns.Beyond(value) || s.On.Bound == s.Off.Bound && !s.On.Beyond(value)
	}
	if !holds || now.Sub(s.last) > switchGap {
		s.since = time.Time{}
	}
	s.last = now
	if !holds {
		return false
	}
	if s.since.IsZero() {
		s.since = now
	}
	if now.Sub(s.since) < turns.For {
		return false
	}
	s.Active, s.since = !s.Active, time.Time{}
	return true
}

// Cut is by which part an active trigger makes a limit less.
type Cut struct {
	Name     string
	Priority int
	// By is above -1 and below 0: -0.2 leaves four fifths.
	By float64
}

// Strongest returns the cut that counts, of those that hold for one limit: they do not add up. It is that of the highest priority, among these the one
// that leaves least, of equal ones the first by name. There is none of no cuts.
func Strongest(cuts []Cut) (strongest Cut, ok bool) {
	if len(cuts) == 0 {
		return Cut{}, false
	}
	return slices.MinFunc(cuts, func(a, b Cut) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.By, b.By), cmp.Compare(a.Name, b.Name))
	}), true
}

// Of returns what a cut leaves of a limit that may be least to most: not more than its part of most, and not less than least.
func (c Cut) Of(least, most int) int {
	left := int(math.Floor(float64(most)*(1+c.By) + cutSlack))
	return max(least, min(left, most))
}

// cutSlack is what rounding may have taken: 10 less a fifth is 8, not 7.
const cutSlack = 1e-6

// CauseTrigger is the cause of a step that a trigger's cut made, with the trigger's name behind it; CauseCleared is that of the way back.
const (
	CauseTrigger Cause = "trigger "
	CauseCleared Cause = "trigger_cleared"
)
