package store

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/headgate/headgate/admission"
)

// QueueSettings are what dispatch must know of a queue; of the queue Every, of each that is not named, whose bound is among Overflows.
type QueueSettings struct {
	Queue   string
	Classes []admission.Class
	// Horizon is the deadline, counted from arrival, by which jobs without one are ordered.
	Horizon time.Duration
	// MaxWait expires a job that has not started this long after it could first; zero means never.
	MaxWait time.Duration
	// PoisonLimit is the number of deliveries lost that make a job a dead letter; zero means DefaultPoisonLimit.
	PoisonLimit int
	// KeepDead is how long dead letters are kept, zero for no bound; MaxDead how many, zero for DefaultMaxDead.
	KeepDead time.Duration
	MaxDead  int
	// Overflow bounds the live jobs of each tenant in the queue, and Tiers those of each tenant of a tier that has others.
	Overflow Overflow
	Tiers    map[string]Overflow `json:",omitempty"`
	// DropExpired drops and counts jobs past their deadline; otherwise they become dead letters.
	DropExpired bool
}

// Defaults of a queue that nobody configured.
const (
	DefaultPoisonLimit = 3
	DefaultMaxDead     = 100_000
)

// OverflowPolicy is what becomes of a job for which its tenant's depth in the queue leaves no room.
type OverflowPolicy string

// The overflow policies.
const (
	// NoBound lets it in; of a queue, also where each tenant has a bound in each queue that has none.
	NoBound OverflowPolicy = "none"
	// Reject refuses it.
	Reject OverflowPolicy = "reject"
	// DropOldest makes dead letters of the tenant's oldest waiting jobs in the queue, those of the lowest class first,
	// none of a class above the newcomer's.
	DropOldest OverflowPolicy = "drop_oldest"
	// Spillover keeps it aside until there is room, in order of arrival.
	Spillover OverflowPolicy = "spillover"
)

// Overflow bounds the depth of a tenant in a queue: its live jobs, dead letters and spilled ones apart. The zero
// Overflow is no bound.
type Overflow struct {
	Policy OverflowPolicy
	// MaxJobs and MaxBytes are the bounds; zero is none. Bytes are those of a job as it is stored.
	MaxJobs  int
	MaxBytes int64
	// MaxSpilled is how many jobs Spillover keeps aside.
	MaxSpilled int
	// MaxMoved is how many more have their bodies in the second Redis; zero is none.
	MaxMoved int
	// LowWater is the per cent of the bounds at which spilled jobs begin to come back.
	LowWater int
}

// TenantOverflow is a tenant's own bound in a queue. One without a policy lifts that of the queue. With the tenant and the queue Every
// it is that of each tenant in each queue that has none, in Tiers by tier where it differs. Without a queue it bounds the tenant, or with Every each that has none of
// its own, in Tiers by tier, over all its queues: by Reject.
type TenantOverflow struct {
	Tenant, Queue string
	Overflow      Overflow
	Tiers         map[string]Overflow `json:",omitempty"`
}

// Cap is a gate's limit of jobs in workers' hands, or of dispatches a time.
type Cap struct {
	// Gate is QueueGate, TenantGate, TenantQueueGate or DownstreamGate with a Limit; with the tenant or downstream
	// Every, it is the cap of each that has none of its own; so it is with the account Every of a downstream, of a Rate too. Or it is TenantRateGate or DownstreamRateGate with a Rate. Or it is GlobalLimitGate or
	// QueueLimitsGate with PartWhole, of which what is between Least and Most is in force.
	Gate GateName
	// Limit is how many at a time, 1 or more; of a Rate that moves by itself that rate, in RateUnits.
	Limit int
	// Rate is how many jobs may be dispatched a time, each a token.
	Rate admission.Limit

	// Least and Most are the bounds between which what is in force moves by itself, never above Limit (Adaptive); zero where it is Limit.
	Least, Most int `json:",omitempty"`
	// Loop is the name of what moves it.
	Loop string `json:",omitempty"`
	// ByTier says of a TenantGate that it is the cap of the tenant's tier: one whose record names another has that one's.
	ByTier bool `json:",omitempty"`

	// parts is how many partitions divide Limit, or Rate but for its Burst, among them; 0 where it is one's alone.
	Parts int `json:"-"`
}

