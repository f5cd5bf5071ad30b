package policy

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/headgate/headgate/admission"
)

// StandardTier is the tier of a tenant that nobody configured. Every policy has it.
const StandardTier = "standard"

// Policy is the whole configuration of a deployment at one version. It is a plain value whose maps and slices are
// shared by its copies: write it in one goroutine, then hand out what Prepare returns.
type Policy struct {
	// Version grows by one with each change, so that stale copies are noticed; 0 is the built-in policy.
	Version int64
	// Global is the limit of the whole deployment; the zero Limit means none, like a Disabled one.
	Global admission.Limit
	// GlobalReserved keeps a part of Global for some classes; nil keeps none.
	GlobalReserved *GlobalReserved
	// Bypass has jobs of some classes go beside the limits of their queue and class; nil has none.
	Bypass *Bypass
	// Tiers are named defaults for tenants; nil means those of Default. StandardTier must be among them.
	Tiers map[string]Tier
	// Tenants are the tenants that have something of their own, by name.
	Tenants map[string]Tenant
	// QueueLimits are limits of one tenant's jobs in one queue, by "tenant:queue".
	QueueLimits map[admission.Scope]admission.Limit
	// PriorityLimits are limits of one class of one tenant's jobs in one queue, by "tenant:queue:priority".
	PriorityLimits map[admission.Scope]admission.Limit
	// Overflows are the bounds of one tenant's depth in one queue, by "tenant:queue"; they replace the queue's. "*:*" is that of
	// each tenant in each queue that has none. By "tenant" they bound it over all its queues, and by "*" each that has none of its
	// own, and whose tier has none: by Reject alone. Unique keys that stay after their jobs count there, too, some 300 bytes each.
	Overflows map[admission.Scope]Overflow
	// Queues are the queues that have something of their own, by name; Every is each queue that is not named. That one has neither a
	// MaxRunning nor a Pressure, and a Reserved there keeps no slots.
	Queues map[string]Queue
	// MaxRunning is how many jobs of one tenant in one queue workers hold at a time, by "tenant:queue"; it replaces the
	// queue's MaxRunningPerTenant.
	MaxRunning map[admission.Scope]int
	// Downstreams are the downstreams that have something of their own, by name; AnyDownstream is for each of the others.
	Downstreams   map[string]Downstream
	AnyDownstream Downstream
	// Adaptive are limits that move by themselves, by name, up to MaxAdaptive.
	Adaptive map[string]Adaptive
	// Shedding says which jobs are refused while a queue is pressed; nil means none.
	Shedding *Shedding
	// Load has workers tell how busy they are, and keeps it for an hour; nil means that they do not.
	Load *LoadRules
	// Anomalies has rates watched, and tells of those that are not usual; nil means that they are not.
	Anomalies *AnomalyRules
	// Triggers do something about limits, queues or downstreams while something that is measured is beyond a bound, by name, up to MaxTriggers.
	Triggers map[string]Trigger
	// Semaphores are limits of what is done at a time outside of jobs, by "NAME" or "TENANT:NAME"; "*" is of each that is not named, and
	// "TENANT:*" of each of a tenant.
	Semaphores map[string]SemaphoreRules
	// Dimensions are limits beside the hierarchy, by the dimension's name, up to MaxDimensions: of users, addresses, routes.
	Dimensions map[string]DimensionRules
	// Observe are scopes whose decisions are always counted, up to MaxObserved; others are while they are among those with
	// the most.
	Observe []admission.Scope
	// Usage has usage kept by tenant, queue and day; nil means that none is.
	Usage *UsageRules
	// Reservations are what holds for reservations in queues that say nothing themselves, and for those without a queue.
	Reservations ReservationRules
	// TenantRecords has tenants have OwnLimits each beside the policy, before what the policy says; each call then looks at those of its tenants.
	TenantRecords bool
	// Rollout is a candidate that is in force for a part of the tenants; nil means none.
	Rollout *Rollout
	// DedupWindow is how long the id of an ended job is remembered, 1 s to 24 h; zero means DefaultDedupWindow.
	DedupWindow time.Duration
}

// Weights are a tenant's shares by class, each 1-1000. A class that is not named has the weight 1.
type Weights map[admission.Priority]admission.Weight

// Tier is a named default for tenants.
type Tier struct {
	// Limit is each tenant's own limit: tenants of a tier share the figures, not the tokens. A tier without a limit
	// says so with Disabled.
	Limit admission.Limit
	// Weights are its tenants' shares.
	Weights Weights
	// MaxRunning is how many jobs of each tenant workers hold at a time, 1 to MaxMaxRunning; zero means no bound.
	MaxRunning int
	// Overflow bounds the depth of each tenant over all its queues, by Reject alone; the zero Overflow says nothing, and one of NoBound that
	// there is no bound.
	Overflow Overflow
	// Queues are what each tenant has in single queues, by name; Every is each queue for which nothing says more.
	Queues map[string]TierQueue
}

