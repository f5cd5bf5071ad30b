package load

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/policy"
)

// ErrNoTrace means that the scenario trace has no trace.
var ErrNoTrace = errors.New("scenario trace needs a trace")

// builder makes one plan.
type builder struct {
	spec   Spec
	plan   Plan
	random *rand.Rand
	// tenant draws the tenant of a job, queue the queue of a tenant's.
	tenant func() int
	queue  func(tenant int) int
	class  func() int
	// load and shape are those of the recipe.
	load  float64
	shape func(u float64) float64
}

// New makes the plan of a scenario. The same spec gives the same plan.
func New(scenario string, spec Spec) (*Plan, error) {
	if err := errors.Join(spec.Validate(), CheckScenario(scenario)); err != nil {
		return nil, err
	}
	b := &builder{spec: spec, random: rand.New(rand.NewPCG(spec.Seed, 0))}
	b.plan = Plan{
		Scenario: scenario, Duration: spec.Duration, Slots: spec.Slots, Classes: classes(spec.Priorities), MaxAttempts: admission.DefaultMaxAttempts,
		BackoffBase: min(100*time.Millisecond, spec.Duration/50), BackoffMost: min(time.Second, spec.Duration/10), Quiet: 3 * time.Second,
	}
	if scenario == scenarioTrace {
		return b.replay()
	}
	for i := range recipes {
		if recipes[i].name == scenario {
			b.cook(&recipes[i])
		}
	}
	return &b.plan, nil
}

// numbered returns a name with a number of four digits or more.
func numbered(prefix string, i int) string { return fmt.Sprintf("%s%04d", prefix, i) }

// classes returns n classes, the presets where there is one.
func classes(n int) []admission.Class {
	switch preset := admission.DefaultClasses(); n {
	case len(preset):
		return preset
	case len(policy.PresetCritical()):
		return policy.PresetCritical()
	}
	var all []admission.Class
	for i := range n {
		all = append(all, admission.Class{Name: admission.Priority("p" + strconv.Itoa(i)), Weight: n - i})
	}
	return all
}

// part returns a part of the run's duration.
func (b *builder) part(p float64) time.Duration {
	return time.Duration(p * float64(b.plan.Duration))
}

// breakers scales the breakers to a run: the product's first cooldown of a minute is longer than most.
func (b *builder) breakers(cooldown time.Duration) {
	cooldown = min(max(cooldown, 50*time.Millisecond), time.Minute)
	b.plan.Breaker = breaker.Config{OpenBase: cooldown, OpenMax: 4 * cooldown, ProbeTimeout: max(2*cooldown, time.Second)}
	b.plan.Quiet = 10*cooldown + 2*time.Second
}

// cook follows a recipe.
func (b *builder) cook(r *recipe) {
	for i := range b.spec.Tenants {
		b.plan.Tenants = append(b.plan.Tenants, numbered("tenant-", i))
	}
	for i := range b.spec.Queues {
		b.plan.Queues = append(b.plan.Queues, "queue-"+strconv.Itoa(i))
	}
	limited := b.spec.Tenants
	b.tenant = func() int { return b.random.IntN(len(b.plan.Tenants)) }
	b.queue = func(int) int { return b.random.IntN(len(b.plan.Queues)) }
	b.class = func() int { return b.random.IntN(len(b.plan.Classes)) }
	b.load, b.shape = r.load, r.shape
	if r.tenant != nil {
		b.tenant = r.tenant(b)
	}
	if r.finish != nil {
		r.finish(b)
	}
	share := r.tenantShare
	if share == 0 {
		share = min(1, 4/float64(limited))
	}
	b.limits(share, limited)
	if r.policy != nil {
		r.policy(b)
	}
	b.draw()
}

// work returns how long handlers work.
func (b *builder) work() time.Duration {
	switch {
	case b.spec.Work >= 0:
		return b.spec.Work
	case b.load == 0:
		return shortWork
	}
	return time.Duration(float64(b.spec.Slots) * b.load / b.spec.Rate * float64(time.Second))
}

// draw draws rate × duration arrivals.
func (b *builder) draw() {
	n, work := int(math.Round(b.spec.Rate*b.spec.Duration.Seconds())), b.work()
	b.plan.Arrivals = make([]Arrival, n)
	for i, u := range evenDraws(b.random, n) {
		if b.shape != nil {
			u = b.shape(u)
		}
		a := Arrival{
			At: b.part(u), Tenant: b.tenant(), Class: b.class(), Downstream: None,
			Work: work, Bytes: b.spec.Payload, Cost: 1,
		}
		a.Queue = b.queue(a.Tenant)
		if len(b.plan.Downstreams) > 0 {
			a.Downstream = b.random.IntN(len(b.plan.Downstreams))
		}
		b.plan.Arrivals[i] = a
	}
}

// evenDraws returns n even draws from [0, 1) in order. Partial sums of n + 1 exponential draws, divided by the last of
// them, are that.
func evenDraws(random *rand.Rand, n int) []float64 {
	draws, sum := make([]float64, n), 0.0
	for i := range draws {
		sum += random.ExpFloat64()
		draws[i] = sum
	}
	sum += random.ExpFloat64()
	for i := range draws {
		draws[i] = min(draws[i]/sum, math.Nextafter(1, 0))
	}
	return draws
}
