package shown

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
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

// TriggerTrial is what a trigger would have done in the last hour, by what is kept of it: a point each 10 s.
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

// triable are the metrics of which there is a history.
var triable = []string{policy.MetricCPU, policy.MetricMemory, policy.MetricErrors, policy.MetricDepth, policy.MetricRunP95, policy.MetricWaitP95}

// TryTrigger tells what a trigger would have done in the last hour. A metric of which there is no history is an *admission.FieldError.
func TryTrigger(ctx context.Context, s store.Deployment, t policy.NamedTrigger) (v TriggerTrial, err error) {
	v = TriggerTrial{Name: t.Name, Metric: t.Metric, Of: t.MeasuredOf, Spans: []TriggerSpan{}}
	if !slices.Contains(triable, t.Metric) {
		return v, &admission.FieldError{Field: "when.metric", Value: t.Metric, Allowed: "one of which there is a history: " + strings.Join(triable, ", ")}
	}
	seen, err := triggerHistory(ctx, s, &t)
	if err != nil {
		return v, err
	}
	v.run(t.Switch(), seen)
	return v, nil
}

// run tells what a Switch would have made of what was seen.
func (v *TriggerTrial) run(sw control.Switch, seen []triggerPoint) {
	for _, p := range seen {
		if v.Points++; v.From == nil {
			v.From, v.Least, v.Most = Stamp(p.at), new(p.value), new(p.value)
		}
		*v.Least, *v.Most = min(*v.Least, p.value), max(*v.Most, p.value)
		if sw.Active {
			v.ActiveMS += store.LoadStep.Milliseconds()
		}
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
}

// triggerPoint is a value that was known at a time.
type triggerPoint struct {
	at    time.Time
	value float64
}

// triggerHistory returns what a trigger would have seen in the last hour: of all queues the most of any, of depths the sum.
func triggerHistory(ctx context.Context, s store.Deployment, t *policy.NamedTrigger) ([]triggerPoint, error) {
	queue, downstream := t.Measured()
	queues := []string{queue}
	if downstream != "" {
		queues = []string{load.DownstreamHistory(downstream)}
	} else if queue == "" {
		var err error
		if queues, err = s.QueueNames(ctx); err != nil {
			return nil, err
		}
	}
	values := map[int64]float64{}
	for _, name := range queues {
		points, err := s.LoadHistory(ctx, name, time.Time{})
		if err != nil {
			return nil, err
		}
		for _, p := range points {
			figures, err := load.ParseFigures(p.Text)
			if err != nil {
				continue // of a release to come
			}
			value := figures.Metric(t.Metric)
			if math.IsNaN(value) {
				continue
			}
			at := p.At.UnixMicro()
			if before, there := values[at]; there && t.Metric == policy.MetricDepth {
				value += before
			} else if there {
				value = max(value, before)
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
