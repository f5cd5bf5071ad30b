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

// Health is the controller of limits of admission that halves them while what they let in is ill, and brings them back by steps of a fifth.
const Health = control.Health

// Bounds of what moves limits of admission.
const (
	// MaxMinChange is the most of Adaptive.MinChange.
	MaxMinChange = time.Hour
	// MaxDependsOn is how many circuit breakers a limit may depend on.
	MaxDependsOn = 16
	// MinTargetPressure and MaxTargetPressure are the bounds of Adaptive.TargetPressure.
	MinTargetPressure, MaxTargetPressure = 0.05, 0.95 //nolint:revive // the bounds of one thing
	// partUnit is how many of the units in which a part of limits moves are a percent, and partWhole all.
	partUnit, partWhole = 10, 1000
)

// ofGlobal is Adaptive.Of of the global limit.
const ofGlobal = "global"

// limits returns of which queue's limits it is how much that moves, "" of the global one.
func (a Adaptive) limits() (queue string, ok bool) {
	if a.Of == ofGlobal {
		return "", true
	}
	return strings.CutPrefix(a.Of, "queue ")
}

// part is by what a part of limits moves.
func (a Adaptive) part() control.PartConfig {
	return control.PartConfig{
		Controller: a.Controller, Min: a.leastPart(), Max: cmp.Or(a.Max, 100) * partUnit, Interval: a.Interval, Target: cmp.Or(a.Target, a.TargetPressure), Gains: a.Gains,
		MinChange: a.MinChange, Signal: a.Signal != "" && a.Signal != SignalPressure,
	}
}

// withPartDefaults fills in what is left out of one that moves limits of admission.
func (a Adaptive) withPartDefaults() Adaptive {
	if a.Signal == SignalWaitP95 && cmp.Or(a.Controller, PID) == PID {
		a.Gains = cmp.Or(a.Gains, control.WaitGains)
	}
	c := a.part().WithDefaults()
	a.Controller, a.Gains, a.MinChange = c.Controller, c.Gains, c.MinChange
	if a.Signal == "" {
		a.TargetPressure = c.Target
	}
	return a
}

// moving returns it as the scheduler takes it.
func (a Adaptive) moving(name string) Moving {
	queue, _ := a.limits()
	m := Moving{Name: name, Limits: true, Queue: queue, Part: a.part(), Signal: a.Signal, DependsOn: a.DependsOn}
	if len(a.Protect) > 0 {
		m.Protect, m.Min = a.Protect, a.Min
	}
	return m
}

// leastPart is how far the part goes down by which all limits move: to Min, and where tiers are protected so far below that each of them is at its own.
func (a Adaptive) leastPart() int {
	least := a.Min * partUnit
	for _, of := range a.Protect {
		least = min(least, max(1, a.Min*of.Min*partUnit/percent))
	}
	return least
}

// percent is how many of them are all.
const percent = 100

// InForce returns how much of the limits of a tier's tenants is in force while the loop leaves so much of all limits, both of what the policy says,
// above 0 to 1: of a tier that Protect does not have down to Min, and of one that it has what is left to cut then. Of "" it is that of all that are in none.
func (m *Moving) InForce(tier string, part float64) float64 {
	if len(m.Protect) == 0 {
		return part
	}
	limit := floorOf(admission.Limit{}, m.Min, m.Protect, tier)
	return limit.PartAt(part)
}

// floorOf has a limit of a tier's tenants be cut as the loop of their queue cuts it, which has a min.
func floorOf(limit admission.Limit, least int, protect map[string]Protection, tier string) admission.Limit {
	if of, protected := protect[tier]; protected {
		return limit.WithFloor(least, of.Min)
	}
	return limit.WithFloor(percent, least)
}

// floor has limits on the way of a tenant of a tier in a queue know how far they are cut, where a loop protects tiers there.
func (c *Compiled) floor(limits *Limits, tier, queue string) {
	a, protects := c.protecting[queue]
	if !protects {
		return
	}
	for level := admission.LevelQueue; level <= admission.LevelPriority; level++ {
		if limit := &limits[level]; !limit.Disabled {
			*limit = floorOf(*limit, a.Min, a.Protect, tier)
		}
	}
}