// Tenant is what one tenant has of its own.
type Tenant struct {
	// Tier names the tenant's tier; empty means StandardTier.
	Tier string
	// Limit replaces its tier's when not nil; a Disabled one lifts it.
	Limit *admission.Limit
	// Weights replace its tier's class by class.
	Weights Weights
	// MaxRunning replaces its tier's when not zero.
	MaxRunning int
	// Dispatch is how many of its jobs are dispatched a time, a token each; nil means no bound. Jobs wait for it.
	Dispatch *admission.Limit
	// Queues are what it has in single queues beside QueueLimits and PriorityLimits, by name.
	Queues map[string]TenantQueue
}

// Queue is what one queue has of its own.
type Queue struct {
	// Classes are the classes of urgency, the most urgent first; nil means headgate.DefaultClasses.
	Classes []admission.Class
	// Horizon places jobs without a deadline among those with one, as if theirs were arrival + Horizon, 1 s to 30
	// days; zero means DefaultHorizon.
	Horizon time.Duration
	// ExpiredPolicy says what becomes of a job whose deadline passed; empty means DeadLetter.
	ExpiredPolicy ExpiredPolicy
	// MaxWait is the longest that a job may wait after it could start, 1 ms to 30 days; then it expires. Zero means no
	// bound.
	MaxWait time.Duration
	// DoomedPercent refuses a job on arrival whose predicted wait is more than so many percent of what it may wait, by its own deadline or by
	// MaxWait, MinDoomedPercent to MaxDoomedPercent; zero refuses none. While a worker has a slot free, and while nobody knows how long jobs
	// wait, none is refused for it.
	DoomedPercent int
	// PoisonLimit is the number of deliveries that were lost with a worker, and of which it is known that their handler
	// had begun, that make a job a dead letter, 1 to 254; zero means DefaultPoisonLimit.
	PoisonLimit int
	// KeepDead is how long dead letters are kept, 1 s to 366 days; zero means as long as there is room. MaxDead is how
	// many are kept, 1 to 100,000; zero means DefaultMaxDead. The oldest of the tenant that has the most go first.
	KeepDead time.Duration
	MaxDead  int
	// EachTenant is what each tenant has in the queue.
	EachTenant EachTenant
	// Overflow bounds the depth of each tenant in the queue.
	Overflow Overflow
	// MaxRunning is how many of its jobs workers hold at a time, MaxRunningPerTenant how many of each tenant, 1 to
	// MaxMaxRunning; zero means no bound.
	MaxRunning, MaxRunningPerTenant int
	// Reserved keeps slots of its workers for some of its classes; nil keeps none.
	Reserved *Reserved
	// MostAttempts is how many runs a job may ask for, since a run that fails costs no token, 1 to headgate.MaxAttemptsLimit; zero means
	// DefaultMostAttempts. LeastBackoff is the least that a job's own header headgate.HeaderBackoff may give it to wait after a failed
	// run, 1 ms to headgate.MaxBackoff; zero means DefaultLeastBackoff. A worker's own backoffs may be shorter.
	MostAttempts int
	LeastBackoff time.Duration
	// Pressure says how it is measured how much the queue is pressed; nil means that it is not.
	Pressure *PressureRules
	// Reservations are what holds for reservations in the queue; what it leaves out is what the policy's say.
	Reservations ReservationRules
}

// ExpiredPolicy is what becomes of a job whose deadline passed before it started.
type ExpiredPolicy string

// The expired policies. Either way the job is counted as expired.
const (
	// DeadLetter keeps the job among the dead letters.
	DeadLetter ExpiredPolicy = "dead_letter"
	// Drop forgets it.
	Drop ExpiredPolicy = "drop"
)

// Defaults and bounds of a policy's durations and of its counts.
const (
	MinMaxWait         = time.Millisecond
	MaxMaxWait         = 30 * 24 * time.Hour
	MinDoomedPercent   = 10
	MaxDoomedPercent   = 1000
	DefaultPoisonLimit = 3
	// DefaultMostAttempts is how many runs a token buys without a policy, a job with a header for short backoffs 10 a second.
	DefaultMostAttempts = 25
	DefaultLeastBackoff = 100 * time.Millisecond
	MaxPoisonLimit      = 254
	MinKeepDead         = time.Second
	MaxKeepDead         = 366 * 24 * time.Hour
	DefaultMaxDead      = 100_000
	MaxMaxDead          = 100_000
	DefaultHorizon      = time.Hour
	MinHorizon          = time.Second
	MaxHorizon          = 30 * 24 * time.Hour
	DefaultDedupWindow  = 30 * time.Second
	MinDedupWindow      = time.Second
	MaxDedupWindow      = 24 * time.Hour
)

