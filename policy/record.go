package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/headgate/headgate/admission"
)

// OwnLimits is what one tenant has of its own beside the policy, where that has TenantRecords: its tier, its weights, its caps, the rate of its dispatches, bounds of its depth, limits and semaphores, each in the place of
// what the policy has of that tenant or at that scope. It is stored by itself, so that to change one costs the same whatever number of tenants have theirs.
//
//nolint:recvcheck // It is a plain value; what is asked often spares the copy.
type OwnLimits struct {
	// Tier is its tier in the place of the policy's; empty says nothing. One that the policy has no more counts as StandardTier.
	Tier string
	// Weights are its own, class by class, before those that the policy has for it and those of its tier.
	Weights Weights
	// MaxRunning is how many of its jobs workers hold at a time, 1 to MaxMaxRunning, before the policy's own of it and that of its tier; zero says nothing.
	MaxRunning int
	// MaxRunningIn is the same in single queues, by name, before the policy's own of it there and what each tenant has there; zero says nothing.
	MaxRunningIn map[string]int
	// Dispatch is how many of its jobs are dispatched a time, in the place of the policy's own of it; nil says nothing, a Disabled one that there is no such bound.
	Dispatch *admission.Limit
	// Overflow bounds its depth over all its queues, before the policy's own of it and that of its tier, and Overflows in single queues, by name. The zero Overflow says
	// nothing, and one of NoBound that there is no bound.
	Overflow  Overflow
	Overflows map[string]Overflow
	// Limit is that of the tenant; nil says nothing, a Disabled one that there is none.
	Limit *admission.Limit
	// Semaphores are limits of its semaphores, by name without the tenant, Every for each that is not named, before all that the policy says of them. They are MaxRecordSemaphores at most.
	Semaphores map[string]SemaphoreRules
	// Queues are its limits in single queues, by name. They, Overflows and MaxRunningIn are of up to MaxRecordQueues.
	Queues map[string]EachTenant
}

// Bounds of OwnLimits.
const (
	MaxRecordQueues     = 64
	MaxRecordSemaphores = 64
	// MaxRecordBytes is the largest JSON text of one.
	MaxRecordBytes = 8 << 10
)

// NoRecord is the version of the record of a tenant that has none, where the policy has TenantRecords. Those that there are have later ones.
const NoRecord int64 = 1

// mostRecords is how many records a Compiled remembers. One that is forgotten is read again when its tenant comes.
const mostRecords = 1 << 16

// recordJSON begins with tier, weights and cap: scripts read them there (fragments/weight.lua), and bounds wherever they are (fragments/depth.lua).
type recordJSON struct {
	Tier       string                     `json:"tier,omitempty"`
	Weights    Weights                    `json:"priority_weights,omitempty"`
	MaxRunning int                        `json:"max_running,omitempty"`
	Dispatch   *limitJSON                 `json:"dispatch,omitempty"`
	Overflow   Overflow                   `json:"overflow,omitzero"`
	Limit      *limitJSON                 `json:"limit,omitempty"`
	Queues     map[string]recordQueueJSON `json:"queues,omitempty"`
	Semaphores map[string]semaphoreJSON   `json:"semaphores,omitempty"`
}

// Empty reports whether the record says nothing.
func (r OwnLimits) Empty() bool {
	return r.Tier == "" && len(r.Weights) == 0 && r.MaxRunning == 0 && r.Dispatch == nil && r.Overflow == (Overflow{}) && r.Limit == nil && len(r.Overflows)+len(r.Queues)+len(r.Semaphores)+len(r.capsIn()) == 0
}

// LimitAt returns what the record says of a level on a way, and whether it says anything. It does not allocate.
func (r *OwnLimits) LimitAt(level admission.Level, queue string, class admission.Priority) (limit admission.Limit, said bool) {
	switch level {
	case admission.LevelGlobal:
		return limit, false
	case admission.LevelTenant:
		if r.Limit == nil {
			return limit, false
		}
		return *r.Limit, true
	default: // Those of queues follow.
	}
	in, said := r.Queues[queue]
	if !said {
		return limit, false
	}
	return in.at(level, class)
}

// over puts what the record says over the limits on a way.
func (r *OwnLimits) over(limits *Limits, queue string, class admission.Priority) {
	for level := admission.LevelTenant; level <= admission.LevelPriority; level++ {
		if limit, said := r.LimitAt(level, queue, class); said {
			limits[level] = limit
		}
	}
}

