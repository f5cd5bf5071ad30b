package policy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/control"
)

// problems collects every bad field of a policy.
type problems []error

func (p *problems) add(err error) {
	if err != nil {
		*p = append(*p, err)
	}
}

func (p *problems) field(name, value, allowed string) {
	p.add(&admission.FieldError{Field: name, Value: value, Allowed: allowed})
}

func (p *problems) integer(name string, value, low, high int64) {
	if value < low || value > high {
		p.field(name, strconv.FormatInt(value, 10), fmt.Sprintf("%d to %d", low, high))
	}
}

func (p *problems) duration(name string, value, low, high time.Duration) {
	if value < low || value > high {
		p.field(name, admission.DurationText(value), admission.DurationText(low)+" to "+admission.DurationText(high))
	}
}

// Validate reports every bad field at once, in an order that does not change from call to call. Each error
// matches headgate.ErrInvalid.
func (p Policy) Validate() error {
	p = p.withDefaults()
	var bad problems
	if p.Version < 0 {
		bad.field("version", strconv.FormatInt(p.Version, 10), "0, the built-in policy, or more")
	}
	bad.add(p.Global.Validate(string(admission.Global)))
	p.validateGlobalReserved(&bad)
	p.validateBypass(&bad)
	bad.duration("dedup_window", p.DedupWindow, MinDedupWindow, MaxDedupWindow)
	if _, ok := p.Tiers[StandardTier]; !ok {
		bad.field("tiers", quoteNames(sortedKeys(p.Tiers)), `a set with "standard", the tier of a tenant nobody configured: add it`)
	}
	for _, name := range sortedKeys(p.Tiers) {
		bad.add(admission.ValidateName("tier", name, true))
		bad.add(p.Tiers[name].Limit.Validate("tiers." + name + ".limit"))
		bad.weights("tiers."+name+".", p.Tiers[name].Weights)
	}
	p.validateTenants(&bad)
	p.validateScopes(&bad)
	p.validateOverflows(&bad)
	p.validateEachTenant(&bad)
	p.validateCaps(&bad)
	p.validateAdaptive(&bad)
	p.validateShedding(&bad)
	p.Load.validate(&bad)
	p.Anomalies.validate(&bad)
	p.validateTriggers(&bad)
	bad.semaphores(p.Semaphores, MaxSemaphores, true)
	p.validateDimensions(&bad)
	for _, name := range sortedKeys(p.Queues) {
		if name != Every {
			bad.add(admission.ValidateName("queue", name, true))
		}
		bad.queue("queues."+name, p.Queues[name])
	}
	p.validateObserve(&bad)
	p.validateUsage(&bad)
	p.Reservations.validate(&bad, "reservations")
	if len(bad) == 0 {
		p.validateRollout(&bad)
	}
	return errors.Join(bad...)
}

func (p Policy) validateTenants(bad *problems) {
	for _, name := range sortedKeys(p.Tenants) {
		tenant := p.Tenants[name]
		bad.add(admission.ValidateTenant(name))
		if _, ok := p.Tiers[tenant.Tier]; !ok {
			bad.field("tenants."+name+".tier", strconv.Quote(tenant.Tier), "one of "+quoteNames(sortedKeys(p.Tiers)))
		}
		if tenant.Limit != nil {
			bad.add(tenant.Limit.Validate("tenants." + name + ".limit"))
		}
		bad.weights("tenants."+name+".", tenant.Weights)
		for _, queue := range sortedKeys(tenant.Queues) {
			bad.add(admission.ValidateName("tenants."+name+".queues", queue, true))
			bad.typeLimits("tenants."+name+".queues."+queue+".", tenant.Queues[queue].TypeLimits)
		}
	}
}

// typeLimits checks limits of types of jobs.
func (p *problems) typeLimits(at string, limits map[string]admission.Limit) {
	if n := len(limits); n > MaxTypeLimits {
		p.field(at+"type_limits", strconv.Itoa(n)+" types", "up to "+strconv.Itoa(MaxTypeLimits))
	}
	for _, jobType := range sortedKeys(limits) {
		if jobType != Every {
			p.add(admission.ValidateName(at+"type_limits", jobType, false))
		}
		p.add(limits[jobType].Validate(at + "type_limits." + jobType))
	}
}