// protecting returns what moves limits of queues where it protects tiers, by queue; nil for none.
func protecting(all map[string]Adaptive) (by map[string]Adaptive) {
	for _, a := range all {
		if queue, _ := a.limits(); len(a.Protect) > 0 {
			if by == nil {
				by = map[string]Adaptive{}
			}
			by[queue] = a
		}
	}
	return by
}

// validateProtect checks which tiers are cut last.
func (p Policy) validateProtect(bad *problems, at string, a Adaptive) {
	if len(a.Protect) == 0 {
		return
	}
	if queue, limits := a.limits(); !limits || queue == "" {
		bad.field(at, strconv.Itoa(len(a.Protect))+" tiers", `none, but of "queue NAME": what all tenants share has no part of a tier's`)
		return
	}
	for _, tier := range sortedKeys(a.Protect) {
		if _, there := p.Tiers[tier]; !there {
			bad.field(at, strconv.Quote(tier), "one of tiers: "+quoteNames(sortedKeys(p.Tiers)))
		}
		bad.integer(at+"."+tier+".min", int64(a.Protect[tier].Min), 1, percent)
	}
}

// bound is which limit a trigger reduces, as validateAdaptive tells them apart.
func (t Trigger) bound() string {
	if _, downstream := t.Target(); downstream != "" {
		return cmp.Or(t.Moves, MovesMaxRunning) + " " + downstream
	}
	return t.Of
}

// driven adds what triggers move that nothing else does, under the name of the first of them: between what all of them leave and what the policy says.
func (c *Compiled) driven(moving []Moving) []Moving {
	taken := map[string]int{}
	for i := range moving {
		taken[moving[i].bound()] = -1
	}
	for _, t := range c.Triggers() {
		if t.Do != ReduceLimit {
			continue
		}
		at, there := taken[t.bound()]
		if !there {
			at, taken[t.bound()] = len(moving), len(moving)
			moving = append(moving, c.drivenBy(&t))
		}
		if at >= 0 {
			moving[at].lower(t.Cut())
		}
	}
	return moving
}

// bound is that of a trigger which reduces it.
func (m *Moving) bound() string {
	switch {
	case m.Limits && m.Queue == "":
		return ofGlobal
	case m.Limits:
		return ofQueue + m.Queue
	case m.Dispatch:
		return MovesDispatch + " " + m.Downstream
	}
	return MovesMaxRunning + " " + m.Downstream
}

// Reduces reports whether a trigger reduces that limit.
func (t *NamedTrigger) Reduces(m *Moving) bool { return t.Do == ReduceLimit && t.bound() == m.bound() }

// drivenBy is a limit that triggers alone move, as it is without any.
func (c *Compiled) drivenBy(t *NamedTrigger) Moving {
	queue, downstream := t.Target()
	m := Moving{Name: t.Name, Downstream: downstream, Driven: true}
	switch {
	case downstream == "":
		m.Limits, m.Queue = true, queue
		m.Part = control.PartConfig{Min: partWhole, Max: partWhole, Interval: TriggerEvery}
	case t.Moves == MovesDispatch:
		m.Dispatch = true
		m.Own, m.Rate = Adaptive{Min: 1, Interval: TriggerEvery}.rate(c.downstreams[downstream].Dispatch)
		m.Rate.Min = m.Own
	default:
		m.MaxRunning = c.downstreams[downstream].MaxRunning
		m.Config = control.Config{Min: m.MaxRunning, Max: m.MaxRunning, Interval: TriggerEvery}
	}
	return m
}

// lower has the limit go as low as a cut leaves it.
func (m *Moving) lower(cut control.Cut) {
	switch {
	case m.Limits:
		m.Part.Min = min(m.Part.Min, cut.Of(1, m.Part.Max))
	case m.Dispatch:
		m.Rate.Min = min(m.Rate.Min, cut.Of(1, m.Rate.Max))
	default:
		m.Config.Min = min(m.Config.Min, cut.Of(1, m.Config.Max))
	}
}