// Path returns where the JSON of a record has the limit of a level on a way.
func (r OwnLimits) Path(level admission.Level, queue string, class admission.Priority) []string {
	if level < admission.LevelQueue {
		return []string{"limit"}
	}
	in := r.Queues[queue]
	return append([]string{"queues", queue}, in.path(level, class)...)
}

// RecordOf returns the record of a tenant as far as it is known, the zero OwnLimits for none.
func (c *Compiled) RecordOf(tenant string) OwnLimits {
	if known := c.recordOf(tenant); known != nil {
		return known.OwnLimits
	}
	return OwnLimits{}
}

// WithLimit returns a copy of the record with another limit of a scope of its tenant; nil takes it away.
func (r OwnLimits) WithLimit(scope admission.Scope, limit *admission.Limit) (OwnLimits, error) {
	_, queue, class, err := LimitParts(scope)
	if err != nil {
		return r, err
	}
	if scope.Level() == admission.LevelTenant {
		r.Limit = limit
		return r, nil
	}
	r.Queues = maps.Clone(r.Queues)
	if r.Queues == nil {
		r.Queues = map[string]EachTenant{}
	}
	in := r.Queues[queue]
	switch jobType, ofType := class.JobType(); {
	case ofType:
		in.TypeLimits = withLimit(in.TypeLimits, jobType, limit)
	case class != "":
		in.PriorityLimits = withLimit(in.PriorityLimits, class, limit)
	default:
		in.Limit = admission.Limit{}
		if limit != nil {
			in.Limit = *limit
		}
	}
	if r.Queues[queue] = in; in.empty() {
		delete(r.Queues, queue)
	}
	return r, nil
}

// withLimit returns a copy of limits with another by a name; nil takes it away.
func withLimit[K ~string](limits map[K]admission.Limit, name K, limit *admission.Limit) map[K]admission.Limit {
	limits = maps.Clone(limits)
	if delete(limits, name); limit == nil {
		return limits
	}
	if limits == nil {
		limits = map[K]admission.Limit{}
	}
	limits[name] = *limit
	return limits
}

// MarshalRecord returns the record as JSON, bursts and what bounds have where nothing is said filled in; nil for one that says nothing. Equal records give equal bytes.
func MarshalRecord(r OwnLimits) ([]byte, error) {
	if r.Empty() {
		return nil, nil
	}
	wire := recordJSON{Tier: r.Tier, Weights: r.Weights, MaxRunning: r.MaxRunning, Overflow: r.Overflow.withDefaults(), Queues: r.queuesJSON()}
	wire.Semaphores = convert(r.Semaphores, func(_ string, s SemaphoreRules) semaphoreJSON { return semaphoreJSON(s) })
	wire.Limit, wire.Dispatch = optional(ownBurst(r.Limit)), optional(ownBurst(r.Dispatch))
	text, err := json.Marshal(wire)
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	return text, checkRecordSize(text)
}

// UnmarshalRecord reads a record: {"tier": "premium", "priority_weights": {"high": 3}, "max_running": 5, "dispatch": {"tokens": 5}, "overflow": {"policy": "reject", "max_jobs": 100}, "limit": {"tokens": 50},
// "queues": {"mail": {"limit": {…}, "priority_limits": {"low": {…}}, "type_limits": {"report": {…}}, "max_running": 2, "overflow": {…}}}, "semaphores": {"gpu": {"max": 4}}}, all written as in a policy. An empty text is the record that says nothing. Unknown and repeated names are refused. Every error matches headgate.ErrInvalid.
func UnmarshalRecord(text []byte) (OwnLimits, error) {
	if len(text) == 0 {
		return OwnLimits{}, nil
	}
	if err := checkRecordSize(text); err != nil {
		return OwnLimits{}, err
	}
	if err := checkNamesOf[recordJSON](text); err != nil {
		return OwnLimits{}, err
	}
	var wire recordJSON
	if err := json.Unmarshal(text, &wire); err != nil {
		return OwnLimits{}, decodeError(err)
	}
	var bad problems
	r := OwnLimits{Tier: wire.Tier, Weights: wire.Weights, MaxRunning: wire.MaxRunning, Overflow: wire.Overflow.withDefaults()}
	r.Limit, r.Dispatch = ownBurst(bad.limit("limit", wire.Limit)), ownBurst(bad.limit("dispatch", wire.Dispatch))
	r.Semaphores = convert(wire.Semaphores, func(_ string, s semaphoreJSON) SemaphoreRules { return SemaphoreRules(s) })
	r.setQueues(wire.Queues, &bad)
	if err := errors.Join(bad...); err != nil {
		return OwnLimits{}, err
	}
	return r, r.validate()
}

