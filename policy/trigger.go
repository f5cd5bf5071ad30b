package policy

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/control"
)

// Bounds of triggers.
const (
	// MaxTriggers is how many a policy may have.
	MaxTriggers = 64
	// DefaultTriggerFor, MinTriggerFor and MaxTriggerFor are of for how long a value has to be beyond a bound.
	DefaultTriggerFor = 30 * time.Second
	MinTriggerFor     = time.Second
	MaxTriggerFor     = time.Hour
	// DefaultTriggerPriority and MaxTriggerPriority are of Trigger.Priority.
	DefaultTriggerPriority = 100
	MaxTriggerPriority     = 1000
	// MinCut and MaxCut are the bounds of Trigger.By, without its sign.
	MinCut, MaxCut = 0.01, 0.99 //nolint:revive // the bounds of one thing
	// MaxTriggerBound is the most that a value may be held against.
	MaxTriggerBound = 1e12
	// TriggerEvery is how often triggers are looked at.
	TriggerEvery = time.Second
)

// What a trigger may look at. Times are seconds, parts are 0 to 1.
const (
	MetricCPU      = "cpu_utilization"
	MetricMemory   = "memory_utilization"
	MetricErrors   = "error_rate"
	MetricDepth    = "queue_depth"
	MetricWait     = "wait"     // of what waits, at the pace of now
	MetricWaitP95  = "wait_p95" // of jobs of which a first run began in the last minute, from admission to that
	MetricRunP95   = "run_p95"
	MetricPressure = "backpressure_level" // 1 NONE to 5 CRITICAL
	MetricRedis    = "redis_memory"
	MetricBreaker  = "breaker_state" // 0 closed, 1 half-open, 2 open
)

// TriggerMetrics are all of them.
var TriggerMetrics = []string{
	MetricCPU, MetricMemory, MetricErrors, MetricDepth, MetricWait, MetricWaitP95, MetricRunP95, MetricPressure, MetricRedis, MetricBreaker,
}

// What a limit may go by instead (Adaptive.Signal), as triggers look at it, but for SignalCPU, which is MetricCPU, and SignalPressure, which is a score.
const (
	SignalRunP95   = MetricRunP95
	SignalErrors   = MetricErrors
	SignalWaitP95  = MetricWaitP95
	SignalCPU      = "cpu"
	SignalPressure = "pressure"
)

// AdaptiveSignals are all of them.
var AdaptiveSignals = []string{SignalRunP95, SignalErrors, SignalWaitP95, SignalCPU, SignalPressure}

// DefaultSignalInterval and MinSignalInterval are of Adaptive.Interval with a signal of the last minute: a loop that looks sooner steps again for what it has
// stepped for, and swings.
const (
	DefaultSignalInterval = time.Minute
	MinSignalInterval     = 30 * time.Second
	// DefaultBreakerInterval is the same with the pressure of a downstream where the policy says nothing of its circuit breaker: else it is the window of that, and half of
	// it the least.
	DefaultBreakerInterval = 10 * time.Second
)

// What a trigger may do.
const (
	// ReduceLimit makes a limit less by a part.
	ReduceLimit = "reduce_limit"
	// SuspendQueue refuses jobs that come to a queue, PauseJobs dispatches none of a queue or to a downstream.
	SuspendQueue = "suspend"
	PauseJobs    = "pause"
	// ShedJobs has the pressure of a queue be a level at least.
	ShedJobs = "shed"
)

// TriggerActions are all of them.
var TriggerActions = []string{ReduceLimit, SuspendQueue, PauseJobs, ShedJobs}

// TriggerBound is a value that is above, or below, a bound for a time. One of Above and Below is there.
type TriggerBound struct {
	Above, Below *float64
	// For is how long it has to be, MinTriggerFor to MaxTriggerFor; zero means DefaultTriggerFor, of Until that of When.
	For time.Duration
}

// Trigger does something about limits, a queue or a downstream while something that is measured is beyond a bound, and ends it when it is not any more.
type Trigger struct {
	// When is by which value of Metric it begins. Of is what that is measured of: "queue NAME", "global" for all queues (the most of any; of depths the sum)
	// or "downstream NAME" for its circuit breaker and for how runs that call it go; empty means the trigger's own Of, and "global" where that does not do.
	Metric     string
	MeasuredOf string
	When       TriggerBound
	// Until is by which value it ends; without a bound it is where When does not hold any more.
	Until TriggerBound
	// Do is one of TriggerActions, Of to what: "global", "queue NAME" or "downstream NAME".
	Do, Of string
	// Moves is which limit of a downstream ReduceLimit is about, as Adaptive.Moves.
	Moves string
	// By is which part of a limit ReduceLimit changes it by, -MaxCut to -MinCut.
	By float64
	// Level is that of ShedJobs, "LOW" to "CRITICAL"; empty means "HIGH".
	Level string
	// Priority says which of several counts that reduce one limit, the highest, 1 to MaxTriggerPriority; zero means DefaultTriggerPriority. Of equal
	// ones the one does that leaves least.
	Priority int
	// Disabled has it do nothing.
	Disabled bool
}

