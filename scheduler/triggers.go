package scheduler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// triggers are those of a policy. Only the goroutine of adapt uses them.
type triggers struct {
	all  []*trigger
	next time.Time
	// begun says that what is noted of them was read since the policy is in force, and since this Scheduler holds the timer lease.
	begun bool
}

// trigger is one of them.
type trigger struct {
	policy.NamedTrigger

	control.Switch
	// why says by what it turned last, and turnedBy the same while that is still to be done; renewed is when it was last noted that it acts.
	why, turnedBy string
	renewed       time.Time
}

// renewEvery is how often what a trigger does is done anew, so that it lasts.
const renewEvery = store.TriggerLife / 3

// triggersOf returns the triggers of a policy: those that are there already, where the policy says the same of them. nil is none, and none to end: who knows of
// none (nil) has yet to look, since one before may have died as it ended them.
func triggersOf(compiled *policy.Compiled, known *triggers) *triggers {
	to := &triggers{}
	for _, named := range compiled.Triggers() {
		t := &trigger{NamedTrigger: named, Switch: named.Switch()}
		if known != nil {
			for _, before := range known.all {
				if reflect.DeepEqual(before.NamedTrigger, named) {
					t = before
				}
			}
		}
		to.all = append(to.all, t)
	}
	if len(to.all) == 0 && known != nil && len(known.all) == 0 && known.begun {
		return nil
	}
	return to
}

// forget has whoever holds the timer lease next go on from what is noted.
func (to *triggers) forget(next time.Time) {
	to.begun, to.next = false, next
	for _, t := range to.all {
		t.Switch, t.turnedBy = t.NamedTrigger.Switch(), ""
	}
}

// cuts returns what holds for a limit of those that reduce it.
func (to *triggers) cuts(of *policy.Moving) (cut control.Cut, ok bool) {
	if to == nil {
		return cut, false
	}
	var cuts []control.Cut
	for _, t := range to.all {
		if t.Active && t.Reduces(of) {
			cuts = append(cuts, t.Cut())
		}
	}
	return control.Strongest(cuts)
}

// letGo has limits looked at now that triggers reduced by the policy before: one that went with it leaves no limit reduced until its loop looks by itself.
func (to *triggers) letGo(loops []*loop) {
	for _, l := range loops {
		if _, cutting := to.cuts(&l.Moving); cutting {
			l.next = time.Time{}
		}
	}
}

// level is how much a queue is taken to be pressed at least.
func (to *triggers) level(queue string) admission.PressureLevel {
	level := admission.PressureNone
	if to == nil {
		return level
	}
	for _, t := range to.all {
		if of, _ := t.Target(); t.Active && t.Do == policy.ShedJobs && of == queue {
			at, _ := admission.ParsePressureLevel(t.Level)
			level = max(level, at)
		}
	}
	return level
}