// UsageRules say how much is kept of usage. The zero value is the default.
type UsageRules struct {
	// Tenants is of how many tenants a day usage is kept in each partition, 1 to MaxUsageTenants; zero means DefaultUsageTenants. That of others
	// is added up in one.
	Tenants int
}

// Bounds of UsageRules.
const (
	DefaultUsageTenants = 10_000
	MaxUsageTenants     = 1_000_000
)

type usageJSON struct {
	Tenants int `json:"tenants,omitempty"`
}

// UsageTenants returns of how many tenants a day usage is kept in a partition; zero for none.
func (c *Compiled) UsageTenants() int { return c.usage }

func (p Policy) validateUsage(bad *problems) {
	if p.Usage != nil {
		bad.integer("usage.tenants", int64(p.Usage.Tenants), 1, MaxUsageTenants)
	}
}

// ReservationRules say what holds for reservations without a job. The zero value says nothing.
type ReservationRules struct {
	// ExpireAfter is for how long after the reservation, or its latest part, its cost may be told, MinExpireAfter to MaxExpireAfter; then it stands
	// as it was reserved. Zero means DefaultExpireAfter. A reservation keeps what was in force as it was made.
	ExpireAfter time.Duration
}

// Default and bounds of ReservationRules.
const (
	DefaultExpireAfter = time.Minute
	MinExpireAfter     = time.Second
	MaxExpireAfter     = 24 * time.Hour
)

type reservationsJSON struct {
	ExpireAfter string `json:"expire_after,omitempty"`
}

func (r ReservationRules) wire() reservationsJSON {
	return reservationsJSON{formatBound(r.ExpireAfter)}
}

func (w reservationsJSON) rules(at string, bad *problems) ReservationRules {
	return ReservationRules{bad.parseDuration(at+".expire_after", w.ExpireAfter)}
}

func (r ReservationRules) validate(bad *problems, at string) {
	if r.ExpireAfter != 0 {
		bad.duration(at+".expire_after", r.ExpireAfter, MinExpireAfter, MaxExpireAfter)
	}
}

// ExpireAfter returns for how long the cost of a reservation that is made in a queue now may be told; "" is no queue.
func (c *Compiled) ExpireAfter(queue string) time.Duration {
	var own time.Duration
	if queue != "" {
		own = c.queueOf(queue).Reservations.ExpireAfter
	}
	return cmp.Or(own, c.expireAfter, DefaultExpireAfter)
}

// MaxObserved is how many scopes a policy may name to be observed.
const MaxObserved = 1000

// noLimit is the limit of a scope that has no bucket.
var noLimit = admission.Limit{Disabled: true}

// Default returns the built-in policy: three tiers of tenants and no global limit.
//
//	tier      tokens a second  burst  weights high:medium:low
//	premium   400              100    3:2:1
//	standard  200              50     2:1:1
//	basic     100              25     1:1:1
func Default() Policy {
	return Policy{}.withDefaults()
}

// Unlimited returns the built-in policy with every limit disabled: the same weights and classes, no buckets.
func Unlimited() Policy {
	p := Default()
	for name, tier := range p.Tiers {
		tier.Limit = noLimit
		p.Tiers[name] = tier
	}
	return p
}

// PresetCritical returns four classes: critical 4, high 3, medium 2, low 1.
func PresetCritical() []admission.Class {
	return []admission.Class{
		{Name: admission.Critical, Weight: 4},
		{Name: admission.High, Weight: 3},
		{Name: admission.Medium, Weight: 2},
		{Name: admission.Low, Weight: 1},
	}
}

func defaultTiers() map[string]Tier {
	tier := func(tokens, burst admission.Tokens, high, medium, low admission.Weight) Tier {
		weights := Weights{admission.High: high, admission.Medium: medium, admission.Low: low}
		return Tier{Limit: admission.PerSecond(tokens).WithBurst(burst), Weights: weights}
	}
	return map[string]Tier{
		"premium":    tier(400, 100, 3, 2, 1),
		StandardTier: tier(200, 50, 2, 1, 1),
		"basic":      tier(100, 25, 1, 1, 1),
	}
}

