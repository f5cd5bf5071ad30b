package shown

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/control"
	"github.com/headgate/headgate/internal/load"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/store"
)

// TriggersOwn is the section of the policy.
const TriggersOwn Section = "triggers"

// Trigger is a trigger of the policy.
type Trigger struct {
	Name string `json:"name"`
	// Own is what the policy says of it; absent of one that acts and is no more of the policy.
	Own json.RawMessage `json:"own,omitempty"`
	// Active says that it acts, on what Of says, by Do: since Since, and for the reason Why.
	Active bool       `json:"active"`
	Do     string     `json:"do,omitempty"`
	Of     string     `json:"of,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	Why    string     `json:"why,omitempty"`
}

// Triggers are all of them, by name.
type Triggers struct {
	Triggers []Trigger `json:"triggers"`
}

// TriggersOf shows the triggers of a policy, those that act among them.
func TriggersOf(ctx context.Context, s store.Deployment, current policy.Policy) (v Triggers, err error) {
	v.Triggers = []Trigger{}
	parts, err := PartsOf(current, TriggersOwn, "", 0)
	if err != nil {
		return v, err
	}
	noted, err := s.Triggers(ctx)
	if err != nil {
		return v, err
	}
	now, err := s.Time(ctx)
	if err != nil {
		return v, err
	}
	for _, p := range parts.Parts {
		t := current.Triggers[p.Name]
		v.Triggers = append(v.Triggers, Trigger{Name: p.Name, Own: p.Own, Do: t.Do, Of: t.Of})
	}
	for _, n := range noted {
		if !n.Until.After(now) {
			continue // Nobody looks at it any more, and what it did is over.
		}
		i := slices.IndexFunc(v.Triggers, func(t Trigger) bool { return t.Name == n.Name })
		if i < 0 {
			i, v.Triggers = len(v.Triggers), append(v.Triggers, Trigger{Name: n.Name})
		}
		t := &v.Triggers[i]
		t.Active, t.Do, t.Of, t.Since, t.Why = true, n.Do, n.Of, Stamp(n.Since), n.Why
	}
	slices.SortFunc(v.Triggers, func(a, b Trigger) int { return strings.Compare(a.Name, b.Name) })
	return v, nil
}

// TriggerTrial is what a trigger would have done in the last hour, by what is kept of it: a point each 10 s, of the state of a breaker each second.
type TriggerTrial struct {
	Name   string `json:"name"`
	Metric string `json:"metric"`
	Of     string `json:"of"`
	// Points is how many points of the hour say something of it, the first at From.
	Points int        `json:"points"`
	From   *time.Time `json:"from,omitempty"`
	// Fired is how often it would have begun to act, ActiveMS for how long it would have acted in all. Least and Most are what was seen.
	Fired    int           `json:"fired"`
	ActiveMS int64         `json:"active_ms"`
	Least    *float64      `json:"least,omitempty"`
	Most     *float64      `json:"most,omitempty"`
	Spans    []TriggerSpan `json:"spans"`
}

// TriggerSpan is from when to when it would have acted; without an end where it still would.
type TriggerSpan struct {
	From time.Time  `json:"from"`
	To   *time.Time `json:"to,omitempty"`
}

// TryTrigger tells what a trigger would have done in the last hour.
func TryTrigger(ctx context.Context, s store.Deployment, t policy.NamedTrigger) (v TriggerTrial, err error) {
	v = TriggerTrial{Name: t.Name, Metric: t.Metric, Of: t.MeasuredOf, Spans: []TriggerSpan{}}
	now, err := s.Time(ctx)
	if err != nil {
		return v, err
	}
	var seen []triggerPoint
	if t.Metric == policy.MetricBreaker {
		_, downstream := t.Measured()
		seen, err = breakerHistory(ctx, s, downstream, now)
	} else {
		seen, err = triggerHistory(ctx, s, &t)
	}
	if err != nil {
		return v, err
	}
	v.run(t.Switch(), seen, now)
	return v, nil
}

// run tells what a Switch would have made of what was seen until now. As of a live trigger, what nobody knows ends what has begun, and what nobody has looked at
// for store.TriggerLife is over.
func (v *TriggerTrial) run(sw control.Switch, seen []triggerPoint, now time.Time) {
	var last time.Time
	acts := func(until time.Time) {
		if !sw.Active {
			return
		}
		if until.Sub(last) > store.TriggerLife {
			until, sw.Active = last.Add(store.TriggerLife), false
			v.Spans[len(v.Spans)-1].To = Stamp(until)
		}
		v.ActiveMS += until.Sub(last).Milliseconds()
	}
	for _, p := range seen {
		if !math.IsNaN(p.value) {
			v.saw(p)
		}
		acts(p.at)
		last = p.at
		if !sw.Look(p.value, p.at) {
			continue
		}
		if sw.Active {
			v.Fired++
			v.Spans = append(v.Spans, TriggerSpan{From: Moment(p.at)})
		} else {
			v.Spans[len(v.Spans)-1].To = Stamp(p.at)
		}
	}
	acts(now)
}

// saw counts a point that says something.
func (v *TriggerTrial) saw(p triggerPoint) {
	if v.Points++; v.From == nil {
		v.From, v.Least, v.Most = Stamp(p.at), new(p.value), new(p.value)
	}
	*v.Least, *v.Most = min(*v.Least, p.value), max(*v.Most, p.value)
}

// triggerPoint is a value at a time, NaN for one that nobody knew.
type triggerPoint struct {
	at    time.Time
	value float64
}

// triggerHistory returns what a trigger would have seen in the last hour: of all queues the most of any, of depths the sum.
func triggerHistory(ctx context.Context, s store.Deployment, t *policy.NamedTrigger) ([]triggerPoint, error) {
	queue, downstream := t.Measured()
	names := []string{queue}
	switch {
	case t.Metric == policy.MetricRedis:
		names = []string{load.WholeHistory}
	case downstream != "":
		names = []string{load.DownstreamHistory(downstream)}
	case queue == "":
		var err error
		if names, err = s.QueueNames(ctx); err != nil {
			return nil, err
		}
	}
	values := map[int64]float64{}
	for _, name := range names {
		points, err := s.LoadHistory(ctx, name, time.Time{})
		if err != nil {
			return nil, err
		}
		for _, p := range points {
			value, err := metricOf(t.Metric, p.Text)
			if err != nil {
				continue // of a release to come
			}
			at := p.At.UnixMicro()
			before, there := values[at]
			switch {
			case !there || math.IsNaN(before):
			case t.Metric == policy.MetricDepth:
				value += before
			case !(value > before):
				value = before
			}
			values[at] = value
		}
	}
	seen := make([]triggerPoint, 0, len(values))
	for at, value := range values {
		seen = append(seen, triggerPoint{time.UnixMicro(at), value})
	}
	slices.SortFunc(seen, func(a, b triggerPoint) int { return a.at.Compare(b.at) })
	return seen, nil
}

// metricOf reads a metric of a point, NaN for what nobody knew.
func metricOf(metric, text string) (float64, error) {
	if metric != policy.MetricRedis {
		figures, err := load.ParseFigures(text)
		return figures.Metric(metric), err
	}
	whole, err := load.ParseWhole(text)
	if whole.RedisMemory < 0 {
		return math.NaN(), err
	}
	return whole.RedisMemory, err
}

// breakerHistory returns which state the breaker of a downstream had at each second of the last hour, by its transitions that are kept: where partitions differ
// the one that lets the fewest calls through.
func breakerHistory(ctx context.Context, s store.Deployment, downstream string, now time.Time) ([]triggerPoint, error) {
	service, _ := admission.ServiceOf(downstream)
	var seen []triggerPoint
	for at := now.Add(-store.LoadHistoryLife); !at.After(now); at = at.Add(policy.TriggerEvery) {
		seen = append(seen, triggerPoint{at: at})
	}
	for _, part := range s.Partitions() {
		course, err := courseOf(ctx, part, service)
		if err != nil {
			return nil, err
		}
		for i := range seen {
			seen[i].value = max(seen[i].value, course.at(seen[i].at)) // What is not known of one is not known.
		}
	}
	return seen, nil
}

// breakerCourse is which states a breaker had: not known before a time, then the first, then others.
type breakerCourse struct {
	known   time.Time
	first   breaker.State
	changes []store.BreakerEvent
}

// at is the state at a time, as triggers look at it.
func (c *breakerCourse) at(at time.Time) float64 {
	if at.Before(c.known) {
		return math.NaN()
	}
	state := c.first
	for i := range c.changes {
		if c.changes[i].At.After(at) {
			break
		}
		state = c.changes[i].To
	}
	return float64(state.Severity())
}

// courseOf reads the transitions of a breaker that a partition keeps. One of which there is none has been in its state for as long as any is kept.
func courseOf(ctx context.Context, part store.Partition, service string) (c breakerCourse, err error) {
	for position, more := "", true; more; {
		of, err := part.TransitionsAfter(ctx, position, store.ListPortion)
		if err != nil {
			return c, err
		}
		if position == "" && of.Gone > 0 && len(of.Entries) > 0 {
			c.known = of.Entries[0].At
		}
		for _, e := range of.Entries {
			if e.Downstream == service {
				c.changes = append(c.changes, e)
			}
		}
		more, position = of.Position != position, of.Position
	}
	if len(c.changes) > 0 {
		c.first = c.changes[0].From
		return c, nil
	}
	b, err := part.Breaker(ctx, service)
	if errors.Is(err, store.ErrNoBreaker) { // It is closed.
		return c, nil
	}
	c.first = b.State
	return c, err
}