type triggerWhenJSON struct {
	Metric string   `json:"metric"`
	Of     string   `json:"of,omitempty"`
	Above  *float64 `json:"above,omitempty"`
	Below  *float64 `json:"below,omitempty"`
	For    string   `json:"for,omitempty"`
}

type triggerUntilJSON struct {
	Above *float64 `json:"above,omitempty"`
	Below *float64 `json:"below,omitempty"`
	For   string   `json:"for,omitempty"`
}

// triggerJSON is a Trigger as it is written.
type triggerJSON struct {
	When     triggerWhenJSON  `json:"when"`
	Do       string           `json:"do"`
	Of       string           `json:"of"`
	Moves    string           `json:"moves,omitempty"`
	By       float64          `json:"by,omitempty"`
	Level    string           `json:"level,omitempty"`
	Until    triggerUntilJSON `json:"until,omitzero"`
	Priority int              `json:"priority,omitempty"`
	Enabled  *bool            `json:"enabled,omitempty"`
}

func (t Trigger) wire() triggerJSON {
	w := triggerJSON{
		When: triggerWhenJSON{t.Metric, t.MeasuredOf, t.When.Above, t.When.Below, formatBound(t.When.For)}, Do: t.Do, Of: t.Of, Moves: t.Moves, By: t.By, Level: t.Level,
		Until: triggerUntilJSON{t.Until.Above, t.Until.Below, formatBound(t.Until.For)}, Priority: t.Priority,
	}
	if t.Disabled {
		w.Enabled = new(false)
	}
	return w
}

func (w triggerJSON) trigger(at string, bad *problems) Trigger {
	return Trigger{
		Metric: w.When.Metric, MeasuredOf: w.When.Of, When: TriggerBound{w.When.Above, w.When.Below, bad.parseDuration(at+".when.for", w.When.For)},
		Do: w.Do, Of: w.Of, Moves: w.Moves, By: w.By, Level: w.Level,
		Until:    TriggerBound{w.Until.Above, w.Until.Below, bad.parseDuration(at+".until.for", w.Until.For)},
		Priority: w.Priority, Disabled: w.Enabled != nil && !*w.Enabled,
	}
}

// withDefaults fills in what is left out.
func (t Trigger) withDefaults() Trigger {
	t.When.For = cmp.Or(t.When.For, DefaultTriggerFor)
	t.Until.For = cmp.Or(t.Until.For, t.When.For)
	if t.Until.Above == nil && t.Until.Below == nil {
		t.Until.Above, t.Until.Below = t.When.Below, t.When.Above
	}
	t.Priority = cmp.Or(t.Priority, DefaultTriggerPriority)
	if t.Do == ShedJobs {
		t.Level = cmp.Or(t.Level, admission.PressureHigh.String())
	}
	if t.MeasuredOf == "" {
		t.MeasuredOf = ofGlobal
		queue, downstream := strings.HasPrefix(t.Of, ofQueue), strings.HasPrefix(t.Of, ofDownstream)
		if ofDownstreams(t.Metric) && downstream || t.Metric != MetricBreaker && t.Metric != MetricRedis && queue {
			t.MeasuredOf = t.Of
		}
	}
	return t
}

// ofDownstreams reports whether a metric is of downstreams too, or alone.
func ofDownstreams(metric string) bool {
	return metric == MetricBreaker || metric == MetricErrors || metric == MetricRunP95 || metric == MetricWaitP95
}

// What Of begins with of a queue and of a downstream.
const ofQueue, ofDownstream = "queue ", "downstream "

// Target returns the queue or the downstream of Of; both are empty of the global limit.
func (t Trigger) Target() (queue, downstream string) { return targetOf(t.Of) }

// Measured is Target of what it looks at.
func (t Trigger) Measured() (queue, downstream string) { return targetOf(t.MeasuredOf) }

func targetOf(of string) (queue, downstream string) {
	if name, ok := strings.CutPrefix(of, ofQueue); ok {
		return name, ""
	}
	name, _ := strings.CutPrefix(of, ofDownstream)
	if of == ofGlobal {
		name = ""
	}
	return "", name
}