// withDefaults returns the policy with every zero field filled in. The maps that it fills in are copies.
func (p Policy) withDefaults() Policy {
	if p.Global == (admission.Limit{}) {
		p.Global = noLimit
	}
	if p.Tiers == nil {
		p.Tiers = defaultTiers()
	}
	p.Global, p.QueueLimits, p.PriorityLimits = withBurst(p.Global), withBursts(p.QueueLimits), withBursts(p.PriorityLimits)
	p.Tiers = tiersWithDefaults(p.Tiers)
	p.DedupWindow = cmp.Or(p.DedupWindow, DefaultDedupWindow)
	p.Tenants = maps.Clone(p.Tenants)
	for name, tenant := range p.Tenants {
		tenant.Tier, tenant.Limit, tenant.Dispatch = cmp.Or(tenant.Tier, StandardTier), ownBurst(tenant.Limit), ownBurst(tenant.Dispatch)
		tenant.Queues = maps.Clone(tenant.Queues)
		for queue, in := range tenant.Queues {
			tenant.Queues[queue] = TenantQueue{withBursts(in.TypeLimits)}
		}
		p.Tenants[name] = tenant
	}
	p.MaxRunning, p.Downstreams = maps.Clone(p.MaxRunning), maps.Clone(p.Downstreams)
	for name, downstream := range p.Downstreams {
		downstream.Dispatch = ownBurst(downstream.Dispatch)
		p.Downstreams[name] = downstream
	}
	p.Overflows = maps.Clone(p.Overflows)
	for scope, overflow := range p.Overflows {
		p.Overflows[scope] = overflow.withDefaults()
	}
	p.Queues = maps.Clone(p.Queues)
	for name, queue := range p.Queues {
		p.Queues[name] = queue.withDefaults()
	}
	if p.Usage != nil {
		p.Usage = &UsageRules{cmp.Or(p.Usage.Tenants, DefaultUsageTenants)}
	}
	p.Dimensions = dimensionsWithDefaults(p.Dimensions)
	p.Adaptive = maps.Clone(p.Adaptive)
	for name, a := range p.Adaptive {
		if window := p.breakerWindow(a); window > 0 {
			a.Interval = cmp.Or(a.Interval, within(window))
		}
		p.Adaptive[name] = a.withDefaults()
	}
	p.Triggers = maps.Clone(p.Triggers)
	for name, t := range p.Triggers {
		p.Triggers[name] = t.withDefaults()
	}
	p.Shedding, p.Load, p.Rollout = p.Shedding.clone(), p.Load.withDefaults(), p.Rollout.withDefaults()
	p.GlobalReserved, p.Bypass = p.GlobalReserved.clone(), p.Bypass.withDefaults()
	p.Anomalies = p.Anomalies.withDefaults()
	return p
}

func (q Queue) withDefaults() Queue {
	if q.Classes == nil {
		q.Classes = admission.DefaultClasses()
	}
	q.Classes = slices.Clone(q.Classes)
	q.Horizon = cmp.Or(q.Horizon, DefaultHorizon)
	q.ExpiredPolicy = cmp.Or(q.ExpiredPolicy, DeadLetter)
	q.PoisonLimit = cmp.Or(q.PoisonLimit, DefaultPoisonLimit)
	q.MaxDead = cmp.Or(q.MaxDead, DefaultMaxDead)
	q.EachTenant, q.Overflow, q.Pressure, q.Reserved = q.EachTenant.withDefaults(), q.Overflow.withDefaults(), q.Pressure.withDefaults(), q.Reserved.clone()
	return q
}

// MaxNumber is the most urgent number that ClassOfNumber takes.
const MaxNumber = 10

// ClassOfNumber maps a number from 0, the least urgent, to 10, the most urgent, onto ordered classes, the most
// urgent first. The numbers are spread evenly: of k classes counted from the least urgent as 0, number n belongs
// to class min(k-1, ⌊n·k/10⌋). For three classes that is 0-3 low, 4-6 medium, 7-10 high; with more than eleven
// some classes have no number.
func ClassOfNumber(number int, classes []admission.Class) (admission.Priority, error) {
	if number < 0 || number > MaxNumber {
		return "", &admission.FieldError{
			Field: "priority", Value: strconv.Itoa(number), Allowed: "0 to 10, 10 the most urgent",
		}
	}
	if len(classes) == 0 {
		return "", &admission.FieldError{Field: "classes", Value: "none", Allowed: "1 to 128 classes"}
	}
	rank := min(len(classes)-1, number*len(classes)/MaxNumber)
	return classes[len(classes)-1-rank].Name, nil
}
