package policy

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/headgate/headgate/admission"
)

// Overflow bounds the depth of a tenant in a queue: its live jobs there, dead letters and spilled ones apart, whatever
// they wait for. The zero Overflow is no bound.
type Overflow struct {
	// Policy says what becomes of a job for which there is no room; empty means NoBound.
	Policy OverflowPolicy `json:"policy,omitempty"`
	// MaxJobs and MaxBytes are the bounds, up to 10,000,000 jobs and 64 GiB; zero is none, and one of them must be
	// there. Bytes are those of a job as it is stored: payload, headers, names and some 40 bytes.
	MaxJobs  int   `json:"max_jobs,omitempty"`
	MaxBytes int64 `json:"max_bytes,omitempty"`
	// MaxSpilled is how many jobs Spillover keeps aside, 1 to 1,000,000; zero means DefaultMaxSpilled.
	MaxSpilled int `json:"max_spilled,omitempty"`
	// SpillTo names where jobs go on to that are kept aside and wait far behind: SecondRedis, that of the processes' configuration, or nowhere.
	SpillTo string `json:"spill_to,omitempty"`
	// MaxMoved is how many jobs have their bodies there, beside MaxSpilled here, 1 to 10,000,000; zero means DefaultMaxMoved.
	MaxMoved int `json:"max_moved,omitempty"`
	// LowWaterPercent of the bounds is where spilled jobs begin to come back, 1 to 100; zero means DefaultLowWater.
	LowWaterPercent int `json:"low_water_percent,omitempty"`
}

// OverflowPolicy is what becomes of a job for which its tenant's depth in its queue leaves no room.
type OverflowPolicy string

// The overflow policies.
const (
	// NoBound lets every job in. Of a tenant in a queue it lifts the queue's bound.
	NoBound OverflowPolicy = "none"
	// Reject refuses the job.
	Reject OverflowPolicy = "reject"
	// DropOldest makes dead letters of the tenant's oldest waiting jobs in the queue, the lowest class first, never of
	// a class above the newcomer's.
	DropOldest OverflowPolicy = "drop_oldest"
	// Spillover keeps the job aside, and brings it back in order when there is room.
	Spillover OverflowPolicy = "spillover"
)

// Defaults and bounds of an Overflow.
const (
	MaxOverflowJobs   = 10_000_000
	MaxOverflowBytes  = 64 << 30
	DefaultMaxSpilled = 10_000
	MaxMaxSpilled     = 1_000_000
	DefaultMaxMoved   = 100_000
	MaxMaxMoved       = 10_000_000
	DefaultLowWater   = 50
)

// SecondRedis is the Redis that a process is told of beside its first: an address, with what may be secret in it, is in no policy.
const SecondRedis = "second"

// minMovable is the least MaxSpilled beside SpillTo: half of it stays in the first Redis, and one at least.
const minMovable = 2

func (o Overflow) withDefaults() Overflow {
	if o == (Overflow{}) {
		return o
	}
	o.Policy = cmp.Or(o.Policy, NoBound)
	if o.Policy == Spillover {
		o.MaxSpilled = cmp.Or(o.MaxSpilled, DefaultMaxSpilled)
		o.LowWaterPercent = cmp.Or(o.LowWaterPercent, DefaultLowWater)
		if o.SpillTo != "" {
			o.MaxMoved = cmp.Or(o.MaxMoved, DefaultMaxMoved)
		}
	}
	return o
}

// validate checks an Overflow that has its defaults.
func (o Overflow) validate(bad *problems, owner string) {
	switch o.Policy {
	case "", NoBound:
		if o.MaxJobs != 0 || o.MaxBytes != 0 || o.ofSpillover() {
			bad.field(owner+".policy", strconv.Quote(string(o.Policy)), `"reject", "drop_oldest" or "spillover" beside a bound`)
		}
		return
	case Reject, DropOldest, Spillover:
	default:
		bad.field(owner+".policy", strconv.Quote(string(o.Policy)), quoteNames([]string{string(NoBound), string(Reject), string(DropOldest), string(Spillover)}))
		return
	}
	bad.integer(owner+".max_jobs", int64(o.MaxJobs), 0, MaxOverflowJobs)
	bad.integer(owner+".max_bytes", o.MaxBytes, 0, MaxOverflowBytes)
	if o.MaxJobs == 0 && o.MaxBytes == 0 {
		bad.field(owner+".max_jobs", "0", "1 to "+strconv.Itoa(MaxOverflowJobs)+", or a max_bytes")
	}
	if o.Policy == Spillover {
		bad.integer(owner+".max_spilled", int64(o.MaxSpilled), 1, MaxMaxSpilled)
		bad.integer(owner+".low_water_percent", int64(o.LowWaterPercent), 1, 100)
		o.validateMoves(bad, owner)
	} else if o.ofSpillover() {
		bad.field(owner+".policy", strconv.Quote(string(o.Policy)), `"spillover" beside max_spilled, low_water_percent, spill_to or max_moved`)
	}
}

