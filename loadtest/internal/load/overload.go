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
	// MaxWait is for how long a job is worth starting after its caller asked.
	MaxWait time.Duration
	// Possible is what can be served of what arrives in it before MaxWait is over, in parts of what the slots can serve; 1 where as much
	// arrives all the time.
	Possible float64
	// Slower is how much longer handlers work in it, 1 where they do not, and Retries how often a caller asks again who was refused.
	Slower  float64
	Retries int
}

const (
	// overloadWait is how long a job may wait, at most a part of the run.
	overloadWait     = time.Second
	overloadWaitPart = 0.1
	// overloadRoom is the global limit in parts of the mean rate: more than any shape's.
	overloadRoom = 20
	// othersPercent of the slots are for the other classes while a job of the first waits: by the pattern alone they start half of the
	// jobs, and at ten times of what can be served the first has more than that. Queues that share workers divide them.
	othersPercent = 20
)

// overloaded makes the run one of an overload: jobs that are late are worth nothing, and the least class has most of them.
func overloaded(b *builder) {
	o := &Overload{
		From: b.part(overloadFrom), To: b.part(overloadTo), Times: b.spec.Overload, MaxWait: min(overloadWait, b.part(overloadWaitPart)), Slower: 1,
	}
	c := newCurve(shapes[b.spec.Shape].rate, o.Times, b.plan.Duration)
	b.load, b.shape = c.mean(), c.bend
	switch b.spec.Shape {
	case ShapeSlow:
		o.Slower = o.Times
		b.plan.Incidents = []Incident{{At: o.From, Event: HandlersSlow, Factor: o.Slower}, {At: o.To, Event: HandlersSlow, Factor: 1}}
	case ShapeRetries:
		o.Retries = retries
	}
	o.Possible = c.possible(o)
	b.plan.Overload = o
	b.plan.MaxAttempts = 1
	total := 0.0
	parts := make([]float64, len(b.plan.Classes))
	for i := range parts {
		total += math.Pow(b.spec.ClassRatio, float64(i))
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
	b.plan.Capped = capped(b, unshed)
	classes := b.plan.Classes
	several := len(classes) > 1 // Of one class alone none has others above it.
	for name, queue := range p.Queues {
		queue.DoomedPercent = 100
		if several {
			queue.Reserved = &policy.Reserved{Classes: []admission.Priority{classes[0].Name}, Percent: 100 - othersPercent/len(b.plan.Queues), Lend: true}
			if kept := b.spec.Kept; kept > 0 {
				queue.Reserved.Percent, queue.Reserved.Lend = kept, false
			}
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

// capped is a policy that lets no more in than all slots can serve while handlers are as fast as otherwise.
func capped(b *builder, p policy.Policy) *policy.Policy {
	p.Global = limit(float64(b.spec.Slots)/b.work().Seconds(), globalBurst, minGlobalBurst)
	return &p
}