// Reserve are slots of a queue, over all its workers, that only some of its classes may take: jobs of the others are in workers' hands on as many
// as are left, and on one at least.
type Reserve struct {
	Queue string
	// Classes are the places of those classes in the queue's order, from 0.
	Classes []int
	// Slots is how many, Percent how many percent of all, rounded up; one of them is zero.
	Slots, Percent int
	// Lends lets others take them while no job of Classes is runnable.
	Lends bool
}

// String is how Redis keeps it (lua/scripts/fragments/gate.lua): SLOTS or PERCENT%, ~ for Lends, a colon, and the Classes by commas.
func (r Reserve) String() string {
	var text strings.Builder
	text.WriteString(strconv.Itoa(r.Slots + r.Percent))
	if r.Percent > 0 {
		text.WriteByte('%')
	}
	if r.Lends {
		text.WriteByte('~')
	}
	for i, class := range r.Classes {
		text.WriteByte(":,"[min(i, 1)])
		text.WriteString(strconv.Itoa(class))
	}
	return text.String()
}

// TenantWeight is a tenant's weight in a class of every queue; an empty tenant is everybody else.
type TenantWeight struct {
	Class  admission.Priority
	Tenant string
	Weight admission.Weight
	// ByTier says that it is that of the tenant's tier: one whose record names another has that one's.
	ByTier bool `json:",omitempty"`
}

// TierWeight is the weight of a tier in a class of every queue, for tenants whose records name it.
type TierWeight struct {
	Class  admission.Priority
	Tier   string
	Weight admission.Weight
}

// TierCap is how many jobs of each tenant of a tier workers hold at a time, for tenants whose records name it.
type TierCap struct {
	Tier  string
	Limit int
}

// PolicyUpdate is a new version of the policy.
type PolicyUpdate struct {
	Expected, Version int64
	Text              []byte
	Window            time.Duration
	// LongestFill is how long the slowest bucket of this version takes to fill; zero means headgate.MaxRefill. For as
	// long, buckets that an earlier version left behind are kept: their full time was counted at a rate that may
	// have been faster.
	LongestFill time.Duration
	Queues      []QueueSettings
	Overflows   []TenantOverflow
	// Tiers are the tiers of tenants, by which bounds differ; one that is not there is of none.
	Tiers   map[string]string `json:",omitempty"`
	Weights []TenantWeight
	// TierWeights are those that differ from everybody else's, where tenants have records.
	TierWeights []TierWeight `json:",omitempty"`
	// TierCaps are those that differ from that of each tenant, where tenants have records.
	TierCaps []TierCap `json:",omitempty"`
	// Caps replaces every cap and rate that is in force. A pause goes on, and leaves the new cap behind.
	Caps []Cap
	// MaxParked is how many jobs may wait for a downstream whose breaker is not closed before others are refused; an empty
	// name is every downstream that is not named.
	MaxParked map[string]int
	// Reserves are slots of queues that only some of their classes may take.
	Reserves []Reserve
	// Pressured are the queues of which it is measured how much they are pressed.
	Pressured []string
	// Load is how often workers are to tell how busy they are; zero is never.
	Load time.Duration
	// Watched says that rates are watched (Rates).
	Watched bool
	// Usage says that usage is kept.
	Usage bool

	// Before is the update that stored the version in force, as far as dispatch and admission know it, so that only what differs is
	// written. Where it is nil, or Redis has something else, what Redis has is read.
	Before *PolicyUpdate `json:"-"`
	// SameBuckets says that no bucket's rate or burst differs from the version before, so that none has to be kept for longer.
	SameBuckets bool

	// Edit names this edit among all others, so that one that is sent again is known as such, and another's with the same
	// Text is not.
	Edit string
	// Author is who stores it and Reason why, up to MaxAuthor and MaxReason bytes, for the audit.
	Author, Reason string
	// Restored is the version whose document this is; zero for a new one.
	Restored int64
	// Changes is JSON that says what differs from the version before; empty is none.
	Changes []byte
}

