package control

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"time"
)

// Sample is what was seen of a downstream since the last one. It may be given before anything was seen: then nothing changes.
type Sample struct {
	// Over is how long was looked.
	Over time.Duration
	// Calls are those that ended with a verdict, Failures those of them that failed, Ran how long they took together.
	Calls, Failures int64
	Ran             time.Duration
	// Refused are those beside Calls that the downstream refused as too many; only a Rate looks at them.
	Refused int64
	// Bound says that jobs waited for a unit of the limit: without that a higher one would change nothing.
	Bound bool
	// Signal is what was read last of what Config.Target is of, in its unit; below 0, or no number, it is not known.
	Signal float64
}

// plus adds a sample that follows. Two are bound if both are.
func (s Sample) plus(t Sample) Sample {
	return Sample{Over: s.Over + t.Over, Calls: s.Calls + t.Calls, Failures: s.Failures + t.Failures, Ran: s.Ran + t.Ran, Refused: s.Refused + t.Refused, Bound: t.Bound && (s.Bound || s.Over == 0), Signal: t.Signal}
}

// empty reports whether nothing was seen of calls.
func (s Sample) empty() bool {
	return s.Over == 0 && s.Calls == 0 && s.Failures == 0 && s.Ran == 0 && s.Refused == 0
}

// goodput is successes a second while so many calls run, by Little's law. What was counted a second says the same with more noise, since
// reports come in portions, and calls that began together end together.
func (s Sample) goodput(running int) float64 {
	return float64(running) * (1 - s.failureShare()) / s.runTime().Seconds()
}

// failureShare is the part of the calls that failed.
func (s Sample) failureShare() float64 { return float64(s.Failures) / float64(s.Calls) }

// runTime is how long a call took in the mean.
func (s Sample) runTime() time.Duration { return s.Ran / time.Duration(s.Calls) }

// Cause says why a limit went where it is.
type Cause string

// The causes.
const (
	CauseNoSample   Cause = "no_sample"    // too few calls ended to say anything
	CauseGap        Cause = "gap"          // nobody looked for several intervals
	CauseNotBound   Cause = "not_bound"    // nobody waited for a unit
	CauseDeadBand   Cause = "dead_band"    // what would change is too little
	CauseRunTime    Cause = "run_time"     // brake: calls took longer than they may
	CauseFailures   Cause = "failures"     // brake: too many calls failed
	CauseAdditive   Cause = "additive"     // AIMD: no brake, so a step up
	CauseProbe      Cause = "probe"        // gradient: what a change does is not known
	CauseGain       Cause = "gain"         // gradient: throughput grows with the limit
	CauseNoGain     Cause = "no_gain"      // gradient: it does not
	CauseUndecided  Cause = "undecided"    // gradient: it is between the two
	CauseOutOfRange Cause = "out_of_range" // the limit was not between least and most

	CauseBelowTarget Cause = "below_target" // PID: less was measured than may be
	CauseAboveTarget Cause = "above_target" // PID: more was
	CauseOnTarget    Cause = "on_target"    // PID: it is where it is to be
	CauseIll         Cause = "ill"          // Health: it is below 0.3
	CauseWell        Cause = "well"         // Health: it is above 0.8
	CauseTooSoon     Cause = "too_soon"     // Health: the last change is too short ago
	CauseTripped     Cause = "tripped"      // the circuit breaker of what it depends on has opened
	CauseMissing     Cause = "missing"      // PID: nothing was measured for several looks, so back to the configured limit
)

// Step is what a Loop made of a sample.
type Step struct {
	// Limit is to be in force; Before was.
	Limit, Before int
	Cause         Cause
}

// Changed reports whether the limit is another one.
func (s Step) Changed() bool { return s.Limit != s.Before }

const (
	// minCalls is how many calls have to end for a sample to say something.
	minCalls = 10
	// minRuns is over how many run times it has to be: else most of its calls began under the limit before.
	minRuns = 4
	// maxGap is how many intervals a sample may be about.
	maxGap = 4
	// deadBand is the part of the limit below which a change is not made, and at least one unit.
	deadBand = 0.02
	// downMost and upMost are by which part of the limit AIMD and PID let it fall and grow at most at a time; it may grow by its root too.
	downMost, upMost = 0.10, 0.05
	// leastStep is the least step of a rule in units, so that a small limit moves too.
	leastStep = 0.5
	// brakeMost is to which part of the limit a brake lowers it at most at a time.
	brakeMost = 0.5
)