// NamedTrigger is one that is enabled.
type NamedTrigger struct {
	Name string
	Trigger
}

// Trigger returns one of the triggers as it is in force, whether it is enabled or not.
func (p Policy) Trigger(name string) NamedTrigger {
	return NamedTrigger{name, p.Triggers[name].withDefaults()}
}

// Switch returns it as it is before anything was seen.
func (t *NamedTrigger) Switch() control.Switch {
	return control.Switch{On: t.When.threshold(), Off: t.Until.threshold()}
}

func (b TriggerBound) threshold() control.Threshold {
	if b.Below != nil {
		return control.Threshold{Below: true, Bound: *b.Below, For: b.For}
	}
	return control.Threshold{Bound: *b.Above, For: b.For}
}

// Words tells people what holds.
func (b TriggerBound) Words() string {
	word, bound := "above", b.Above
	if b.Below != nil {
		word, bound = "below", b.Below
	}
	return word + " " + strconv.FormatFloat(*bound, 'g', -1, 64) + " for " + admission.DurationText(b.For)
}

// Cut is by which a trigger reduces a limit.
func (t *NamedTrigger) Cut() control.Cut {
	return control.Cut{Name: t.Name, Priority: t.Priority, By: t.By}
}

// Triggers returns every trigger that is enabled, by name.
func (c *Compiled) Triggers() []NamedTrigger {
	var all []NamedTrigger
	for _, name := range sortedKeys(c.triggers) {
		if t := c.triggers[name]; !t.Disabled {
			all = append(all, NamedTrigger{name, t})
		}
	}
	return all
}

// validateTriggers checks all of them.
func (p Policy) validateTriggers(bad *problems) {
	if n := len(p.Triggers); n > MaxTriggers {
		bad.field("triggers", strconv.Itoa(n)+" triggers", "up to "+strconv.Itoa(MaxTriggers))
	}
	if len(p.Triggers) > 0 && p.Load == nil {
		bad.field("triggers", strconv.Itoa(len(p.Triggers))+" triggers", `none without a load, by which workers tell what triggers look at: "load": {}`)
	}
	for _, name := range sortedKeys(p.Triggers) {
		bad.add(admission.ValidateName("trigger", name, true))
		t, at := p.Triggers[name], "triggers."+name
		if _, taken := p.Adaptive[name]; taken {
			bad.field("triggers", strconv.Quote(name), "another name than one of adaptive: its limit is told of by that name")
		}
		p.validateMeasured(bad, at+".when", t)
		t.validateBounds(bad, at)
		p.validateActs(bad, at, t)
		bad.integer(at+".priority", int64(t.Priority), 1, MaxTriggerPriority)
	}
}

// validateMeasured checks what a trigger looks at.
func (p Policy) validateMeasured(bad *problems, at string, t Trigger) {
	queue, downstream := t.Measured()
	ofAll := t.MeasuredOf == ofGlobal
	switch {
	case !slices.Contains(TriggerMetrics, t.Metric):
		bad.field(at+".metric", strconv.Quote(t.Metric), "one of "+quoteNames(TriggerMetrics))
	case t.Metric == MetricBreaker:
		if downstream == "" || admission.ValidateName("downstream", downstream, true) != nil {
			bad.field(at+".of", strconv.Quote(t.MeasuredOf), `"downstream NAME", whose circuit breaker it is`)
		}
	case t.Metric == MetricRedis:
		if !ofAll {
			bad.field(at+".of", strconv.Quote(t.MeasuredOf), `"global", or nothing: it is the memory of Redis`)
		}
	case downstream != "" && ofDownstreams(t.Metric):
		if admission.ValidateName("downstream", downstream, true) != nil {
			bad.field(at+".of", strconv.Quote(t.MeasuredOf), `"downstream NAME"`)
		}
	case !ofAll && (queue == "" || admission.ValidateName("queue", queue, true) != nil):
		bad.field(at+".of", strconv.Quote(t.MeasuredOf), `"queue NAME", or "global" for all queues`)
	case t.Metric == MetricPressure && !p.pressed(queue):
		bad.field(at+".of", strconv.Quote(t.MeasuredOf), `"queue NAME" with a pressure, or "global" where a queue has one`)
	}
}

// pressed reports whether it is measured how much a queue is pressed, of any for "".
func (p Policy) pressed(queue string) bool {
	if queue != "" {
		return p.Queues[queue].Pressure != nil
	}
	return slices.ContainsFunc(sortedKeys(p.Queues), func(name string) bool { return p.Queues[name].Pressure != nil })
}