// MaxAuthor is the largest size of an Author, in bytes.
const MaxAuthor = 256

// OnlyAsk is the Edit of an update that is not to be stored.
const OnlyAsk = "-"

// Validate names every field that cannot be.
func (u *PolicyUpdate) Validate() error {
	var bad []error
	if u.Edit == OnlyAsk {
		bad = append(bad, &admission.FieldError{Field: "edit", Value: strconv.Quote(OnlyAsk), Allowed: "any other text"})
	}
	for _, text := range []struct {
		field, value string
		most         int
	}{{"author", u.Author, MaxAuthor}, {"reason", u.Reason, MaxReason}} {
		control := strings.ContainsFunc(text.value, unicode.IsControl)
		if len(text.value) > text.most || control || !utf8.ValidString(text.value) {
			bad = append(bad, &admission.FieldError{
				Field: text.field, Value: fmt.Sprintf("of %d bytes", len(text.value)),
				Allowed: fmt.Sprintf("up to %d bytes of UTF-8 without control characters", text.most),
			})
		}
	}
	return errors.Join(bad...)
}

// The ways in which a new policy is refused.
var (
	// ErrConflict means that another version than the expected one is in force.
	ErrConflict = errors.New("policy conflict")
	// ErrClassInUse means that jobs wait in a class that the new policy does not have in that place.
	ErrClassInUse = errors.New("class in use")
)

// OfEach reports whether a gate is that of all that have none of their own.
func (n GateName) OfEach() bool {
	return strings.Contains(string(n), ":*") || strings.HasSuffix(string(n), admission.AccountSign+Every)
}

// DefaultGate names the gate of all that have none of their own.
func DefaultGate(name GateName) string {
	kind, guarded := name.Split()
	if kind == KindTenantQueue {
		_, queue, _ := strings.Cut(guarded, ":")
		return string(TenantQueueGate("*", queue))
	}
	if service, ofAccount := admission.ServiceOf(guarded); ofAccount && (kind == KindDownstream || kind == KindDownstreamRate) {
		return string(kind) + ":" + service + admission.AccountSign + "*"
	}
	return string(kind) + ":*"
}

// SpansPartitions reports whether what a gate bounds is in all partitions: each then has a share of the bound (Balancer). An account of a
// downstream is not: nearly always one tenant calls for it, and is in one; each partition has its whole bound.
func SpansPartitions(name GateName) bool {
	kind, guarded := name.Split()
	if _, ofAccount := admission.ServiceOf(guarded); ofAccount {
		return false
	}
	return kind == KindQueue || kind == KindDownstream || kind == KindDownstreamRate
}

// CheckPartitions refuses bounds that leave one of so many partitions nothing: its jobs would wait for ever.
func (u *PolicyUpdate) CheckPartitions(parts int) error {
	var bad []error
	least := func(field string, value int) {
		if value < parts {
			bad = append(bad, &admission.FieldError{
				Field: field, Value: strconv.Itoa(value), Allowed: fmt.Sprintf("%d or more: one for each partition", parts),
			})
		}
	}
	for _, c := range u.Caps {
		if !SpansPartitions(c.Gate) {
			continue
		}
		if kind, _ := c.Gate.Split(); kind == KindDownstreamRate {
			least("dispatch of "+c.Gate.Words()+": burst", int(c.Rate.Burst))
		} else {
			least("max_running of "+c.Gate.Words(), c.Limit)
			if c.Least > 0 {
				least("adaptive min of "+c.Gate.Words(), c.Least)
			}
		}
	}
	for downstream, most := range u.MaxParked {
		least("max_parked of downstream "+strconv.Quote(downstream), most)
	}
	return errors.Join(bad...)
}

// PolicyPoll is the longest time between two looks at the version in force.
const PolicyPoll = time.Second
