package policy

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/control"
)

// Bounds of what moves limits.
const (
	// MaxAdaptive is how many limits a policy may let move.
	MaxAdaptive = 64
	// DefaultAdaptiveInterval, MinAdaptiveInterval and MaxAdaptiveInterval are of Adaptive.Interval.
	DefaultAdaptiveInterval = 5 * time.Second
	MinAdaptiveInterval     = 200 * time.Millisecond
	MaxAdaptiveInterval     = 5 * time.Minute
)

// Controller names the rule by which a limit moves.
type Controller = control.Controller

// The controllers; package control derives them.
const (
	// Gradient looks for the limit from which on throughput grows no more.
	Gradient = control.Gradient
	// AIMD grows until calls take too long or fail, and then cuts.
	AIMD = control.AIMD
	// PID holds how long calls take at a target.
	PID = control.PID
)

// Gains are those of PID, each at most MaxGain.
type Gains = control.Gains

// MaxGain is how much one of Gains is at most.
const MaxGain = control.MaxGain

// Which of its limits a downstream lets move.
const (
	// MovesMaxRunning is its MaxRunning: by how long calls take and how many fail.
	MovesMaxRunning = "max_running"
	// MovesDispatch is its Dispatch: by how many calls the receiver refuses as too many.
	MovesDispatch = "dispatch"
)

// Adaptive lets a limit of a downstream move by itself, between bounds and never above what the downstream's own MaxRunning, or Dispatch, says; or how
// much of limits of admission is in force.
type Adaptive struct {
	// Of is "downstream NAME", one of Downstreams with that limit; "global", the global limit; or "queue NAME", all limits that name the queue. The
	// last two move by how much queues are pressed: that one, or of all that have a Pressure the one that is most.
	Of string
	// Moves is which limit, MovesMaxRunning or MovesDispatch; empty means the first.
	Moves string
	// Controller is by what a MaxRunning moves; empty means Gradient. A Dispatch has one beside a Signal alone, PID, which empty means then, or AIMD. Of limits of admission it is PID, which empty means, AIMD or Health.
	Controller Controller
	// Min is below which it never goes, 1 or more. Max is above which it never goes, from Min on; zero means the downstream's own. Those of a
	// Dispatch are jobs in its Per; those of limits of admission percent of what the policy says, 1 to 100.
	Min, Max int
	// Interval is how often it is looked, 200 ms to 5 min; zero means DefaultAdaptiveInterval. It should be several times the run time
	// of a job.
	Interval time.Duration
	// MaxRunTime is how long calls may take in the mean, 1 ms to 24 h; above, the limit is cut. Zero means no bound.
	MaxRunTime time.Duration
	// MaxFailures is which part of the calls may fail, above 0 and at most 1; above, the limit is cut. Zero means
	// control.DefaultMaxFailures.
	MaxFailures float64
	// TargetRunTime is how long calls are to take in the mean, 1 ms to 24 h and below MaxRunTime: of PID alone, which has to have it.
	TargetRunTime time.Duration
	// Gains are those of PID, each 0 to MaxGain; all zero means control.DefaultGains.
	Gains Gains
	// TargetPressure is the score at which PID and AIMD hold the queues, MinTargetPressure to MaxTargetPressure; zero means control.DefaultTarget. MinChange is
	// how long it is at least from one change to the next, 1 s to MaxMinChange; zero means control.DefaultMinChange of Health, and none of the others. Both are of
	// limits of admission alone.
	TargetPressure float64
	MinChange      time.Duration
	// Signal is by what PID, which empty means then, or AIMD moves a limit instead, one of AdaptiveSignals; empty means its own measurement.
	// Of a downstream SignalWaitP95 is of jobs that call it, by which its limit grows above the Target, and SignalPressure how near its circuit breaker is to
	// opening. Target is where it is held, and has to be there with it: seconds of SignalRunP95 and SignalWaitP95, else a part of 1.
	Signal string
	Target float64
	// DependsOn are downstreams: when the circuit breaker of one opens, the limit is halved at once, and does not grow while it is open.
	DependsOn []string
	// Protect are tiers whose tenants are cut last, by tier: of a queue's limits alone. Those of all others go down to Min first, and these not below
	// their own.
	Protect map[string]Protection
}

// Protection says how far limits of a tier's tenants in a queue are cut, after those of all others.
type Protection struct {
	// Min is below which they never go: percent of what the policy says, 1 to 100.
	Min int `json:"min"`
}

