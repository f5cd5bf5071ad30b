package breaker

import (
	"fmt"
	"time"
)

// Fleet is the circuit breaker of one downstream as a fleet of workers shares it. It is told of outcomes in batches, and
// asks for a quorum before it opens; see the doc of the package. It is the specification of what package lua keeps
// in Redis, and is not safe for several goroutines.
//
// Instants must not go back, and count in microseconds. Jitter is even in [0, 1), for a cooldown that may begin.
type Fleet struct {
	config Config
	// confirmed is when a report last came with the config in force.
	confirmed Instant

	state State
	cause Cause
	since Instant
	// period grows with each transition, and is never 0. A report of another period says nothing.
	period uint64
	forced bool
	// until is when the state ends by time alone, if ends says so: of Open, and of Closed when forced.
	until Instant
	ends  bool
	// reason is the one an operator gave last.
	reason string

	// window is the whole fleet's of the last closed period, streak the failures since any success in it. Epoch grows
	// when the window begins anew: a worker's of another epoch is empty.
	window ring
	streak uint64
	epoch  uint64
	// begun is when the window was last empty. doubt is when the vote of a worker that is the only caller counts, so
	// that others have had the time to report; 0 if there is none.
	begun, doubt Instant
	// workers are those that reported, with a window each.
	workers map[string]*reporter

	// passed and slow count the probes of the half-open period that ended well, and that were slow.
	passed, slow uint64
	// ramp is the step of the slow start, from 1; 0 for none.
	ramp int

	trips, inRow uint64
	// heard is when something last happened: a report or a transition.
	heard Instant
}

// Report is what one worker counted of a downstream in one period since its last report. Each call is in it once; while
// the breaker is half-open the calls of the period are probes.
type Report struct {
	Worker string
	// Sequence grows with each report of the worker about the downstream. One that does not is a repetition. 0 is of a
	// worker that keeps no numbers: it always counts, and its config is for a breaker that is new alone.
	Sequence uint64
	// Period is that in which the calls were let through, as their leases say or the worker was told last. 0 means
	// that nobody had told it of one.
	Period uint64
	// Counts is the calls that ended or became slow.
	Counts
	// Streak is the failures after the last success: all of them, if there was none.
	Streak uint64
	// Alone says that there is no other worker, so that nobody else's report can be on its way.
	Alone bool
}

// The slow start, and how long a fleet's breaker is kept.
const (
	// RampStep is how long each limit of the slow start after a recovery holds, RampSteps how many there are: from
	// 2·MaxProbes calls at a time, doubled with each step.
	RampStep  = time.Second
	RampSteps = 7
	// Quiet is how long a breaker of which nothing is heard is kept. It outlasts every ResetAfter.
	Quiet = 24 * time.Hour
	// LoneVote is how long after the first report the vote of an only caller counts.
	LoneVote = 500 * time.Millisecond
	// ConfigHold is how long a config stays in force of which no report says any more that it is a worker's.
	ConfigHold = 10 * time.Second
	// keepReporter is the least time for which a worker is known after its last report: reports are repeated for less.
	keepReporter = time.Minute
	// purgeEvery is how many workers are added between two looks at who has gone.
	purgeEvery = 16
)

// NewFleetAt returns a closed breaker of the fleet, or an error that names every bad field of the config. Config.Rand
// is not used.
func NewFleetAt(now Instant, config Config) (*Fleet, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configure breaker: %w", err)
	}
	return &Fleet{
		config: config.withDefaults(), confirmed: now, since: now, heard: now, workers: map[string]*reporter{},
		// Beyond any period of a breaker of this name that was forgotten: transitions are rarer than one a second.
		period: uint64(now.Sub(0) / time.Second),
	}, nil
}

// ReportAt counts a report and makes the change that it leads to, or that is due by time alone: a report that comes
// with the latter is late. Probes' time-outs are left to AdvanceAt.
func (f *Fleet) ReportAt(now Instant, jitter float64, config Config, r Report) Transition {
	change := f.AdvanceAt(now, jitter, 0, false)
	w := f.reporter(now, r.Worker)
	numbered := r.Sequence > 0
	if !numbered {
		r.Sequence = w.sequence + 1
	}
	if r.Sequence <= w.sequence {
		return change
	}
	w.sequence, w.at, f.heard = r.Sequence, now, now
	if numbered {
		f.configure(now, config)
	}
	if change.Happened() || !f.current(r.Period) {
		return change
	}
	if f.state == HalfOpen {
		return f.countProbes(now, jitter, r.Counts)
	}
	return f.count(now, jitter, w, r)
}

// current reports whether calls of a period speak for the present one.
func (f *Fleet) current(period uint64) bool {
	if period == 0 {
		return f.state == Closed && f.ramp == 0
	}
	return period == f.period && f.state != Open
}

// configure puts a worker's config in force once no worker has spoken for the present one for a while: workers that
// differ, as they do while a new config is rolled out, must not empty each other's window.
func (f *Fleet) configure(now Instant, config Config) {
	config = config.withDefaults()
	switch {
	case config.sameRules(f.config):
		f.confirmed = now
	case f.state == Closed && now.Sub(f.confirmed) >= ConfigHold:
		f.config, f.confirmed = config, now
		f.restart()
	}
}

// count counts calls of the closed period, and trips if that is bad news enough for a quorum.
func (f *Fleet) count(now Instant, jitter float64, w *reporter, r Report) Transition {
	index := f.config.slice(now)
	if f.window.sum(index, f.config.Buckets) == (Counts{}) {
		f.begun = now
	}
	f.window = f.window.plus(index, f.config.Buckets, r.Counts)
	if w.epoch != f.epoch {
		w.epoch, w.window, w.streak = f.epoch, nil, 0
	}
	w.window = w.window.plus(index, f.config.Buckets, r.Counts)
	if r.Successes > 0 {
		f.streak, w.streak = 0, 0
	}
	f.streak += r.Streak
	w.streak += r.Streak
	if f.forced || r.Failures == 0 && r.Slow == 0 {
		return Transition{}
	}
	return f.judge(now, jitter, r.Alone)
}

// judge trips if a rule is met and as many workers vote for it as the quorum asks: two of those that called the
// downstream in the window, or the only one, once others have had the time to report or where there are none.
func (f *Fleet) judge(now Instant, jitter float64, alone bool) Transition {
	index := f.config.slice(now)
	all := f.window.sum(index, f.config.Buckets)
	f.doubt = 0
	for _, rule := range rules {
		if !f.config.met(rule, all, f.streak) {
			continue
		}
		callers, voters := f.votes(index, rule)
		sure := f.begun.Add(min(LoneVote, f.config.Window/2))
		switch {
		case voters < min(2, callers):
		case callers < 2 && !alone && now < sure:
			f.doubt = sure
		default:
			change := f.trip(rule, now, jitter)
			change.Callers, change.Voters = callers, voters
			return change
		}
	}
	return Transition{}
}

// countProbes counts probes, and opens or closes the breaker if that decides it. Of those that came together a failure
// speaks first.
func (f *Fleet) countProbes(now Instant, jitter float64, c Counts) Transition {
	f.passed += c.Successes
	f.slow += c.Slow
	switch {
	case c.Failures > 0:
		return f.trip(CauseProbeFailed, now, jitter)
	case ratio(f.slow, uint64(f.config.SuccessThreshold)) >= f.config.SlowCallRate:
		return f.trip(CauseProbesSlow, now, jitter)
	case f.passed >= uint64(f.config.SuccessThreshold):
		change := f.enter(Closed, CauseProbesPassed, now)
		f.restart()
		f.ramp = 1
		return change
	}
	return Transition{}
}