// validateLimits checks one that moves limits of admission.
func (p Policy) validateLimits(bad *problems, at, queue string, a Adaptive) {
	pressed := a.Signal == "" || a.Signal == SignalPressure
	if queue == "" {
		switch there := p.Global != (admission.Limit{}) && !p.Global.Disabled; {
		case !pressed && !there:
			bad.field(at+".of", strconv.Quote(a.Of), `"global" where there is a global limit`)
		case pressed && (!there || !p.pressed("")):
			bad.field(at+".of", strconv.Quote(a.Of), `"global" where there is a global limit, and a queue with a pressure by which it moves`)
		}
	} else if !pressed && !p.limitsQueue(queue) {
		bad.field(at+".of", strconv.Quote(a.Of), `"queue NAME" with limits: each_tenant, a tier's queues, queue_limits or priority_limits`)
	} else if pressed && (p.Queues[queue].Pressure == nil || !p.limitsQueue(queue)) {
		bad.field(at+".of", strconv.Quote(a.Of), `"queue NAME" with a pressure, and with limits: each_tenant, a tier's queues, queue_limits or priority_limits`)
	}
	bad.integer(at+".min", int64(a.Min), 1, 100)
	if a.Max != 0 && (a.Max < a.Min || a.Max > 100) {
		bad.field(at+".max", strconv.Itoa(a.Max), "min to 100 percent of what the policy says, or 0 for that")
	}
	bad.duration(at+".interval", a.Interval, MinAdaptiveInterval, MaxAdaptiveInterval)
	c := a.part()
	c.Min, c.Max, c.Interval = 1, 1, time.Second
	if a.Signal == "" && a.TargetPressure != 0 && a.Controller != Health {
		if !(a.TargetPressure >= MinTargetPressure && a.TargetPressure <= MaxTargetPressure) {
			bad.field(at+".target_pressure", strconv.FormatFloat(a.TargetPressure, 'g', -1, 64), "0.05 to 0.95")
		}
		c.Target = 0
	}
	if a.MinChange != 0 {
		bad.duration(at+".min_change_interval", a.MinChange, time.Second, MaxMinChange)
		c.MinChange = 0
	}
	bad.fields(at, c.Validate())
	const allowed = "none: a part of limits goes by pressure"
	for _, field := range []struct {
		name, value string
		there       bool
	}{
		{"moves", strconv.Quote(a.Moves), a.Moves != ""},
		{"max_run_time", a.MaxRunTime.String(), a.MaxRunTime != 0},
		{"max_failures", strconv.FormatFloat(a.MaxFailures, 'g', -1, 64), a.MaxFailures != 0},
		{"target_run_time", a.TargetRunTime.String(), a.TargetRunTime != 0},
	} {
		if field.there {
			bad.field(at+"."+field.name, field.value, allowed)
		}
	}
}

// limitsQueue reports whether anything says how much of a queue's jobs are admitted.
func (p Policy) limitsQueue(queue string) bool {
	for _, name := range []string{queue, Every} {
		if each := p.Queues[name].EachTenant; !each.empty() {
			return true
		}
		for _, tier := range p.Tiers {
			if of, ok := tier.Queues[name]; ok {
				if each := of.limits(); !each.empty() {
					return true
				}
			}
		}
	}
	for _, scopes := range [][]admission.Scope{sortedKeys(p.QueueLimits), sortedKeys(p.PriorityLimits)} {
		if slices.ContainsFunc(scopes, func(s admission.Scope) bool {
			parts := strings.Split(string(s), ":")
			return len(parts) > 1 && parts[1] == queue
		}) {
			return true
		}
	}
	return p.TenantRecords
}

// validateOfLimits refuses what is of limits of admission alone.
func (a Adaptive) validateOfLimits(bad *problems, at string) {
	const allowed = "none, but of global or a queue"
	if a.TargetPressure != 0 {
		bad.field(at+".target_pressure", strconv.FormatFloat(a.TargetPressure, 'g', -1, 64), allowed)
	}
	if a.MinChange != 0 {
		bad.field(at+".min_change_interval", a.MinChange.String(), allowed)
	}
}