// adaptiveJSON is an Adaptive as it is written.
type adaptiveJSON struct {
	Of            string     `json:"of"`
	Moves         string     `json:"moves,omitempty"`
	Controller    Controller `json:"controller,omitempty"`
	Min           int        `json:"min"`
	Max           int        `json:"max,omitempty"`
	Interval      string     `json:"interval,omitempty"`
	MaxRunTime    string     `json:"max_run_time,omitempty"`
	MaxFailures   float64    `json:"max_failures,omitempty"`
	TargetRunTime string     `json:"target_run_time,omitempty"`
	KP            float64    `json:"kp,omitempty"`
	KI            float64    `json:"ki,omitempty"`
	KD            float64    `json:"kd,omitempty"`

	TargetPressure float64  `json:"target_pressure,omitempty"`
	MinChange      string   `json:"min_change_interval,omitempty"`
	Signal         string   `json:"signal,omitempty"`
	Target         float64  `json:"target,omitempty"`
	DependsOn      []string `json:"depends_on,omitempty"`

	Protect map[string]Protection `json:"protect,omitempty"`
}

func (a Adaptive) wire() adaptiveJSON {
	return adaptiveJSON{
		Of: a.Of, Moves: a.Moves, Controller: a.Controller, Min: a.Min, Max: a.Max, Interval: formatBound(a.Interval), MaxRunTime: formatBound(a.MaxRunTime),
		MaxFailures: a.MaxFailures, TargetRunTime: formatBound(a.TargetRunTime), KP: a.Gains.Proportional, KI: a.Gains.Integral, KD: a.Gains.Derivative,
		TargetPressure: a.TargetPressure, MinChange: formatBound(a.MinChange), Signal: a.Signal, Target: a.Target, DependsOn: a.DependsOn, Protect: a.Protect,
	}
}

func (w adaptiveJSON) adaptive(at string, bad *problems) Adaptive {
	return Adaptive{
		Of: w.Of, Moves: w.Moves, Controller: w.Controller, Min: w.Min, Max: w.Max, Interval: bad.parseDuration(at+".interval", w.Interval),
		MaxRunTime: bad.parseDuration(at+".max_run_time", w.MaxRunTime), MaxFailures: w.MaxFailures,
		TargetRunTime: bad.parseDuration(at+".target_run_time", w.TargetRunTime), Gains: Gains{Proportional: w.KP, Integral: w.KI, Derivative: w.KD},
		TargetPressure: w.TargetPressure, MinChange: bad.parseDuration(at+".min_change_interval", w.MinChange), Signal: w.Signal, Target: w.Target, DependsOn: w.DependsOn, Protect: w.Protect,
	}
}

func (a Adaptive) withDefaults() Adaptive {
	a.DependsOn, a.Protect = slices.Clone(a.DependsOn), maps.Clone(a.Protect)
	if _, limits := a.limits(); limits {
		a = a.withPartDefaults()
	} else if a = a.withSignalDefaults(); !a.movesDispatch() {
		c := a.config().WithDefaults()
		a.Controller, a.MaxFailures, a.Gains = c.Controller, c.MaxFailures, c.Gains
	}
	if a.ofAMinute() {
		a.Interval = cmp.Or(a.Interval, DefaultSignalInterval)
	}
	a.Interval = cmp.Or(a.Interval, DefaultAdaptiveInterval)
	return a
}

// withSignalDefaults fills in by what a signal moves a downstream's limit.
func (a Adaptive) withSignalDefaults() Adaptive {
	if a.Signal == "" {
		return a
	}
	if a.Controller = cmp.Or(a.Controller, PID); a.Controller == PID {
		gains := control.DefaultGains
		if a.Signal == SignalWaitP95 {
			gains = control.CallWaitGains
		}
		a.Gains = cmp.Or(a.Gains, gains)
	}
	return a
}

func (a Adaptive) config() control.Config {
	return control.Config{
		Controller: a.Controller, Min: a.Min, Max: a.Max, Interval: a.Interval, MaxRunTime: a.MaxRunTime, MaxFailures: a.MaxFailures,
		TargetRunTime: a.TargetRunTime, Target: a.Target, Falls: a.Signal == SignalWaitP95, Gains: a.Gains,
	}
}

// ofAMinute reports whether it goes by a signal of which workers tell what it was in the last minute.
func (a Adaptive) ofAMinute() bool {
	return a.Signal == SignalRunP95 || a.Signal == SignalErrors || a.Signal == SignalWaitP95
}

// breakerWindow is the window of the circuit breaker by which a downstream's limit goes, 0 where it goes by none.
func (p Policy) breakerWindow(a Adaptive) time.Duration {
	name, of := a.downstream()
	if !of || a.Signal != SignalPressure {
		return 0
	}
	if rules := cmp.Or(p.Downstreams[name].Breaker, p.AnyDownstream.Breaker); rules != nil && rules.Window > 0 {
		return rules.Window
	}
	return DefaultBreakerInterval
}

// within is an interval as near to another as one may be.
func within(interval time.Duration) time.Duration {
	return max(MinAdaptiveInterval, min(interval, MaxAdaptiveInterval))
}

func (a Adaptive) movesDispatch() bool { return a.Moves == MovesDispatch }