// validate checks what needs no policy.
func (r OwnLimits) validate() error {
	var bad problems
	if r.Tier != "" {
		bad.add(admission.ValidateName("tier", r.Tier, true))
	}
	bad.weights("", r.Weights)
	bad.bound("max_running", r.MaxRunning, MaxMaxRunning)
	bad.dispatch("dispatch", r.Dispatch)
	if r.Limit != nil {
		bad.add(r.Limit.Validate("limit"))
	}
	r.validateBounds(&bad)
	bad.semaphores(r.Semaphores, MaxRecordSemaphores, false)
	for _, queue := range sortedKeys(r.Queues) {
		bad.add(admission.ValidateName("queues", queue, true))
		in, at := r.Queues[queue], "queues."+queue+"."
		if in.Limit != (admission.Limit{}) {
			bad.add(in.Limit.Validate(at + "limit"))
		}
		for _, class := range sortedKeys(in.PriorityLimits) {
			bad.add(in.PriorityLimits[class].Validate(at + "priority_limits." + string(class)))
		}
		bad.typeLimits(at, in.TypeLimits)
	}
	return errors.Join(bad...)
}

// ErrNoRecords means that the policy in force has no records of tenants: "tenant_records" is false.
var ErrNoRecords = fmt.Errorf(`%w: the policy in force has "tenant_records": false; put true into it, once each process is of a release that has records`, admission.ErrInvalid)

// CheckRecord checks a record that is to be stored beside this policy: that there may be some, that its tier is one that records may name, and that classes
// are those of their queues.
func (c *Compiled) CheckRecord(r OwnLimits) error {
	if c.records == nil {
		return ErrNoRecords
	}
	if err := r.validate(); err != nil {
		return err
	}
	var bad problems
	bad.add(c.checkTier(r.Tier))
	for _, queue := range sortedKeys(r.Queues) {
		names := classNames(c.ClassesOf(queue))
		for _, class := range sortedKeys(r.Queues[queue].PriorityLimits) {
			if !slices.Contains(names, string(class)) {
				bad.field("queues."+queue+".priority_limits", strconv.Quote(string(class)), "a class of queue "+queue+": "+quoteNames(names))
			}
		}
	}
	return errors.Join(bad...)
}

// HasTier reports whether the policy has a tier, for all its tenants.
func (c *Compiled) HasTier(name string) bool { return hasKey(c.base.Tiers, name) }

// TierOf returns the name of a tenant's tier, by its record as far as that is known. It does not allocate.
func (c *Compiled) TierOf(tenant string) string { return c.viewOf(tenant).tier }

// WithRecord returns the policy as it is for one tenant that has a record: TierOf is that of the record.
func (p Policy) WithRecord(tenant string, r OwnLimits) Policy {
	if r.Tier == "" {
		return p
	}
	tiers, candidacy := p.Tiers, p.Rollout.inForce()
	in := candidacy.Has(tenant)
	if in {
		tiers = overlay(tiers, candidacy.Rules.Tiers)
	}
	with := func(tenants map[string]Tenant) map[string]Tenant {
		own := tenants[tenant]
		if own.Tier = r.Tier; !hasKey(tiers, r.Tier) {
			own.Tier = StandardTier
		}
		return overlay(tenants, map[string]Tenant{tenant: own})
	}
	p.Tenants = with(p.Tenants)
	if in && hasKey(candidacy.Rules.Tenants, tenant) {
		candidate := *candidacy
		candidate.Rules.Tenants = with(candidate.Rules.Tenants)
		p.Rollout = &candidate
	}
	return p
}

// records are those that a Compiled knows, by tenant: *knownRecord.
type records struct {
	known sync.Map
	n     atomic.Int64
	// typed says that one was known that limits types. It is set before that is known, and stays.
	typed atomic.Bool
}

type knownRecord struct {
	OwnLimits

	version int64
	// view is what applies to its tenant, and shadow that by a candidate in shadow, nil where there is none.
	view, shadow *tenantView
}

func (r *records) of(tenant string) *knownRecord {
	known, _ := r.known.Load(tenant)
	own, _ := known.(*knownRecord)
	return own
}

func (r *records) forget(tenant any) {
	if _, known := r.known.LoadAndDelete(tenant); known {
		r.n.Add(-1)
	}
}