// ofSpillover reports whether anything is said that Spillover alone knows.
func (o Overflow) ofSpillover() bool {
	return o.MaxSpilled != 0 || o.LowWaterPercent != 0 || o.SpillTo != "" || o.MaxMoved != 0
}

// validateMoves checks what is said of the second Redis.
func (o Overflow) validateMoves(bad *problems, owner string) {
	switch {
	case o.SpillTo == "" && o.MaxMoved != 0:
		bad.field(owner+".spill_to", `""`, strconv.Quote(SecondRedis)+" beside max_moved")
	case o.SpillTo == "":
	case o.SpillTo != SecondRedis:
		bad.field(owner+".spill_to", strconv.Quote(o.SpillTo), strconv.Quote(SecondRedis)+", whose address is redis.spill_url of the processes' configuration")
	default:
		bad.integer(owner+".max_moved", int64(o.MaxMoved), 1, MaxMaxMoved)
		if o.MaxSpilled > 0 && o.MaxSpilled < minMovable {
			bad.integer(owner+".max_spilled", int64(o.MaxSpilled), minMovable, MaxMaxSpilled)
		}
	}
}

// QueueNames returns, in order, the queues that have settings: those of Queues, and those in which a tier has a bound. Every is among them
// where it is in Queues.
func (c *Compiled) QueueNames() []string {
	names := maps.Clone(c.queues)
	if names == nil {
		names = map[string]Queue{}
	}
	for _, bounds := range c.tierBounds {
		for queue := range bounds {
			if queue != Every {
				names[queue] = Queue{}
			}
		}
	}
	return sortedKeys(names)
}

// BoundsIn returns what bounds each tenant in a queue that has no bound of its own there: where the tier says nothing else, and by tier
// where it does. Of Every it is that of each queue that QueueNames does not name, and of those for
// which it is zero.
func (c *Compiled) BoundsIn(queue string) (Overflow, map[string]Overflow) {
	if len(c.tierBounds) == 0 {
		if own := c.queues[queue].Overflow; queue != Every || own != (Overflow{}) {
			return own, nil
		}
		return c.overflows[Every+":"+Every], nil
	}
	return c.byTier(func(tier string) Overflow { return c.tierBound(tier, queue) })
}

// BoundsOverAll returns what bounds each tenant over all its queues that has no bound of its own, as BoundsIn does of a queue.
func (c *Compiled) BoundsOverAll() (Overflow, map[string]Overflow) {
	return c.byTier(func(tier string) Overflow { return cmp.Or(c.tierTotals[tier], c.overflows[Every]) })
}

// byTier returns the bound of StandardTier, and those of tiers that differ.
func (c *Compiled) byTier(of func(tier string) Overflow) (Overflow, map[string]Overflow) {
	standard := of(StandardTier)
	var others map[string]Overflow
	for _, tier := range c.tiers {
		bound := of(tier)
		if bound == standard {
			continue
		}
		if others == nil {
			others = map[string]Overflow{}
		}
		bound.Policy = cmp.Or(bound.Policy, NoBound)
		others[tier] = bound
	}
	return standard, others
}

// totalClause returns the rule that decides the bound of a tenant's depth over all its queues.
func (p Policy) totalClause(tenant string) Clause {
	scope, every := admission.Scope(tenant), admission.Scope(Every)
	if _, own := p.candidateFor(tenant).Overflows[scope]; own {
		return Clause{"override of tenant " + tenant, []string{"rollout", "rules", "overflows", tenant}}
	}
	if _, own := p.Overflows[scope]; own {
		return Clause{"override of tenant " + tenant, []string{"overflows", tenant}}
	}
	if tier, at := p.tierRules(tenant); tier.Overflow != (Overflow{}) {
		return Clause{"default of tier " + p.TierOf(tenant), append(at, "overflow")}
	}
	if _, all := p.Overflows[every]; all {
		return Clause{"default of tenants without a bound", []string{"overflows", Every}}
	}
	return Clause{}
}

