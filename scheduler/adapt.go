package scheduler

import (
	"context"
	"errors"
	"math"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// adapting is what a Scheduler knows of the limits that move by themselves (policy.Adaptive), of the queues that are measured
// (policy.PressureRules), and whether it is kept how busy they are (policy.LoadRules), and whether rates are watched (policy.AnomalyRules). The
// holder of the first partition's timer lease does all of it. Promote tells it the version of the policy by which there
// are some, so that one by which there is none costs nothing.
type adapting struct {
	// version is that of the policy by which limits move, 0 for none; told holds a token when it is another one.
	version atomic.Int64
	told    chan struct{}
	// watching says that rates are watched.
	watching atomic.Bool
	// pulling says that there are triggers, or were.
	pulling atomic.Bool
}

// note takes down what Promote has told.
func (a *adapting) note(version int64) {
	if a.told == nil || a.version.Swap(version) == version {
		return
	}
	select {
	case a.told <- struct{}{}:
	default:
	}
}

// loop moves one limit.
type loop struct {
	policy.Moving

	control ticker
	// next is when it looks again, last what it saw then; the zero last is nothing.
	next time.Time
	last store.Adaptation
	// part moves limits of admission instead of control, looked is when it last did.
	part    *control.Part
	looked  time.Time
	tripped tripped
	// renewed is when its limit was last put in force.
	renewed time.Time
	// deadBand is how many looks found too little to change since Redis was told of some, at told.
	deadBand int
	told     time.Time
}

// ticker is a control.Loop, a control.Rate or a control.Paced.
type ticker interface {
	Tick(in int, s control.Sample) control.Step
}

// newTicker returns what moves a limit, from the one in force on.
func newTicker(m policy.Moving, limit int) (ticker, error) {
	if m.Dispatch && m.Signal != "" {
		return control.NewPaced(m.Part, limit)
	}
	if m.Dispatch {
		return control.NewRate(m.Rate, limit)
	}
	return control.New(m.Config, limit)
}

// gate is whose limit it is.
func (l *loop) gate() store.GateName {
	switch {
	case l.Limits && l.Queue == "":
		return store.GlobalLimitGate
	case l.Limits:
		return store.QueueLimitsGate(l.Queue)
	}
	if l.Dispatch {
		return store.DownstreamRateGate(l.Downstream)
	}
	return store.DownstreamGate(l.Downstream)
}

// duties are what the holder of the first partition's timer lease does beside timers, by a version of the policy.
type duties struct {
	loops    []*loop
	gauges   []*gauge
	diary    *diary
	sentry   *sentry
	triggers *triggers
}

func (d *duties) none() bool {
	return len(d.loops)+len(d.gauges) == 0 && d.diary == nil && d.sentry == nil && d.triggers == nil
}

// adapt moves limits, measures queues and keeps how busy they are, until ctx ends.
func (s *Scheduler) adapt(ctx context.Context) {
	var to duties
	known := int64(0)
	wait := time.NewTimer(0)
	defer wait.Stop()
	trouble := s.trouble("move limits")
	defer trouble.Leave()
	for {
		select {
		case <-wait.C:
		case <-s.adapting.told:
		case <-ctx.Done():
			return
		}
		version := s.adapting.version.Load()
		if version == 0 && (to.triggers == nil || !s.holds()) {
			to, known = duties{}, 0
			s.adapting.watching.Store(false)
			continue // Until another policy tells.
		}
		if version != known || to.none() {
			compiled, err := s.readPolicy(ctx)
			if err != nil {
				trouble.Failed(ctx, err)
				wait.Reset(0)
				continue
			}
			if version == 0 { // There is nothing to do by this policy but to end what triggers of the one before did.
				version = compiled.Version()
			}
			before := to.triggers
			to, known = duties{loopsOf(compiled, to.loops), gaugesOf(compiled, to.gauges), diaryOf(compiled, to.diary), sentryOf(compiled, to.sentry), triggersOf(compiled, to.triggers)}, version
			before.letGo(to.loops)
			s.adapting.watching.Store(to.sentry != nil)
			if to.triggers != nil && len(to.triggers.all) > 0 {
				s.adapting.pulling.Store(true)
			}
		}
		next := time.Duration(0)
		switch err := s.turn(ctx, &to, version); {
		case err == nil:
			trouble.Over()
		case errors.Is(err, admission.ErrUnavailable) || store.InDoubt(err):
			trouble.Failed(ctx, err)
		default: // Redis answers: what it refuses to one holds up no other, of which each has a time of its own.
			trouble.Note(err)
			next = refusedPause
		}
		wait.Reset(max(next, to.until()))
	}
}

// refusedPause is the least time between two turns where Redis answers one of them with an error.
const refusedPause = 100 * time.Millisecond

// until returns for how long nothing is to be looked at, at least a moment.
func (d *duties) until() time.Duration {
	wait := time.Minute
	if d.triggers != nil && !d.triggers.begun { // Nothing is done before it is known what they do.
		return max(time.Until(d.triggers.next), 10*time.Millisecond)
	}
	for _, l := range d.loops {
		wait = min(wait, time.Until(l.next))
		if len(l.DependsOn) > 0 {
			wait = min(wait, time.Until(l.tripped.next))
		}
	}
	for _, g := range d.gauges {
		wait = min(wait, time.Until(g.next))
	}
	if d.diary != nil {
		wait = min(wait, time.Until(d.diary.next))
	}
	if d.sentry != nil {
		wait = min(wait, time.Until(d.sentry.next))
	}
	if d.triggers != nil {
		wait = min(wait, time.Until(d.triggers.next))
	}
	return max(wait, 10*time.Millisecond)
}

// readPolicy returns the policy in force.
func (s *Scheduler) readPolicy(ctx context.Context) (*policy.Compiled, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text, err := s.store.Policy(ctx)
	if err != nil {
		return nil, err
	}
	return policy.PrepareStored(text)
}

// loopsOf returns the loops of a policy: those that are there already, where the policy says the same of them.
func loopsOf(compiled *policy.Compiled, known []*loop) []*loop {
	var loops []*loop
	for _, m := range compiled.Moving() {
		l := &loop{Moving: m}
		for _, before := range known {
			if reflect.DeepEqual(before.Moving, m) {
				l = before
			}
		}
		loops = append(loops, l)
	}
	return loops
}

// turn looks at the limits that are due and moves them, measures the queues that are, keeps how busy queues are and watches rates, if this
// Scheduler holds the timer lease.
func (s *Scheduler) turn(ctx context.Context, to *duties, version int64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if s.isLate() {
		return nil // It goes on as soon as it holds the lease again.
	}
	if !s.holds() {
		s.taken.Store(false)
		for _, l := range to.loops {
			l.last, l.part, l.next, l.renewed = store.Adaptation{}, nil, time.Now().Add(s.config.TimerLease), time.Time{}
			l.tripped = tripped{next: l.next}
		}
		for _, g := range to.gauges {
			g.meter, g.next = nil, time.Now().Add(s.config.TimerLease)
		}
		if to.diary != nil {
			to.diary.next = time.Now().Add(s.config.TimerLease)
		}
		if to.sentry != nil {
			*to.sentry = sentry{next: time.Now().Add(s.config.TimerLease), near: near{policy: to.sentry.near.policy}}
		}
		if to.triggers != nil {
			to.triggers.forget(time.Now().Add(s.config.TimerLease))
		}
		return nil
	}
	err := s.pull(ctx, to, version)
	if to.triggers != nil && !to.triggers.begun { // What they leave of limits and levels is not known yet: one that acts would end for a moment.
		return err
	}
	return errors.Join(err, s.measure(ctx, to, version), s.moveAll(ctx, to, version), s.write(ctx, to.diary), s.watchRates(ctx, to.sentry))
}

// moveAll looks at the limits that are due and moves them.
func (s *Scheduler) moveAll(ctx context.Context, to *duties, version int64) error {
	now := time.Now()
	if !due(to.loops, now) {
		return nil
	}
	all, err := s.store.Adaptations(ctx)
	if err != nil {
		return err
	}
	signals := signals{load: s.samples, breaker: s.store.Breaker}
	var errs []error
	for _, l := range to.loops {
		i := slices.IndexFunc(all, func(a store.Adaptation) bool { return a.Gate == l.gate() })
		if i < 0 {
			continue
		}
		did, err := s.trips(ctx, l, all[i], version)
		errs = append(errs, err)
		if did { // What is in force is another one now.
			l.next = now.Add(l.Interval())
		}
		if now.Before(l.next) {
			continue
		}
		l.next = now.Add(l.Interval())
		cut, cutting := to.triggers.cuts(&l.Moving)
		switch {
		case cutting || all[i].Back > 0 || l.Driven:
			errs = append(errs, s.cut(ctx, l, all[i], cut, cutting, version))
		case l.Limits:
			errs = append(errs, s.movePart(ctx, l, all[i], to.gauges, &signals, version))
		default:
			errs = append(errs, s.move(ctx, l, all[i], &signals, version))
		}
	}
	return errors.Join(errs...)
}

// move makes a step of what is seen of a limit, and stores it.
func (s *Scheduler) move(ctx context.Context, l *loop, seen store.Adaptation, signals *signals, version int64) error {
	last := l.last
	l.last = seen
	if seen.Override != nil {
		l.next = time.Now().Add(min(l.Interval(), time.Second))
	}
	if seen.Push > 0 { // It eases with a look, and what is seen meanwhile says nothing of the limit.
		l.last = store.Adaptation{}
		return s.nudge(ctx, version, seen, seen.Limit, string(control.CausePushback))
	}
	if seen.Override != nil { // Redis says whether it is over.
		l.last = store.Adaptation{}
		return s.nudge(ctx, version, seen, seen.Override.Back, store.CauseOverrideOver)
	}
	if seen.Frozen != nil || seen.Paused {
		l.last = store.Adaptation{} // What is seen meanwhile says nothing of the limit.
		return nil
	}
	if l.control == nil {
		var err error
		if l.control, err = newTicker(l.Moving, seen.Limit); err != nil {
			return err
		}
	}
	sample := sampleOf(last, seen)
	if l.Signal != "" {
		var err error
		if sample.Signal, err = signals.read(ctx, &l.Moving); err != nil {
			return err
		}
	}
	return s.put(ctx, l, l.control.Tick(seen.Limit, sample), seen, version, store.Adapt{})
}

// signals are what workers tell, read once a turn, if a limit goes by any of it, and how near breakers are to opening, read for each limit that goes by one.
type signals struct {
	load    func(context.Context) ([]load.Sample, error)
	breaker func(ctx context.Context, downstream string) (store.BreakerState, error)
	samples []load.Sample
	known   bool
}

// read returns the signal of a limit, NaN for one that nobody knows.
func (of *signals) read(ctx context.Context, m *policy.Moving) (value float64, err error) {
	if m.Signal == policy.SignalPressure {
		return store.BreakerPressure(of.breaker(ctx, m.Downstream))
	}
	if !of.known {
		if of.samples, err = of.load(ctx); err != nil {
			return math.NaN(), err
		}
		of.known = true
	}
	return load.MetricOf(m.Metric(), m.Queue, m.Downstream, of.samples), nil
}

// nudge lets Redis see what is due of a limit that its loop leaves alone.
func (s *Scheduler) nudge(ctx context.Context, version int64, seen store.Adaptation, limit int, cause string) error {
	_, err := s.store.Adapt(ctx, store.Adapt{Owner: s.owner, Version: version, Gate: seen.Gate, Limit: limit, Cause: cause, Back: seen.Back})
	if errors.Is(err, store.ErrNotHolder) || errors.Is(err, store.ErrStale) || errors.Is(err, store.ErrNotAdaptive) {
		return nil
	}
	return err
}

// sampleOf is what came between two looks, nothing where there was but one. It is over the time between the last reports before each:
// reports come in portions of up to 100 ms, and portions that are cut in two would be noise.
func sampleOf(last, seen store.Adaptation) control.Sample {
	if last.Heard.IsZero() {
		return control.Sample{}
	}
	return control.Sample{
		Over: seen.Heard.Sub(last.Heard), Calls: seen.Calls - last.Calls, Failures: seen.Failures - last.Failures, Ran: seen.Ran - last.Ran,
		Refused: seen.Refused - last.Refused, Bound: seen.Held >= seen.Limit,
	}
}