// downstream returns whose limit moves.
func (a Adaptive) downstream() (name string, ok bool) { return strings.CutPrefix(a.Of, "downstream ") }

// Moving is a limit that moves by itself.
type Moving struct {
	Name, Downstream string
	// MaxRunning is what the downstream has of its own, which the limit never exceeds.
	MaxRunning int
	// Config is by what it moves; its Max is not above MaxRunning.
	Config control.Config
	// Dispatch says that it is a rate of dispatches that moves: between Rate.Min and Max, not above Own, each in control.RateUnits. The
	// fields above but for the names are zero then. With a Signal it moves by Part, between the same bounds.
	Dispatch bool
	Own      int
	Rate     control.RateConfig
	// Limits says that it is how much of limits of admission is in force that moves, by Part: of a Queue, or where that is empty of the global one.
	Limits bool
	Queue  string
	Part   control.PartConfig
	// Protect is that of the Adaptive, and Min its Min, where there are any.
	Protect map[string]Protection
	Min     int
	// Signal is that of the Adaptive.
	Signal string
	// DependsOn is that of the Adaptive.
	DependsOn []string
	// Driven says that no Adaptive moves it, but triggers: it is what the policy says while none of them is active. Name is that of the first.
	Driven bool
}

// Interval is how often it is looked.
func (m *Moving) Interval() time.Duration {
	return cmp.Or(m.Config.Interval, m.Rate.Interval, m.Part.Interval)
}

// Metric is what Signal is to triggers, "" where it goes by none, or by a pressure.
func (m *Moving) Metric() string {
	switch m.Signal {
	case SignalPressure:
		return ""
	case SignalCPU:
		return MetricCPU
	}
	return m.Signal
}

// Target is where Signal is held.
func (m *Moving) Target() float64 { return cmp.Or(m.Config.Target, m.Part.Target) }

// Moving returns every limit that moves by itself, by name.
func (c *Compiled) Moving() []Moving {
	all := make([]Moving, 0, len(c.adaptive))
	for _, name := range sortedKeys(c.adaptive) {
		a := c.adaptive[name]
		if _, limits := a.limits(); limits {
			all = append(all, a.moving(name))
			continue
		}
		m := Moving{Name: name, Signal: a.Signal, DependsOn: a.DependsOn}
		m.Downstream, _ = a.downstream()
		if a.movesDispatch() {
			m.Dispatch = true
			m.Own, m.Rate = a.rate(c.downstreams[m.Downstream].Dispatch)
			if a.Signal != "" {
				m.Part = a.paced(m.Rate)
			}
			all = append(all, m)
			continue
		}
		m.Config = a.config()
		m.MaxRunning = c.downstreams[m.Downstream].MaxRunning
		if m.Config.Max == 0 {
			m.Config.Max = m.MaxRunning
		}
		all = append(all, m)
	}
	return c.driven(all)
}

// rate returns the downstream's own rate and between which it moves, in control.RateUnits: none of them rounded up.
func (a Adaptive) rate(dispatch *admission.Limit) (own int, c control.RateConfig) {
	in := func(jobs int) int {
		return max(1, int(float64(jobs)/dispatch.Per.Seconds()*control.RateUnit))
	}
	own = in(int(dispatch.Tokens))
	return own, control.RateConfig{Min: in(a.Min), Max: in(cmp.Or(a.Max, int(dispatch.Tokens))), Interval: a.Interval}
}

// paced is by what a signal moves a rate.
func (a Adaptive) paced(between control.RateConfig) control.PartConfig {
	return control.PartConfig{
		Controller: a.Controller, Min: between.Min, Max: between.Max, Interval: a.Interval, Target: a.Target, Signal: true, Falls: a.Signal == SignalWaitP95, Gains: a.Gains,
	}
}

// DispatchMoves reports whether the dispatch of a downstream moves by itself: then those who call it tell how often they were refused.
func (c *Compiled) DispatchMoves(downstream string) bool {
	for _, a := range c.adaptive {
		if of, _ := a.downstream(); of == downstream && a.movesDispatch() {
			return true
		}
	}
	return false
}