// tierBound returns what bounds a tenant of a tier in a queue where it has no bound of its own.
func (c *Compiled) tierBound(tier, queue string) Overflow {
	return cmp.Or(c.tierBounds[tier][queue], c.queues[queue].Overflow, c.tierBounds[tier][Every], c.queues[Every].Overflow, c.overflows[Every+":"+Every])
}

// BoundsByTier reports whether some tier has other bounds somewhere than StandardTier.
func (c *Compiled) BoundsByTier() bool { return len(c.boundTiers()) > 0 }

func (c *Compiled) boundTiers() map[string]Overflow {
	_, others := c.BoundsOverAll()
	for _, queue := range append(c.QueueNames(), Every) {
		_, in := c.BoundsIn(queue)
		others = overlay(others, in)
	}
	return others
}

// BoundTiers returns the tiers of those configured tenants whose tier has other bounds somewhere than StandardTier.
func (c *Compiled) BoundTiers() map[string]string {
	differ, tiers := c.boundTiers(), map[string]string{}
	if len(differ) == 0 {
		return nil
	}
	for name, view := range c.tenants {
		if hasKey(differ, view.tier) {
			tiers[name] = view.tier
		}
	}
	return tiers
}

// validateOverflows checks the bounds of single tenants.
func (p Policy) validateOverflows(bad *problems) {
	for _, scope := range sortedKeys(p.Overflows) {
		tenant, queue, ok := strings.Cut(string(scope), ":")
		if !ok {
			p.validateTotal(bad, tenant)
			continue
		}
		if strings.Contains(queue, ":") || (tenant == Every) != (queue == Every) {
			bad.field("overflows", strconv.Quote(string(scope)), `scopes "tenant:queue", "tenant" for all its queues, "*" for each other tenant, or "*:*"`)
			continue
		}
		if tenant == Every {
			p.Overflows[scope].validate(bad, "overflows."+string(scope))
			continue
		}
		bad.add(scopeError(scope, admission.ValidateTenant(tenant)))
		bad.add(scopeError(scope, admission.ValidateName("queue", queue, true)))
		p.Overflows[scope].validate(bad, "overflows."+string(scope))
	}
}

// validateTotal checks the bound of a tenant over all its queues.
func (p Policy) validateTotal(bad *problems, tenant string) {
	if tenant != Every {
		bad.add(scopeError(admission.Scope(tenant), admission.ValidateTenant(tenant)))
	}
	p.Overflows[admission.Scope(tenant)].validateTotal(bad, "overflows."+tenant)
}

// validateTotal checks a bound over all queues.
func (o Overflow) validateTotal(bad *problems, owner string) {
	if o.Policy == DropOldest || o.Policy == Spillover {
		bad.field(owner+".policy", strconv.Quote(string(o.Policy)), `"none" or "reject" over all queues`)
		return
	}
	o.validate(bad, owner)
}

// Overflows returns the bounds of single tenants in queues, with every default filled in. The map is the caller's.
func (c *Compiled) Overflows() map[admission.Scope]Overflow { return maps.Clone(c.overflows) }

// queuesJSON is what the JSON of a record has of single queues.
func (r *OwnLimits) queuesJSON() map[string]recordQueueJSON {
	all := convert(r.Queues, func(_ string, in EachTenant) recordQueueJSON {
		return recordQueueJSON{eachTenantJSON: in.withDefaults().wire()}
	})
	for queue, limit := range r.capsIn() {
		if all == nil {
			all = map[string]recordQueueJSON{}
		}
		in := all[queue]
		in.MaxRunning = limit
		all[queue] = in
	}
	for queue, bound := range r.Overflows {
		if bound == (Overflow{}) {
			continue
		}
		if all == nil {
			all = map[string]recordQueueJSON{}
		}
		in := all[queue]
		in.Overflow = bound.withDefaults()
		all[queue] = in
	}
	return all
}