// validateScopes checks the limits of queues and priorities, with the scopes that name them.
func (p Policy) validateScopes(bad *problems) {
	for _, scope := range sortedKeys(p.QueueLimits) {
		parts := strings.Split(string(scope), ":")
		if len(parts) != 2 {
			bad.field("queue_limits", strconv.Quote(string(scope)), `scopes "tenant:queue"`)
			continue
		}
		bad.add(scopeError(scope, admission.ValidateTenant(parts[0])))
		bad.add(scopeError(scope, admission.ValidateName("queue", parts[1], true)))
		bad.add(p.QueueLimits[scope].Validate("queue_limits." + string(scope)))
	}
	for _, scope := range sortedKeys(p.PriorityLimits) {
		parts := strings.Split(string(scope), ":")
		if len(parts) != 3 {
			bad.field("priority_limits", strconv.Quote(string(scope)), `scopes "tenant:queue:priority"`)
			continue
		}
		bad.add(scopeError(scope, admission.ValidateTenant(parts[0])))
		bad.add(scopeError(scope, admission.ValidateName("queue", parts[1], true)))
		queue := p.queueOf(parts[1])
		if names := classNames(queue.Classes); !slices.Contains(names, parts[2]) {
			bad.field("priority_limits", strconv.Quote(string(scope)), "for a class of queue "+parts[1]+": "+quoteNames(names))
		}
		bad.add(p.PriorityLimits[scope].Validate("priority_limits." + string(scope)))
	}
}

func (p Policy) validateObserve(bad *problems) {
	if n := len(p.Observe); n > MaxObserved {
		bad.field("observe", strconv.Itoa(n)+" scopes", "up to "+strconv.Itoa(MaxObserved))
	}
	for _, scope := range p.Observe {
		if _, _, _, err := scope.Parts(); err != nil {
			bad.add(fmt.Errorf("observe: %w", err))
		}
	}
}

func scopeError(scope admission.Scope, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("scope %s: %w", strconv.Quote(string(scope)), err)
}

// weights checks weights. at is what the path to them begins with.
func (p *problems) weights(at string, weights Weights) {
	for _, class := range sortedKeys(weights) {
		p.add(admission.ValidateName(at+"priority_weights", string(class), true))
		p.integer(at+"priority_weights."+string(class), int64(weights[class]), 1, int64(admission.MaxWeight))
	}
}

func (p *problems) queue(owner string, queue Queue) {
	p.duration(owner+".horizon", queue.Horizon, MinHorizon, MaxHorizon)
	if queue.ExpiredPolicy != DeadLetter && queue.ExpiredPolicy != Drop {
		p.field(owner+".expired_policy", strconv.Quote(string(queue.ExpiredPolicy)), quoteNames([]string{string(DeadLetter), string(Drop)}))
	}
	if queue.MaxWait != 0 {
		p.duration(owner+".max_wait", queue.MaxWait, MinMaxWait, MaxMaxWait)
	}
	if queue.DoomedPercent != 0 {
		p.integer(owner+".doomed_percent", int64(queue.DoomedPercent), MinDoomedPercent, MaxDoomedPercent)
	}
	p.integer(owner+".poison_limit", int64(queue.PoisonLimit), 1, MaxPoisonLimit)
	if queue.MostAttempts != 0 {
		p.integer(owner+".most_attempts", int64(queue.MostAttempts), 1, admission.MaxAttemptsLimit)
	}
	if queue.LeastBackoff != 0 {
		p.duration(owner+".least_backoff", queue.LeastBackoff, time.Millisecond, admission.MaxBackoff)
	}
	if queue.KeepDead != 0 {
		p.duration(owner+".keep_dead", queue.KeepDead, MinKeepDead, MaxKeepDead)
	}
	queue.Overflow.validate(p, owner+".overflow")
	queue.Pressure.validate(p, owner+".pressure")
	queue.Reservations.validate(p, owner+".reservations")
	queue.Reserved.validate(p, owner+".reserved", queue.Classes)
	p.integer(owner+".max_dead", int64(queue.MaxDead), 1, MaxMaxDead)
	if n := len(queue.Classes); n < 1 || n > admission.MaxClasses {
		p.field(owner+".classes", fmt.Sprintf("%d classes", n), fmt.Sprintf("1 to %d classes", admission.MaxClasses))
	}
	seen := make(map[admission.Priority]bool, len(queue.Classes))
	for i, class := range queue.Classes {
		at := fmt.Sprintf("%s.classes[%d]", owner, i)
		p.add(admission.ValidateName(at+".name", string(class.Name), true))
		p.integer(at+".weight", int64(class.Weight), 1, admission.MaxClassWeight)
		if seen[class.Name] {
			p.field(at+".name", strconv.Quote(string(class.Name)), "a name no other class of the queue has")
		}
		seen[class.Name] = true
	}
}

// sortedKeys returns the names in a map in an order that never changes.
func sortedKeys[K ~string, V any](named map[K]V) []K {
	return slices.Sorted(maps.Keys(named))
}

