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
	// confirmed is when a report last came with the config in force; origin is who says so, version the policy's last one.
	confirmed Instant
	origin    Origin
	version   int64

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
	// workers are those that reported, with a window each; groups those of tenants by epoch and number.
	workers map[string]*reporter
	groups  [TenantGroups]group
	// Of the last report: the tenants that fail alone, whether it counted, and whether it came with other rules than those in force.
	aside            []uint16
	counted, differs bool

	// passed and slow count the probes of the half-open period that ended well, and that were slow; trial tells tenants
	// apart.
	passed, slow uint64
	trial        fleetTrial
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
	// worker that keeps no numbers: it always counts, and its config is for a breaker that is new alone, unless it is the policy's.
	Sequence uint64
	// Period is that in which the calls were let through, as their leases say or the worker was told last. 0 means
	// that nobody had told it of one.
	Period uint64
	// Counts is the calls that ended or became slow.
	Counts
	// Streak is the failures after the last success: all of them, if there was none.
	Streak uint64
	// Origin says where the config that comes with it is from, Version which version of the policy the worker follows.
	Origin  Origin
	Version int64
	// Tenants is what each tenant has of it, by number; none means that the calls were of no tenant.
	Tenants []TenantCounts
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
	f.aside, f.counted, f.differs = nil, false, false
	change := f.AdvanceAt(now, jitter, 0, false)
	w := f.reporter(now, r.Worker)
	numbered := r.Sequence > 0
	if !numbered {
		r.Sequence = w.sequence + 1
	}
	if r.Sequence <= w.sequence {
		return change
	}
	w.sequence, w.at, f.heard, f.counted = r.Sequence, now, now, true
	if numbered || r.Origin == OriginPolicy || f.origin == OriginPolicy {
		f.configure(now, config, r.Origin, r.Version)
	}
	if change.Happened() || !f.current(r.Period) {
		return change
	}
	if f.state == HalfOpen {
		return f.countProbes(now, jitter, r)
	}
	return f.count(now, jitter, w, r)
}

// Counted reports whether the last report was no repetition, Differs whether it came with other rules than those in force.
func (f *Fleet) Counted() bool { return f.counted }

// Differs is told of by Counted.
func (f *Fleet) Differs() bool { return f.differs }

// Rules returns the config in force, without what a slow call is, where it is from, and the last version of the policy that a worker
// followed which reported.
func (f *Fleet) Rules() (config Config, origin Origin, version int64) {
	config = f.config
	config.SlowCallDuration, config.Rand = 0, nil
	return config, f.origin, f.version
}

// current reports whether calls of a period speak for the present one.
func (f *Fleet) current(period uint64) bool {
	if period == 0 {
		return f.state == Closed && f.ramp == 0
	}
	return period == f.period && f.state != Open
}

// Origin says where a breaker's config is from.
type Origin int

// The origins.
const (
	OriginDefault Origin = iota // nobody has said anything
	OriginWorker                // the worker's own configuration
	OriginPolicy                // the policy, which wins over every worker's
)

var originNames = [...]string{"default", "worker", "policy"}

func (o Origin) String() string {
	if o < 0 || int(o) >= len(originNames) {
		return "unknown"
	}
	return originNames[o]
}

// configure puts a worker's config in force: the policy's at once, and a worker's own once no worker has spoken for the present
// one for a while: workers that differ, as they do while a new config is rolled out, must not empty each other's window. A
// worker that has not heard of the policy's last version has no say.
func (f *Fleet) configure(now Instant, config Config, origin Origin, version int64) {
	if version < f.version {
		return
	}
	config = config.withDefaults()
	news := version > f.version && (origin == OriginPolicy || f.origin == OriginPolicy)
	f.version = version
	switch {
	case config.sameRules(f.config):
		f.confirmed, f.origin = now, origin
	case news, f.origin != OriginPolicy && f.state == Closed && now.Sub(f.confirmed) >= ConfigHold:
		f.config, f.confirmed, f.origin = config, now, origin
		if f.state == Closed {
			f.restart()
		}
	default:
		f.differs = true
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
	f.countTenants(index, &r)
	if f.forced || r.Failures == 0 && r.Slow == 0 {
		return Transition{}
	}
	change := f.judge(now, jitter, r.Alone)
	if !change.Happened() {
		f.aside = f.alone(index, &r)
	}
	return change
}

// judge trips if a rule is met, as many workers vote for it as the quorum asks, and more than one tenant's calls meet it, if more
// than one called. The quorum is two of the workers that called the downstream in the window, or the only one, once others
// have had the time to report or where there are none.
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
		case voters < min(2, callers) || !f.tenantsAgree(index, rule):
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
func (f *Fleet) countProbes(now Instant, jitter float64, r Report) Transition {
	f.passed += r.Successes
	f.slow += r.Slow
	opens, lone := f.tryTenants(&r)
	switch {
	case opens:
		if lone {
			f.inRow = max(f.inRow, 1) - 1 // The cooldown is as long as the last.
		}
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

// tryTenants notes whose probes passed and failed, and reports whether a failure opens the breaker, and whether only because of
// one tenant's though another called too.
func (f *Fleet) tryTenants(r *Report) (opens, lone bool) {
	for _, t := range r.parts() {
		if t.Successes > 0 {
			f.trial.pass(f.groupOf(t.Tenant) + 1)
		}
	}
	for _, t := range r.parts() {
		if t.Failures == 0 {
			continue
		}
		callers, _, _, _ := f.shares(f.lastIndex(), CauseFailureRate)
		if opens, lone = f.trial.fail(f.groupOf(t.Tenant)+1, t.Failures, callers < 2, f.config.SuccessThreshold); opens && !lone {
			break
		}
	}
	return opens, lone
}

// lastIndex returns the slice in which the window of the last closed period was last counted.
func (f *Fleet) lastIndex() int64 {
	if n := len(f.window); n > 0 {
		return f.window[n-1].index
	}
	return 0
}
