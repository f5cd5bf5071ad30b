package load

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/policy"
)

// Overload is a time of a plan in which more arrives than can be served.
type Overload struct {
	// From and To are when, after the start of the run.
	From, To time.Duration
	// Times is what arrives then, in parts of what the slots can serve.
	Times float64
	// MaxWait is for how long a job is worth starting after its arrival.
	MaxWait time.Duration
}

// The load of overload: stepBase of what the slots can serve, and Spec.Overload times as much from stepFrom to stepTo of the run.
const (
	stepBase = 0.5
	stepFrom = 0.2
	stepTo   = 0.6
	// overloadWait is how long a job may wait, at most a part of the run.
	overloadWait     = time.Second
	overloadWaitPart = 0.1
	// overloadRoom is the global limit in parts of the mean rate: more than any step's.
	overloadRoom = 4
	// othersPercent of the slots are for the other classes while a job of the first waits: by the pattern alone they start half of the
	// jobs, and at ten times of what can be served the first has more than that. Queues that share workers divide them.
	othersPercent = 20
	// classRatio is how many more jobs each class has than the one above it.
	classRatio = 3
)

// step is the shape of a load that is times as high as can be served for a part of the run, and offered what that comes to in the mean.
func step(times float64) (offered float64, shape func(u float64) float64) {
	before, during := stepFrom*stepBase, (stepTo-stepFrom)*times
	offered = before + during + (1-stepTo)*stepBase
	before, during = before/offered, during/offered
	return offered, func(u float64) float64 {
		switch {
		case u < before:
			return u / before * stepFrom
		case u < before+during:
			return stepFrom + (u-before)/during*(stepTo-stepFrom)
		}
		return stepTo + (u-before-during)/(1-before-during)*(1-stepTo)
	}
}

// overloaded makes the run one of a step: jobs that are late are worth nothing, and the least class has most of them.
func overloaded(b *builder) {
	b.load, b.shape = step(b.spec.Overload)
	b.plan.Overload = &Overload{
		From: b.part(stepFrom), To: b.part(stepTo), Times: b.spec.Overload, MaxWait: min(overloadWait, b.part(overloadWaitPart)),
	}
	b.plan.MaxAttempts = 1
	total := 0.0
	parts := make([]float64, len(b.plan.Classes))
	for i := range parts {
		total += math.Pow(classRatio, float64(i))
		parts[i] = total
	}
	b.class = func() int {
		draw := b.random.Float64() * total
		return min(len(parts)-1, slices.IndexFunc(parts, func(sum float64) bool { return draw <= sum }))
	}
}

// shed gives the plan the policy that holds an overload: it refuses what would start too late, and the least class first, and in it the least tier.
func shed(b *builder) {
	p := &b.plan.Policy
	p.Global = limit(orElse(b.spec.GlobalLimit, overloadRoom*b.spec.Rate), globalBurst, minGlobalBurst) // No limit is what holds it.
	tiers := []string{"basic", policy.StandardTier, "premium"}
	for _, tier := range tiers {
		p.Tiers[tier] = p.Tiers[policy.StandardTier]
	}
	p.Tenants = map[string]policy.Tenant{}
	for i, name := range b.plan.Tenants {
		p.Tenants[name] = policy.Tenant{Tier: tiers[i%len(tiers)]}
	}
	for name, queue := range p.Queues {
		queue.MaxWait = b.plan.Overload.MaxWait
		p.Queues[name] = queue
	}
	unshed := *p
	unshed.Queues = maps.Clone(p.Queues)
	b.plan.Unshed = &unshed
	classes := b.plan.Classes
	several := len(classes) > 1 // Of one class alone none has others above it.
	for name, queue := range p.Queues {
		queue.DoomedPercent = 100
		if several {
			queue.Reserved = &policy.Reserved{Classes: []admission.Priority{classes[0].Name}, Percent: 100 - othersPercent/len(b.plan.Queues), Lend: true}
			queue.Pressure = &policy.PressureRules{TargetWait: b.plan.Overload.MaxWait, Interval: policy.MinAdaptiveInterval}
		}
		p.Queues[name] = queue
	}
	if !several {
		return
	}
	s := &policy.Shedding{Tiers: tiers, Reserve: []admission.Priority{classes[0].Name}, At: map[string][]string{}}
	for _, class := range slices.Backward(classes[1:]) {
		s.Order = append(s.Order, class.Name)
	}
	least, all := string(s.Order[0]), []string{}
	for _, class := range s.Order {
		all = append(all, string(class))
	}
	s.At["LOW"] = []string{least + ":" + tiers[0]}
	s.At["MEDIUM"] = []string{least}
	s.At["CRITICAL"] = all
	p.Shedding = s
}