// put remembers a record, and forgets another where there are too many: whichever comes first, since none is dearer than another.
func (r *records) put(tenant string, own *knownRecord) {
	for _, in := range own.Queues {
		if len(in.TypeLimits) > 0 {
			r.typed.Store(true)
		}
	}
	if _, known := r.known.Swap(tenant, own); known || r.n.Add(1) <= mostRecords {
		return
	}
	r.known.Range(func(other, _ any) bool {
		if other == tenant {
			return true
		}
		r.forget(other)
		return false
	})
}

// HasRecords reports whether tenants may have records beside the policy.
func (c *Compiled) HasRecords() bool { return c.records != nil }

// Learn has the policy know the record of a tenant, as the store has it: its version, NoRecord for none, and its text. Any number of goroutines
// may call it. A text that is of no use matches ErrStored.
func (c *Compiled) Learn(tenant string, version int64, text []byte) error {
	if c.records == nil {
		return nil
	}
	if version == NoRecord {
		c.records.forget(tenant)
		return nil
	}
	own, err := UnmarshalRecord(text)
	if err != nil {
		return fmt.Errorf("%w: record of tenant %s: %s", ErrStored, tenant, err.Error())
	}
	known := &knownRecord{OwnLimits: own, version: version, view: c.viewWith(tenant, &own)}
	if c.shadow != nil {
		known.shadow = c.shadow.viewWith(tenant, &own)
	}
	c.records.put(tenant, known)
	return nil
}

// RecordVersion returns the version of a tenant's record that is known, NoRecord for none; zero where the policy has no records.
func (c *Compiled) RecordVersion(tenant string) int64 { return c.standing(tenant).version }

// recordOf returns the record of a tenant that is known, nil for none.
func (c *Compiled) recordOf(tenant string) *knownRecord {
	if c.records == nil {
		return nil
	}
	return c.records.of(tenant)
}

// standing is what a tenant has: its record, nil for none, what applies to it, and the version of the record that both come from, zero where the policy has
// no records.
type standing struct {
	own     *OwnLimits
	view    *tenantView
	version int64
}

// standing returns it. Everything that is asked of one tenant at a time is to come from one standing: the record may change in between.
func (c *Compiled) standing(tenant string) standing {
	if c.records == nil {
		return standing{view: c.documentView(tenant)}
	}
	if known := c.records.of(tenant); known != nil {
		return standing{&known.OwnLimits, known.view, known.version}
	}
	return standing{nil, c.documentView(tenant), NoRecord}
}

// shadowStanding returns what a tenant has by the candidate in shadow.
func (c *Compiled) shadowStanding(tenant string) standing {
	if known := c.recordOf(tenant); known != nil {
		return standing{&known.OwnLimits, known.shadow, known.version}
	}
	return standing{view: c.shadow.documentView(tenant)}
}

// viewOf returns what applies to a tenant, by its record as far as that is known.
func (c *Compiled) viewOf(tenant string) *tenantView { return c.standing(tenant).view }

// ShedAnyway is PressureFor of those of a tenant's jobs that are refused whatever tier its record names by now: where tenants have records, from which level on
// those of each tier are. It does not allocate.
func (c *Compiled) ShedAnyway(tenant, queue string, class admission.Priority) (from admission.PressureLevel, tier string) {
	from, _, tier = c.PressureFor(tenant, queue, class)
	if from == 0 || from == NeverShed || c.records == nil || len(c.shedding.Tiers) == 0 {
		return from, tier
	}
	place, _ := c.shedding.place(class, c.shedding.Tiers[len(c.shedding.Tiers)-1])
	return c.shedFrom(2*place + 1), tier
}

// hasShares reports whether the record has something of its own, beside its tier, of how its tenant's jobs are dispatched.
func (r *OwnLimits) hasShares() bool {
	return len(r.Weights) > 0 || r.MaxRunning > 0 || r.Dispatch != nil
}

// viewWith returns what applies to a tenant that has a record.
func (c *Compiled) viewWith(tenant string, r *OwnLimits) *tenantView {
	by := c.documentView(tenant)
	if r.Tier == "" && !r.hasShares() {
		return by
	}
	of := c.sideOf(tenant)
	own := of.Tenants[tenant]
	tier := cmp.Or(r.Tier, own.Tier, StandardTier)
	if !hasKey(of.Tiers, tier) {
		tier = StandardTier
	}
	if c.tenants[tenant] == nil && !r.hasShares() {
		return of.ofTier[tier]
	}
	own.Tier, own.Weights, own.MaxRunning, own.Dispatch = tier, overlay(own.Weights, r.Weights), cmp.Or(r.MaxRunning, own.MaxRunning), cmp.Or(r.Dispatch, own.Dispatch)
	view := of.viewOf(own)
	view.queues = by.queues
	return &view
}