// validateDependsOn checks the downstreams whose circuit breakers halve it.
func (a Adaptive) validateDependsOn(bad *problems, at string) {
	if n := len(a.DependsOn); n > MaxDependsOn {
		bad.field(at+".depends_on", strconv.Itoa(n)+" downstreams", "up to "+strconv.Itoa(MaxDependsOn))
	}
	for i, name := range a.DependsOn {
		if err := admission.ValidateService("depends_on", name, true); err != nil {
			bad.field(at+".depends_on", strconv.Quote(name), "names of downstreams")
		} else if slices.Contains(a.DependsOn[:i], name) {
			bad.field(at+".depends_on", strconv.Quote(name), "each downstream once")
		}
	}
}

// Bounds of AnomalyRules.
const (
	MinWarnAt         = 0.01
	DefaultMaxUnknown = 60
	MinMaxUnknown     = 10
	MaxMaxUnknown     = 1000
)

// AnomalyRules have rates watched: who is not usual is told of, and nothing else is done.
type AnomalyRules struct {
	// MaxUnknown is how many different things that are not there a credential may ask for in a minute, of one server, before that is told of as
	// a scope_scan: MinMaxUnknown to MaxMaxUnknown; zero means DefaultMaxUnknown.
	MaxUnknown int
	// WarnAt is of which part of its limit a scope is told to have used it nearly (near_limit): MinWarnAt to 1; zero for never.
	WarnAt float64
	// Forecast has what queues are asked for kept for 15 days, by which the next hour is foreseen.
	Forecast bool
}

type anomalyJSON struct {
	MaxUnknown int     `json:"max_unknown,omitempty"`
	WarnAt     float64 `json:"warn_at,omitempty"`
	Forecast   bool    `json:"forecast,omitempty"`
}

func (a *AnomalyRules) wire() *anomalyJSON {
	if a == nil {
		return nil
	}
	return &anomalyJSON{a.MaxUnknown, a.WarnAt, a.Forecast}
}

func (w *anomalyJSON) rules() *AnomalyRules {
	if w == nil {
		return nil
	}
	return &AnomalyRules{w.MaxUnknown, w.WarnAt, w.Forecast}
}

func (a *AnomalyRules) withDefaults() *AnomalyRules {
	if a == nil {
		return nil
	}
	return &AnomalyRules{cmp.Or(a.MaxUnknown, DefaultMaxUnknown), a.WarnAt, a.Forecast}
}

func (a *AnomalyRules) validate(bad *problems) {
	if a != nil && a.WarnAt != 0 && !(a.WarnAt >= MinWarnAt && a.WarnAt <= 1) {
		bad.field("anomalies.warn_at", strconv.FormatFloat(a.WarnAt, 'g', -1, 64), "0.01 to 1 of a limit, or 0 for never")
	}
	if a != nil && (a.MaxUnknown < MinMaxUnknown || a.MaxUnknown > MaxMaxUnknown) {
		bad.field("anomalies.max_unknown", strconv.Itoa(a.MaxUnknown), strconv.Itoa(MinMaxUnknown)+" to "+strconv.Itoa(MaxMaxUnknown))
	}
}

// Watched reports whether rates are watched.
func (c *Compiled) Watched() bool { return c.anomalies != nil }

// Foresees reports whether what queues are asked for is kept for forecasts.
func (c *Compiled) Foresees() bool { return c.anomalies != nil && c.anomalies.Forecast }

// WarnAt is that of the AnomalyRules, 0 where nothing is told of limits.
func (c *Compiled) WarnAt() float64 {
	if c.anomalies == nil {
		return 0
	}
	return c.anomalies.WarnAt
}

// MaxUnknown is that of the AnomalyRules, 0 where rates are not watched.
func (c *Compiled) MaxUnknown() int {
	if c.anomalies == nil {
		return 0
	}
	return c.anomalies.MaxUnknown
}

// LoadEvery returns how often workers tell how busy they are, 0 for never.
func (c *Compiled) LoadEvery() time.Duration {
	if c.load == nil {
		return 0
	}
	return c.load.Every
}