// validateBounds checks by which values it begins and ends.
func (t Trigger) validateBounds(bad *problems, at string) {
	ok := true
	for _, side := range []struct {
		name string
		TriggerBound
	}{{"when", t.When}, {"until", t.Until}} {
		bad.duration(at+"."+side.name+".for", side.For, MinTriggerFor, MaxTriggerFor)
		for _, bound := range []*float64{side.Above, side.Below} {
			if bound != nil && !(*bound >= 0 && *bound <= MaxTriggerBound) {
				bad.field(at+"."+side.name, strconv.FormatFloat(*bound, 'g', -1, 64), "a bound of 0 to 1e+12")
			}
		}
		if (side.Above == nil) == (side.Below == nil) {
			bad.field(at+"."+side.name, "neither or both of above and below", "one of them")
			ok = false
		}
	}
	if !ok {
		return
	}
	const allowed = "on the other side of when, and not beyond its bound: else it would end while it begins"
	switch {
	case (t.When.Above == nil) == (t.Until.Above == nil):
		bad.field(at+".until", t.Until.Words(), allowed)
	case t.When.Above != nil && *t.Until.Below > *t.When.Above, t.When.Below != nil && *t.Until.Above < *t.When.Below:
		bad.field(at+".until", t.Until.Words(), allowed)
	}
}

// validateActs checks what it does.
func (p Policy) validateActs(bad *problems, at string, t Trigger) {
	queue, downstream := t.Target()
	named := queue != "" && admission.ValidateName("queue", queue, true) == nil || downstream != "" && admission.ValidateName("downstream", downstream, true) == nil
	switch t.Do {
	case ReduceLimit:
		p.validateReduces(bad, at, t)
	case PauseJobs:
		if !named {
			bad.field(at+".of", strconv.Quote(t.Of), `"queue NAME" or "downstream NAME"`)
		}
	case SuspendQueue:
		if !named || queue == "" {
			bad.field(at+".of", strconv.Quote(t.Of), `"queue NAME"`)
		}
	case ShedJobs:
		if queue == "" || !p.pressed(queue) || p.Shedding == nil {
			bad.field(at+".of", strconv.Quote(t.Of), `"queue NAME" with a pressure, in a policy with a shedding`)
		}
		if level, known := admission.ParsePressureLevel(t.Level); !known || level == admission.PressureNone {
			bad.field(at+".level", strconv.Quote(t.Level), `"LOW", "MEDIUM", "HIGH" or "CRITICAL"`)
		}
		if t.Metric == MetricPressure {
			bad.field(at+".when.metric", strconv.Quote(t.Metric), "another, of shed: by that one it would hold itself")
		}
	default:
		bad.field(at+".do", strconv.Quote(t.Do), "one of "+quoteNames(TriggerActions))
	}
	if t.Do != ReduceLimit && t.By != 0 {
		bad.field(at+".by", strconv.FormatFloat(t.By, 'g', -1, 64), "none, but of reduce_limit")
	}
	if t.Do != ReduceLimit && t.Moves != "" {
		bad.field(at+".moves", strconv.Quote(t.Moves), "none, but of reduce_limit of a downstream")
	}
	if t.Do != ShedJobs && t.Level != "" {
		bad.field(at+".level", strconv.Quote(t.Level), "none, but of shed")
	}
}

// validateReduces checks one that reduces a limit.
func (p Policy) validateReduces(bad *problems, at string, t Trigger) {
	queue, downstream := t.Target()
	of, limit := p.Downstreams[downstream], cmp.Or(t.Moves, MovesMaxRunning)
	var there bool
	switch {
	case limit != MovesMaxRunning && limit != MovesDispatch || t.Moves != "" && downstream == "":
		bad.field(at+".moves", strconv.Quote(t.Moves), `"max_running" or "dispatch", of a downstream`)
		return
	case t.Of == ofGlobal:
		there = p.Global != (admission.Limit{}) && !p.Global.Disabled
	case queue != "":
		there = p.limitsQueue(queue)
	case limit == MovesMaxRunning:
		there = of.MaxRunning > 0
	default:
		there = of.Dispatch != nil && !of.Dispatch.Disabled && of.Dispatch.Tokens <= MaxMaxRunning
	}
	if !there {
		bad.field(at+".of", strconv.Quote(t.Of), `"global" with a global limit, "queue NAME" with limits, or "downstream NAME", one of "downstreams" with a `+limit)
	}
	if !(t.By >= -MaxCut && t.By <= -MinCut) {
		bad.field(at+".by", strconv.FormatFloat(t.By, 'g', -1, 64), "-0.99 to -0.01: by which part the limit is less")
	}
}