// setQueues reads it.
func (r *OwnLimits) setQueues(written map[string]recordQueueJSON, bad *problems) {
	r.Queues = convert(written, func(queue string, in recordQueueJSON) EachTenant {
		return in.eachTenant("queues."+queue+".", bad).withDefaults()
	})
	for queue, in := range written {
		if in.MaxRunning != 0 {
			r.MaxRunningIn = overlay(r.MaxRunningIn, map[string]int{queue: in.MaxRunning})
		}
		if in.Overflow != (Overflow{}) {
			r.Overflows = overlay(r.Overflows, map[string]Overflow{queue: in.Overflow.withDefaults()})
		}
		if each := r.Queues[queue]; each.empty() && (in.MaxRunning != 0 || in.Overflow != (Overflow{})) {
			delete(r.Queues, queue)
		}
	}
	if len(r.Overflows)+len(r.MaxRunningIn) > 0 && len(r.Queues) == 0 {
		r.Queues = nil
	}
}

// capsIn are the caps in single queues that say something.
func (r *OwnLimits) capsIn() map[string]int {
	for _, limit := range r.MaxRunningIn {
		if limit != 0 {
			caps := maps.Clone(r.MaxRunningIn)
			maps.DeleteFunc(caps, func(_ string, limit int) bool { return limit == 0 })
			return caps
		}
	}
	return nil
}

// validateBounds checks what a record says of depth and of caps in single queues, and of how many queues it says anything.
func (r *OwnLimits) validateBounds(bad *problems) {
	r.Overflow.withDefaults().validateTotal(bad, "overflow")
	for _, queue := range sortedKeys(r.Overflows) {
		if !hasKey(r.Queues, queue) {
			bad.add(admission.ValidateName("queues", queue, true))
		}
		r.Overflows[queue].withDefaults().validate(bad, "queues."+queue+".overflow")
	}
	for _, queue := range sortedKeys(r.MaxRunningIn) {
		if !hasKey(r.Queues, queue) && !hasKey(r.Overflows, queue) {
			bad.add(admission.ValidateName("queues", queue, true))
		}
		bad.bound("queues."+queue+".max_running", r.MaxRunningIn[queue], MaxMaxRunning)
	}
	if n := len(overlay(overlay(boundQueues(r.Queues), boundQueues(r.Overflows)), boundQueues(r.MaxRunningIn))); n > MaxRecordQueues {
		bad.field("queues", strconv.Itoa(n), "up to "+strconv.Itoa(MaxRecordQueues))
	}
}

func boundQueues[V any](of map[string]V) map[string]bool {
	return convert(of, func(string, V) bool { return true })
}

// WithOverflow returns a copy of the record with another bound in a queue, or over all where the queue is empty; the zero Overflow takes it away.
func (r OwnLimits) WithOverflow(queue string, bound Overflow) OwnLimits {
	if queue == "" {
		r.Overflow = bound
		return r
	}
	r.Overflows = overlay(r.Overflows, map[string]Overflow{queue: bound})
	if bound == (Overflow{}) {
		delete(r.Overflows, queue)
	}
	return r
}

// WithMaxRunning returns a copy of the record with another cap in a queue, or over all where the queue is empty; zero takes it away.
func (r OwnLimits) WithMaxRunning(queue string, limit int) OwnLimits {
	if queue == "" {
		r.MaxRunning = limit
		return r
	}
	r.MaxRunningIn = overlay(r.MaxRunningIn, map[string]int{queue: limit})
	if limit == 0 {
		delete(r.MaxRunningIn, queue)
	}
	return r
}

// OverflowAt returns what the record says of the bound in a queue, or over all where the queue is empty; the zero Overflow for nothing.
func (r OwnLimits) OverflowAt(queue string) Overflow {
	if queue == "" {
		return r.Overflow
	}
	return r.Overflows[queue]
}

func checkRecordSize(text []byte) error {
	if len(text) <= MaxRecordBytes {
		return nil
	}
	return &admission.FieldError{Field: "record", Value: fmt.Sprintf("%d bytes", len(text)), Allowed: fmt.Sprintf("JSON of up to %d bytes", MaxRecordBytes)}
}

func hasKey[V any](all map[string]V, name string) bool {
	_, there := all[name]
	return there
}