// pull looks at the triggers, if it is time, and has those that turned act or act no more. Limits and levels follow in the same turn.
func (s *Scheduler) pull(ctx context.Context, to *duties, version int64) error {
	if to.triggers == nil || time.Now().Before(to.triggers.next) {
		return nil
	}
	to.triggers.next = time.Now().Add(policy.TriggerEvery)
	if !to.triggers.begun {
		err := s.resume(ctx, to.triggers, version)
		if errors.Is(err, store.ErrNotHolder) || errors.Is(err, store.ErrStale) {
			return nil
		}
		if err != nil {
			return err
		}
		to.triggers.begun = true
	}
	if len(to.triggers.all) == 0 {
		to.triggers = nil
		return nil
	}
	seen, err := s.sense(ctx, to.triggers.all)
	if errors.Is(err, admission.ErrUnavailable) { // Nothing was seen, of which nothing follows.
		return err
	}
	errs := []error{err}
	for i, t := range to.triggers.all {
		if t.Look(seen[i], time.Now()) {
			s.turned(to, t, seen[i])
		}
		err := s.carry(ctx, to.triggers, t, version)
		if errors.Is(err, store.ErrNotHolder) || errors.Is(err, store.ErrStale) {
			to.triggers.begun = false // Somebody else goes on, or by another policy.
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// carry does what a trigger that turned has to, or does anew what it does, until it is done.
func (s *Scheduler) carry(ctx context.Context, to *triggers, t *trigger, version int64) error {
	do := s.act
	if !t.Active {
		do = func(ctx context.Context, t *trigger, version int64) error { return s.end(ctx, to, t, version) }
	}
	if t.turnedBy == "" && (!t.Active || time.Since(t.renewed) <= renewEvery) {
		return nil
	}
	err := do(ctx, t, version)
	if err == nil {
		t.turnedBy = ""
	}
	return err
}

// resume goes on from what is noted: those that act still do, and what is no more of the policy ends.
func (s *Scheduler) resume(ctx context.Context, to *triggers, version int64) error {
	noted, err := s.store.Triggers(ctx)
	if err != nil || len(noted) == 0 {
		return err
	}
	s.adapting.pulling.Store(true)
	now, err := s.store.Time(ctx)
	if err != nil {
		return err
	}
	var gone []trigger
	for _, n := range noted {
		i := slices.IndexFunc(to.all, func(t *trigger) bool { return t.Name == n.Name && t.Do == n.Do && t.Of == n.Of })
		if i >= 0 && n.Until.After(now) {
			to.all[i].Active, to.all[i].why, to.all[i].renewed = true, n.Why, time.Time{}
			continue
		}
		why := "the policy has it no more"
		if i >= 0 {
			why = "nobody looked at it any more"
		}
		gone = append(gone, trigger{NamedTrigger: policy.NamedTrigger{Name: n.Name, Trigger: policy.Trigger{Do: n.Do, Of: n.Of}}, why: why})
	}
	for i := range gone { // Now that it is known which of the others act.
		if err := s.end(ctx, to, &gone[i], version); err != nil {
			return err
		}
	}
	return nil
}

// turned notes by what a trigger turned, and has limits and levels follow in the same turn.
func (s *Scheduler) turned(to *duties, t *trigger, seen float64) {
	value := "nobody knows it"
	if !math.IsNaN(seen) {
		value = "it is " + strconv.FormatFloat(seen, 'g', 4, 64)
	}
	bound, word := t.When.Words(), "trigger acts"
	if !t.Active {
		bound, word = t.Until.Words(), "trigger acts no more"
		if t.On.Bound == t.Off.Bound { // What is at it ends it, too.
			bound = "not " + policy.TriggerBound{Above: t.When.Above, Below: t.When.Below, For: t.Until.For}.Words()
		}
	}
	t.why = fmt.Sprintf("%s of %s %s, %s", t.Metric, t.MeasuredOf, bound, value)
	t.turnedBy = t.why
	s.config.Logger.Warn().Str("trigger", t.Name).Str("do", t.Do).Str("of", t.Of).Str("why", t.why).Msg(word)
	for _, l := range to.loops {
		if t.Reduces(&l.Moving) {
			l.next = time.Time{}
		}
	}
	for _, g := range to.gauges {
		if queue, _ := t.Target(); queue == g.Queue && t.Do == policy.ShedJobs {
			g.next = time.Time{}
		}
	}
}

// act notes that a trigger acts, and holds back what it does, for store.TriggerLife. It is noted first: so whoever takes over knows of what was done.
func (s *Scheduler) act(ctx context.Context, t *trigger, version int64) error {
	err := s.store.NoteTrigger(ctx, store.TriggerNote{Owner: s.owner, Version: version, Name: t.Name, Life: store.TriggerLife, Do: t.Do, Of: t.Of, Why: t.why})
	if err != nil {
		return err
	}
	by := store.Intervention{Author: store.TriggerAuthor, Reason: t.Name + ": " + t.why}
	switch t.Do {
	case policy.PauseJobs:
		_, err = s.store.PauseAtLeast(ctx, gateOf(t), store.TriggerLife, by)
	case policy.SuspendQueue:
		err = s.store.Suspend(ctx, gateOf(t), store.TriggerLife, by)
	}
	if err == nil {
		t.renewed = time.Now()
	}
	return err
}

// end ends what a trigger holds back, unless another does the same, and notes that. It is noted last: so whoever takes over knows what is to end.
func (s *Scheduler) end(ctx context.Context, to *triggers, t *trigger, version int64) (err error) {
	others := slices.ContainsFunc(to.all, func(other *trigger) bool {
		return other.Active && other.Name != t.Name && other.Do == t.Do && other.Of == t.Of
	})
	by := store.Intervention{Author: store.TriggerAuthor, Reason: t.Name + ": " + t.why}
	switch {
	case others:
	case t.Do == policy.PauseJobs:
		_, err = s.store.Unpause(ctx, gateOf(t), by)
	case t.Do == policy.SuspendQueue:
		_, err = s.store.Resume(ctx, gateOf(t), by)
	}
	if err != nil {
		return err
	}
	return s.store.NoteTrigger(ctx, store.TriggerNote{Owner: s.owner, Version: version, Name: t.Name, Do: t.Do, Of: t.Of, Why: t.why})
}

// gateOf is the gate of what a trigger holds back.
func gateOf(t *trigger) store.GateName {
	queue, downstream := t.Target()
	if queue != "" {
		return store.QueueGate(queue)
	}
	return store.DownstreamGate(downstream)
}

// sense returns what is seen for each trigger, NaN for what nobody knows, or what Redis would not tell, of which the error tells; nil where Redis was not available. What is not asked for is not read.
func (s *Scheduler) sense(ctx context.Context, all []*trigger) ([]float64, error) {
	var of senses
	var errs []error
	seen := make([]float64, len(all))
	for i, t := range all {
		same := slices.IndexFunc(all[:i], func(before *trigger) bool { return before.Metric == t.Metric && before.MeasuredOf == t.MeasuredOf })
		if same >= 0 {
			seen[i] = seen[same]
			continue
		}
		var err error
		if seen[i], err = s.value(ctx, t, &of); errors.Is(err, admission.ErrUnavailable) {
			return nil, err
		} else if err != nil {
			seen[i], errs = math.NaN(), append(errs, fmt.Errorf("trigger %s: %w", t.Name, err))
		}
	}
	return seen, errors.Join(errs...)
}

// senses are what was read of queues in a look.
type senses struct {
	loads   map[string]store.QueueLoad
	samples []load.Sample
}

// value returns what is seen for one.
func (s *Scheduler) value(ctx context.Context, t *trigger, of *senses) (float64, error) {
	queue, downstream := t.Measured()
	switch t.Metric {
	case policy.MetricRedis:
		return s.redisMemory(ctx)
	case policy.MetricBreaker:
		b, err := s.store.Breaker(ctx, downstream)
		if errors.Is(err, store.ErrNoBreaker) { // It is closed.
			return 0, nil
		}
		return float64(b.State.Severity()), err
	}
	if of.loads == nil {
		if err := s.readSenses(ctx, of); err != nil {
			return math.NaN(), err
		}
	}
	if downstream != "" {
		return load.OfDownstream(downstream, 0, of.samples).Metric(t.Metric), nil
	}
	return of.of(t.Metric, queue), nil
}

// readSenses reads how busy queues are.
func (s *Scheduler) readSenses(ctx context.Context, of *senses) error {
	names, err := s.store.QueueNames(ctx)
	if err != nil {
		return err
	}
	var loads []store.QueueLoad
	if len(names) > 0 {
		if loads, err = s.store.Loads(ctx, names); err != nil {
			return err
		}
	}
	of.loads = make(map[string]store.QueueLoad, len(loads))
	for _, l := range loads {
		of.loads[l.Queue] = l
	}
	of.samples, err = s.samples(ctx)
	return err
}

// of returns a metric of a queue; for "" the most of any, and of depths the sum. NaN is what nobody knows.
func (of *senses) of(metric, queue string) float64 {
	most, depth := math.NaN(), 0.0
	for name, l := range of.loads {
		if queue != "" && name != queue {
			continue
		}
		value := load.Of(name, l.Waiting, of.samples).Seen(l.Wait, l.Level).Metric(metric)
		depth += float64(l.Waiting)
		if !(value <= most) && !math.IsNaN(value) {
			most = value
		}
	}
	if metric == policy.MetricDepth {
		return depth
	}
	return most
}