// validateAdaptive checks what lets limits move.
func (p Policy) validateAdaptive(bad *problems) {
	if n := len(p.Adaptive); n > MaxAdaptive {
		bad.field("adaptive", strconv.Itoa(n)+" limits", "up to "+strconv.Itoa(MaxAdaptive))
	}
	by := map[string]string{}
	for _, name := range sortedKeys(p.Adaptive) {
		bad.add(admission.ValidateName("adaptive", name, true))
		a, at := p.Adaptive[name], "adaptive."+name
		a.validateDependsOn(bad, at)
		p.validateProtect(bad, at+".protect", a)
		if !p.validateSignal(bad, at, a) {
			continue
		}
		if queue, limits := a.limits(); limits {
			if before := by[a.Of]; before != "" {
				bad.field(at+".of", strconv.Quote(a.Of), "something else than that of "+strconv.Quote(before)+", which moves the same limits")
			}
			by[a.Of] = name
			p.validateLimits(bad, at, queue, a)
			continue
		}
		a.validateOfLimits(bad, at)
		downstream, ok := a.downstream()
		limit := cmp.Or(a.Moves, MovesMaxRunning)
		of := p.Downstreams[downstream]
		most, what := of.MaxRunning, "the max_running of the downstream"
		if a.movesDispatch() {
			most, what = 0, "what dispatch of the downstream allows in its time"
			if of.Dispatch != nil && !of.Dispatch.Disabled {
				most = min(int(of.Dispatch.Tokens), MaxMaxRunning)
			}
		}
		before := by[limit+" "+downstream]
		_, ofAccount := admission.ServiceOf(downstream)
		switch {
		case ofAccount:
			bad.field(at+".of", strconv.Quote(a.Of), `a service, "downstream NAME": the limits of an account do not move by themselves`)
			continue
		case limit != MovesMaxRunning && limit != MovesDispatch:
			bad.field(at+".moves", strconv.Quote(a.Moves), `"max_running" or "dispatch"`)
			continue
		case !ok || most == 0:
			bad.field(at+".of", strconv.Quote(a.Of), `"downstream NAME", one of "downstreams" with a `+limit+`; "queue NAME" or "global"`)
			most = MaxMaxRunning
		case before != "":
			bad.field(at+".of", strconv.Quote(a.Of), "another downstream than that of "+strconv.Quote(before)+", which moves the same limit")
		}
		by[limit+" "+downstream] = name
		a.validate(bad, at, most, what)
	}
}

// validate checks all but Of. most is what the downstream may run.
func (a Adaptive) validate(bad *problems, at string, most int, what string) {
	bad.integer(at+".min", int64(a.Min), 1, int64(most))
	if a.Max != 0 && (a.Max < a.Min || a.Max > most) {
		bad.field(at+".max", strconv.Itoa(a.Max), "min to "+strconv.Itoa(most)+", "+what+"; or 0 for that")
	}
	bad.duration(at+".interval", a.Interval, MinAdaptiveInterval, MaxAdaptiveInterval)
	if a.movesDispatch() {
		a.validateDispatch(bad, at)
		return
	}
	if a.MaxRunTime != 0 {
		bad.duration(at+".max_run_time", a.MaxRunTime, time.Millisecond, 24*time.Hour)
	}
	c := a.config()
	c.Min, c.Max, c.Interval, c.MaxRunTime = 1, 1, time.Second, 0
	if a.Controller == PID && a.TargetRunTime != 0 {
		bad.duration(at+".target_run_time", a.TargetRunTime, time.Millisecond, 24*time.Hour)
		c.TargetRunTime = time.Second
		if a.MaxRunTime != 0 && a.MaxRunTime <= a.TargetRunTime {
			bad.field(at+".max_run_time", a.MaxRunTime.String(), "above target_run_time: it cuts where pid holds; or none")
		}
	}
	bad.fields(at, c.Validate())
}

// fields adds errors that have Invalid, each by its field below one.
func (p *problems) fields(at string, err error) {
	joined, _ := admission.FieldErrors(err).(interface{ Unwrap() []error })
	if joined == nil {
		return
	}
	for _, one := range joined.Unwrap() {
		if field, ok := errors.AsType[*admission.FieldError](one); ok {
			p.field(at+"."+field.Field, field.Value, field.Allowed)
		}
	}
}

// Bounds of how often workers tell how busy they are.
const (
	DefaultLoadEvery = 5 * time.Second
	MinLoadEvery     = time.Second
	MaxLoadEvery     = time.Minute
)

// LoadRules say how workers tell how busy they are.
type LoadRules struct {
	// Every is how often each does, MinLoadEvery to MaxLoadEvery; zero means DefaultLoadEvery.
	Every time.Duration
}

type loadJSON struct {
	Every string `json:"every,omitempty"`
}

func (l *LoadRules) wire() *loadJSON {
	if l == nil {
		return nil
	}
	return &loadJSON{Every: formatBound(l.Every)}
}

func (w *loadJSON) load(bad *problems) *LoadRules {
	if w == nil {
		return nil
	}
	return &LoadRules{Every: bad.parseDuration("load.every", w.Every)}
}

func (l *LoadRules) withDefaults() *LoadRules {
	if l == nil {
		return nil
	}
	return &LoadRules{Every: cmp.Or(l.Every, DefaultLoadEvery)}
}

func (l *LoadRules) validate(bad *problems) {
	if l != nil {
		bad.duration("load.every", l.Every, MinLoadEvery, MaxLoadEvery)
	}
}