func classNames(classes []admission.Class) []string {
	names := make([]string, len(classes))
	for i, class := range classes {
		names[i] = string(class.Name)
	}
	return names
}

func quoteNames(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = strconv.Quote(name)
	}
	if len(quoted) == 0 {
		return "none"
	}
	return strings.Join(quoted, ", ")
}

// validateSignal checks by which signal a limit goes, and reports whether that can be used.
func (p Policy) validateSignal(bad *problems, at string, a Adaptive) (ok bool) {
	before := len(*bad)
	refuse := func(field, value, allowed string) bool {
		bad.field(at+"."+field, value, allowed)
		return false
	}
	target, signal := strconv.FormatFloat(a.Target, 'g', -1, 64), strconv.Quote(a.Signal)
	_, limits := a.limits()
	dispatch := !limits && a.movesDispatch()
	bounds, known := map[string][2]float64{
		SignalRunP95: {0.001, 300}, SignalWaitP95: {0.001, 300}, SignalErrors: {0.001, 0.95}, SignalCPU: {0.05, 0.95},
		SignalPressure: {MinTargetPressure, MaxTargetPressure},
	}[a.Signal]
	switch {
	case a.Signal == "" && a.Target != 0:
		return refuse("target", target, "none without a signal")
	case a.Signal == "":
		return true
	case !known:
		return refuse("signal", signal, "one of "+quoteNames(AdaptiveSignals))
	case a.Controller == Gradient && !limits && !dispatch || a.Controller == Health && !dispatch:
		return refuse("signal", signal, "none of "+string(a.Controller)+", which holds no target")
	case !(a.Target >= bounds[0] && a.Target <= bounds[1]):
		unit := ""
		if bounds[1] > 1 {
			unit = " seconds"
		}
		return refuse("target", target, fmt.Sprintf("%g to %g%s, where %s is held", bounds[0], bounds[1], unit, a.Signal))
	case a.TargetRunTime != 0:
		return refuse("target_run_time", a.TargetRunTime.String(), "none beside a signal, which has its target")
	case a.TargetPressure != 0:
		return refuse("target_pressure", strconv.FormatFloat(a.TargetPressure, 'g', -1, 64), "none beside a signal, which has its target")
	case !limits && !dispatch && a.Signal == SignalErrors && a.MaxFailures <= a.Target:
		return refuse("max_failures", strconv.FormatFloat(a.MaxFailures, 'g', -1, 64), "above target: it cuts where error_rate is held")
	}
	if a.ofAMinute() {
		bad.duration(at+".interval", a.Interval, MinSignalInterval, MaxAdaptiveInterval)
	}
	if window := p.breakerWindow(a); window > 0 {
		bad.duration(at+".interval", a.Interval, within(window/2), MaxAdaptiveInterval)
	}
	if a.Signal != SignalPressure && p.Load == nil {
		bad.field("load", "(none)", `"load": {}, by which workers tell it, since `+at+".signal is there")
	}
	return len(*bad) == before
}

// noKnee is why gradient moves no dispatch.
const noKnee = "gradient looks for how many calls at a time throughput grows no more with, and a rate of dispatches has no such knee"

// validateDispatch refuses what is of a max_running alone, and by what no dispatch moves.
func (a Adaptive) validateDispatch(bad *problems, at string) {
	allowed := "none where a dispatch moves: it goes by what the receiver refuses"
	controllers := allowed + "; or pid or aimd beside a signal"
	if a.Signal != "" {
		allowed, controllers = "none where a dispatch moves: it goes by its signal, and by what the receiver refuses", `"pid" or "aimd"`
	} else if a.Gains != (Gains{}) {
		bad.field(at+".kp, ki, kd", fmt.Sprint(a.Gains), allowed)
	}
	switch paces := a.Controller == PID || a.Controller == AIMD; {
	case a.Signal != "" && (paces || a.Controller == ""):
		bad.fields(at, a.paced(control.RateConfig{Min: 1, Max: 1, Interval: time.Second}).Validate())
	case a.Controller == Gradient:
		bad.field(at+".controller", strconv.Quote(string(a.Controller)), controllers+": "+noKnee)
	case a.Controller != "":
		bad.field(at+".controller", strconv.Quote(string(a.Controller)), controllers)
	}
	for _, field := range []struct {
		name, value string
		there       bool
	}{
		{"max_run_time", a.MaxRunTime.String(), a.MaxRunTime != 0},
		{"target_run_time", a.TargetRunTime.String(), a.TargetRunTime != 0},
		{"max_failures", strconv.FormatFloat(a.MaxFailures, 'g', -1, 64), a.MaxFailures != 0},
	} {
		if field.there {
			bad.field(at+"."+field.name, field.value, allowed)
		}
	}
}