// Loop moves one limit. It is not safe for several goroutines.
type Loop struct {
	config Config
	rule   rule
	// limit is what the rule wants, force what is in force: the nearest whole number but for the dead band. So steps of less than a
	// unit add up.
	limit float64
	force int
	// pending is what was seen since the last sample that said something, missed how many looks saw nothing.
	pending Sample
	missed  int
}

// rule is a controller: where a limit is to go, without regard for what a Loop sees to.
type rule interface {
	// next is asked for samples that are bound, each of so many intervals.
	next(limit float64, in int, s Sample, intervals float64) (to float64, why Cause)
	// pause is told that a sample was missed: what the limit does was not to be seen for a while.
	pause()
	// forget is told that what was seen is of the past.
	forget()
}

// New returns a loop that begins with the limit in force, or an error that names every bad field.
func New(config Config, limit int) (*Loop, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configure controller: %w", err)
	}
	config = config.WithDefaults()
	l := &Loop{config: config, limit: float64(limit), force: limit}
	switch config.Controller {
	case AIMD:
		l.rule = aimd{config.Target}
	case PID:
		pid := newPID(config.Gains, cmp.Or(config.Target, config.TargetRunTime.Seconds()), config.Min, config.Max)
		pid.signal = config.Target > 0
		l.rule = pid
	default:
		l.rule = &gradient{most: float64(config.Max)}
	}
	return l, nil
}

// Tick makes a step of a sample. in is the limit in force: another one than that of the last step is somebody else's, from which the
// loop goes on.
func (l *Loop) Tick(in int, s Sample) Step {
	if in != l.force {
		l.limit, l.force = float64(in), in
		l.forget()
	}
	if in < l.config.Min || in > l.config.Max {
		l.forget()
		return l.to(math.Max(float64(l.config.Min), math.Min(float64(in), float64(l.config.Max))), CauseOutOfRange)
	}
	if s.empty() {
		return l.nothing(s.Bound)
	}
	unread := l.config.Target > 0 && (!(s.Signal >= 0) || math.IsInf(s.Signal, 0)) // Not a number is neither above nor below.
	if s.Over <= 0 || s.Calls < 0 || s.Failures < 0 || s.Failures > s.Calls || s.Ran < 0 || s.Over > maxGap*l.config.Interval {
		l.pause()
		return l.to(l.limit, CauseGap)
	}
	l.pending = l.pending.plus(s)
	if l.pending.Calls < minCalls {
		if l.pending.Over > maxGap*l.config.Interval {
			l.pause()
		}
		if s.Calls == 0 || unread {
			return l.nothing(s.Bound && s.Calls == 0)
		}
		l.missed = 0
		return l.to(l.limit, CauseNoSample)
	}
	s = l.pending
	if s.failureShare() > l.config.MaxFailures {
		return l.brake(failureCut, CauseFailures)
	}
	if l.config.MaxRunTime > 0 && s.runTime() > l.config.MaxRunTime {
		return l.brake(float64(l.config.MaxRunTime)/float64(s.runTime()), CauseRunTime)
	}
	if unread {
		l.pause()
		return l.nothing(false)
	}
	l.missed = 0
	if s.Over < minRuns*s.runTime() {
		return l.to(l.limit, CauseNoSample)
	}
	l.pending = Sample{}
	if !s.Bound {
		l.pause()
		return l.to(float64(l.force), CauseNotBound)
	}
	if l.config.Falls {
		s.Signal = mirrored(s.Signal, l.config.Target)
	}
	to, why := l.rule.next(l.limit, l.force, s, float64(s.Over)/float64(l.config.Interval))
	if l.config.Falls {
		why = why.mirrored()
	}
	return l.to(to, why)
}

// mirrored is as far on the other side of a target as a signal is on its own: by that a rule which holds what grows with a limit holds what falls.
func mirrored(signal, target float64) float64 { return 2*target - signal }

