package control

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// RateUnit is how many of the units in which a Rate has its limit are one call a second: millionths, so that a few calls an hour are
// whole numbers too.
const RateUnit = 1_000_000

// RateConfig is between what a rate of calls moves. All of it has to be there.
type RateConfig struct {
	// Min and Max are the bounds of the limit, in RateUnits, 1 or more.
	Min, Max int
	// Interval is how often it is looked.
	Interval time.Duration
}

// Validate reports every bad field at once, each by an error that has Invalid.
func (c RateConfig) Validate() error {
	var bad []error
	if c.Min < 1 {
		bad = append(bad, &configError{"min", strconv.Itoa(c.Min), "1 or more"})
	}
	if c.Max < c.Min {
		bad = append(bad, &configError{"max", strconv.Itoa(c.Max), "min or more"})
	}
	if c.Interval <= 0 {
		bad = append(bad, &configError{"interval", c.Interval.String(), "above 0"})
	}
	return errors.Join(bad...)
}

// The causes of a Rate, beside those of a Loop.
const (
	CauseRefused  Cause = "refused"  // the receiver refused more calls than it may
	CauseSettling Cause = "settling" // what is seen is still of the rate before
	CauseRecover  Cause = "recover"  // back to where it was refused
	CauseBeyond   Cause = "beyond"   // and gently on from there
	CauseFew      Cause = "few"      // the receiver refuses some, but no more than it may
	CausePushback Cause = "pushback" // the receiver asks for less, which says nothing of what it takes
)

const (
	// refusedMost is which part of the calls the receiver may refuse.
	refusedMost = 0.01
	// fewCalls is among how many calls a single refused one says nothing: what is seen then adds up.
	fewCalls = 1 / refusedMost
	// margin is how far below the ceiling a cut goes, and plateau how many intervals the way back takes.
	margin, plateau = 0.05, 10
	// usedLeast is which part of the limit has to be used for a higher one to make sense; from boundFrom on the limit is taken for
	// what the calls came at.
	usedLeast, boundFrom = 0.75, 0.9
	// another is by what a rate grows in an interval once nothing is refused a margin beyond the ceiling: the receiver has become another one.
	another = 1.1
	// growMost is by what a rate grows at most at a time, rateBand the part below which a change is not made.
	growMost, rateBand = 2, 0.005
)

// Rate moves a limit of calls a second to what the receiver takes, as the package's doc derives it. It is not safe for several goroutines.
type Rate struct {
	config RateConfig
	// limit is what is wanted, force what is in force, ceiling where the receiver last refused, all in RateUnits; 0 is no ceiling.
	limit   float64
	force   int
	ceiling float64
	// looks is over how many intervals since the last cut nothing was refused.
	looks float64
	// settling says that the next look is of the rate before the last cut.
	settling bool
	pending  Sample
}

// NewRate returns a Rate that begins with the limit in force, or an error that names every bad field. A limit below the greatest is where
// the receiver refused, for all that is known.
func NewRate(config RateConfig, limit int) (*Rate, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configure controller of a rate: %w", err)
	}
	r := &Rate{config: config}
	r.adopt(limit)
	return r, nil
}

// adopt goes on from a limit that somebody else has set.
func (r *Rate) adopt(limit int) {
	*r = Rate{config: r.config, limit: float64(limit), force: limit, ceiling: float64(limit), looks: plateau}
}

// Tick makes a step of a sample. in is the limit in force: another one than that of the last step is somebody else's, from which it goes on.
func (r *Rate) Tick(in int, s Sample) Step {
	if in != r.force {
		r.adopt(in)
	}
	if in < r.config.Min || in > r.config.Max {
		return r.to(float64(in), CauseOutOfRange)
	}
	if s == (Sample{Bound: s.Bound}) {
		return r.to(r.limit, CauseNoSample)
	}
	if s.Over <= 0 || s.Calls < 0 || s.Refused < 0 || s.Over > maxGap*r.config.Interval {
		r.pending, r.settling = Sample{}, false
		return r.to(r.limit, CauseGap)
	}
	if r.settling {
		r.settling = false
		return r.to(r.limit, CauseSettling)
	}
	r.pending = r.pending.plus(s)
	s = r.pending
	ended := s.Calls + s.Refused
	if ended < minCalls && (s.Refused == 0 || s.Over < maxGap*r.config.Interval) {
		return r.to(r.limit, CauseNoSample)
	}
	if s.Refused == 1 && ended < fewCalls {
		return r.to(r.limit, CauseFew)
	}
	r.pending = Sample{}
	switch share := float64(s.Refused) / float64(ended); {
	case share > refusedMost:
		return r.cut(s)
	case share > 0:
		return r.to(r.limit, CauseFew)
	case s.came() < usedLeast*float64(r.force):
		return r.to(r.limit, CauseNotBound)
	}
	passed := math.Max(1, float64(s.Over)/float64(r.config.Interval))
	r.looks += passed
	u := (r.looks - plateau) / plateau
	cause := CauseRecover
	if u > 0 {
		cause = CauseBeyond
	}
	to := r.ceiling * (1 + margin*u*u*u)
	if u > 1 {
		to = r.limit * math.Pow(another, passed)
	}
	return r.to(math.Max(r.limit, math.Min(r.limit*growMost, to)), cause)
}

// cut goes a margin below what got through, which is the new ceiling.
func (r *Rate) cut(s Sample) Step {
	through := through(s, float64(r.force), r.limit)
	r.ceiling, r.looks, r.settling = through, 0, true
	return r.to(through*(1-margin), CauseRefused)
}

// came is how many calls came, in RateUnits.
func (s Sample) came() float64 { return float64(s.Calls+s.Refused) / s.Over.Seconds() * RateUnit }

// through is how many of them got through, while a rate was in force and another was wanted. Of what was refused one call is left out of account: a single one
// says that there was too much, not how much.
func through(s Sample, force, limit float64) float64 {
	came := s.came()
	if came >= boundFrom*force {
		came = force // What was counted says the same with more noise, and of a burst or of jobs that waited in workers' hands too much.
	}
	got := came * (1 - float64(s.Refused-1)/float64(s.Calls+s.Refused))
	if s.Calls == 0 {
		got = math.Max(got, limit/2)
	}
	return got
}

// to brings the limit to where it is to go, and into force.
func (r *Rate) to(to float64, why Cause) (step Step) {
	r.limit, step = settle(to, r.force, r.config.Min, r.config.Max, rateBand, why)
	r.force = step.Limit
	return step
}