// mirrored is the cause of a step by a signal that was mirrored.
func (c Cause) mirrored() Cause {
	if c == CauseBelowTarget {
		return CauseAboveTarget
	}
	if c == CauseAboveTarget {
		return CauseBelowTarget
	}
	return c
}

// nothing was seen: the limit stays, and what holds a target goes back to the configured one after some looks, but while its units are all taken:
// calls that do not end are no reason for more of them.
func (l *Loop) nothing(bound bool) Step {
	if l.missed++; l.missed < missedMost || bound || l.config.Controller != PID && l.config.Target == 0 {
		return l.to(l.limit, CauseNoSample)
	}
	l.forget()
	return l.to(slew(l.limit, math.Max(l.limit, float64(l.config.Max))), CauseMissing)
}

// failureCut is by what a brake multiplies the limit for failures.
const failureCut = 0.8

func (l *Loop) pause() {
	l.pending = Sample{}
	l.rule.pause()
}

func (l *Loop) forget() {
	l.pending = Sample{}
	l.rule.forget()
}

// brake lowers the limit whatever the rule says, at most to brakeMost of it.
func (l *Loop) brake(factor float64, why Cause) Step {
	l.forget()
	l.missed = 0
	return l.to(l.limit*math.Max(brakeMost, math.Min(factor, 1-downMost)), why)
}

// slew bounds how far a limit goes at a time.
func slew(limit, to float64) float64 {
	most := limit + math.Max(upMost*limit, math.Sqrt(limit))
	return math.Max(math.Min(limit*(1-downMost), limit-leastStep), math.Min(to, most))
}

// to brings the limit to where it is to go, and into force.
func (l *Loop) to(to float64, why Cause) (step Step) {
	l.limit, step = settle(to, l.force, l.config.Min, l.config.Max, deadBand, why)
	l.force = step.Limit
	return step
}

// settle returns where a limit is that is to go somewhere, as far as it may be, and the step by which that comes into force: none, where less
// than a part of what is in force would change, but at an end of the range.
func settle(to float64, force, least, most int, band float64, why Cause) (limit float64, step Step) {
	limit = math.Max(float64(least), math.Min(to, float64(most)))
	step = Step{Limit: force, Before: force, Cause: why}
	near := int(math.Round(limit))
	switch atEnd := near == least || near == most; {
	case near == force:
	case math.Abs(float64(near-force)) < band*float64(force) && !atEnd:
		step.Cause = CauseDeadBand
	default:
		step.Limit = near
	}
	return limit, step
}

// causeWords tell causes to people.
var causeWords = map[Cause]string{
	CauseNoSample: "too few calls end to say anything", CauseGap: "nobody looked for a while", CauseNotBound: "no job waits for it",
	CauseDeadBand: "what is to change is too little yet", CauseRunTime: "calls take longer than max_run_time",
	CauseFailures: "more than max_failures of the calls fail", CauseAdditive: "nothing speaks against more", CauseProbe: "to see what it changes",
	CauseGain: "throughput grows with it", CauseNoGain: "throughput does not grow with it", CauseUndecided: "throughput grows with it a little",
	CauseOutOfRange: "it was not between min and max",
	CauseRefused:    "the receiver refused calls as too many", CauseSettling: "what is seen is still of the rate before",
	CauseRecover: "back to where calls were refused", CauseBeyond: "no call is refused, so gently beyond where calls were",
	"override": "an operator has set it for a time", "override_over": "what an operator had set for a time is over",
	CausePushback: "the receiver asks for less",
	CauseFew:      "few enough calls are refused",

	CauseBelowTarget: "what is measured is below its target", CauseAboveTarget: "what is measured is above its target",
	CauseIll: "health is below 0.3", CauseWell: "health is above 0.8", CauseTooSoon: "the last change is too short ago",
	CauseCleared:  "no trigger acts on it any more",
	CauseTripped:  "a circuit breaker that it depends on has opened",
	CauseOnTarget: "what is measured is where it may be", CauseMissing: "nothing was measured for a while, so back to what is configured",
}

// Words tells a cause to people; one of another release by its name.
func (c Cause) Words() string {
	if words, known := causeWords[c]; known {
		return words
	}
	if name, is := strings.CutPrefix(string(c), string(CauseTrigger)); is {
		return "the trigger " + name + " acts"
	}
	return string(c)
}
