package store

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// Question asks for tokens of every bucket on the way of a scope.
type Question struct {
	// Tenant, Queue and Class name the way; those below the scope are empty, and all are for the global one.
	Tenant, Queue string
	Class         admission.Priority
	// Cost is 1 to headgate.MaxCost tokens.
	Cost admission.Tokens
	// Limits apply by level, Disabled below the scope. The global one must be the same for all of a call, but for what is kept of it.
	Limits [admission.Levels]admission.Limit
	// TypeLimit is what a Check, a Take and its Refund, and a Shadow ask beside Limits for the type of a job; nil for none. Of its bucket no Left is told.
	TypeLimit *TypeLimit
	// Usage says of a Take or a Reserve of a tenant and a queue that it is counted among the usage of the day, which is kept of so many tenants;
	// zero for none.
	Usage int
	// Measured says that the Verdict of a Check is to tell how much the queue is pressed, which the policy has measured.
	Measured bool
	// Estimated says of a Reserve that Cost is a guess of the moment: an id that has taken another one of the same scope is answered all the same.
	Estimated bool
	// MaxKeys is policy.DimensionRules.MaxKeys of a question of a dimension (OfDimension) whose key may find no room for a bucket; zero for one that
	// always has its own. Limits are then as policy.Compiled.DimensionLimits has them, and Record policy.NoRecord where the policy has records.
	MaxKeys int
	// Record is the version of the tenant's record that Limits come from, as policy.Compiled.WayFor tells it; zero where the policy has no records.
	// Where the store has another the call does nothing (StaleRecordsError).
	Record int64
}

// Scope is the innermost scope that the question names.
func (q *Question) Scope() admission.Scope {
	level := admission.LevelGlobal
	switch {
	case q.Class != "":
		level = admission.LevelPriority
	case q.Queue != "":
		level = admission.LevelQueue
	case q.Tenant != "":
		level = admission.LevelTenant
	}
	return admission.ScopeAt(level, q.Tenant, q.Queue, q.Class)
}

// OfDimension reports whether the question is of the value of a dimension, beside the hierarchy: then Tenant is its owner and Queue its key, as
// policy.Compiled.Dimension returns them, and the global limit is not on its way.
func (q *Question) OfDimension() bool { return strings.HasPrefix(q.Tenant, admission.DimensionMark) }

// Home names what picks the partition of the question: the tenant, or the scope of a dimension, so that its values spread; "" for any.
func (q *Question) Home() string {
	if q.OfDimension() {
		return q.Tenant + ":" + q.Queue
	}
	return q.Tenant
}

// ShardKeys is how many keys of a dimension stand together in Redis: as many as it packs.
const ShardKeys = 120

// Shard returns where the key of a dimension stands in its partition, of so many, and for how many keys there is room: their product is no more
// than MaxKeys, but for at least one key a partition. room is zero for a key that always has its bucket.
func (q *Question) Shard(partitions int) (shard, room int) {
	if q.MaxKeys == 0 {
		return 0, 0
	}
	keys := max(1, q.MaxKeys/max(1, partitions))
	shards := (keys + ShardKeys - 1) / ShardKeys
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a, with the finaliser of MurmurHash3.
	h := uint64(offset)
	for i := range len(q.Queue) {
		h = (h ^ uint64(q.Queue[i])) * prime
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	at, _ := bits.Mul64(h^h>>33, uint64(shards))
	return int(at), keys / shards //nolint:gosec // below shards
}

// LeastBurst returns the least of a burst, zero for none, and those of the values of dimensions that are asked beside: what costs more is refused for good.
func LeastBurst(least admission.Tokens, beside []Question) admission.Tokens {
	for i := range beside {
		if l := &beside[i].Limits[admission.LevelQueue]; !l.Disabled && l.Tokens != 0 && (least == 0 || l.Burst < least) {
			least = l.Burst
		}
	}
	return least
}

// Answer is what became of a Question.
type Answer struct {
	// Verdict is Admitted where every bucket holds enough, else Refused for headgate.ReasonLimited, ReasonTooCostly or
	// ReasonBuckets.
	Verdict admission.Verdict
	// Left is what each bucket holds after the call, by level; 0 where the limit is Disabled.
	Left [admission.Levels]admission.Micro
	// Others is what the bucket of those holds from whom a part of the global limit is kept, where the question is one of theirs.
	Others admission.Micro
	// Shared says that there was no room for the bucket of a dimension's key: the answer is that of the bucket which such keys share, at
	// LevelTenant.
	Shared bool
}

// RefundWindow is the Expiry of what was taken unless its receipt says another.
const RefundWindow = time.Minute

// Refund is what became of a refund.
type Refund string

// The answers to a refund.
const (
	// Refunded means that the tokens are back in their buckets, but for what these would have had no room for; of a Commit beyond what was
	// taken, that the rest is.
	Refunded Refund = "refunded"
	// RefundedBefore means that the id had been refunded, or its work committed as a whole; nothing was done.
	RefundedBefore Refund = "again"
	// RefundLate means that the Expiry is over; nothing was done.
	RefundLate Refund = "late"
	// RefundStale means that the policy has changed since; nothing was done.
	RefundStale Refund = "stale"
)

// Taken says what Take has taken, and when. It is a plain value; the zero Taken is none.
type Taken struct {
	Question Question
	Version  int64
	Left     [admission.Levels]int64
	At       Moment
	// Shared is that of the Answer.
	Shared bool
	// ExpireAfter is the Expiry; zero means RefundWindow. It and Version are those of all that is Beside, too.
	ExpireAfter time.Duration
	// Under is what Reserve has taken it under, "TENANT:ID"; empty for Take.
	Under string
	// Beside are what was taken with it of values of dimensions, each with its own Question, At, Left and Shared; all have the Question's cost.
	// They are settled with it.
	Beside []Taken
}

// Expiry is how long after the taking, or after the latest CommitPart, tokens may be refunded, and how long an id that was is remembered.
func (t *Taken) Expiry() time.Duration { return cmp.Or(t.ExpireAfter, RefundWindow) }

// Kept is how long the id of a reservation is remembered, counted from the taking or from the latest CommitPart.
func (t *Taken) Kept() time.Duration { return 2 * t.Expiry() }

// Worst returns the verdict of the answer that refuses for longest, the first of equals; Admitted where none does.
func Worst(answers []Answer) admission.Verdict {
	worst := &answers[0].Verdict
	for i := range answers {
		if v := &answers[i].Verdict; v.Decision != admission.Admitted && (worst.Decision == admission.Admitted || v.RetryAfter > worst.RetryAfter) {
			worst = v
		}
	}
	return *worst
}

// Moment is the buckets' time of a call, in microseconds, and how many tokens had been refunded until then, in all, in a partition.
type Moment struct {
	Time, Refunds int64
	Part          int
}

// Grant is one call for the callers of a limiter.
type Grant struct {
	// Version is that of the policy from which the limits come.
	Version int64
	// Member is the limiter's name, unique among those that live: 1-128 bytes.
	Member string
	// Lease is how long what is leased may be spent, counted from before the call.
	Lease time.Duration
	// Beat is for how long the limiter counts as live; zero leaves that as it is, below zero forgets the limiter.
	Beat time.Duration
	// Edited, of a Beat, is the latest edit of a tenant's record that the limiter has heard of, as Granted told it, policy.NoRecord for none: then it is told
	// of those since by name. Zero is of a policy without records.
	Edited int64
	// Questions are asked one after the other, each granted or refused by itself, at most MaxBatchJobs. One of no cost asks
	// nothing and serves Accounts alone. The global limit must be the same for all.
	Questions []Question
	// Left also tells of what is granted the scope on its way that holds least after it, the outermost of equals, what that holds in
	// whole tokens, rounded down, and its burst: Verdict's Scope, TokensLeft and Burst.
	Left bool
	// Accounts are the leases that change, each scope once.
	Accounts []Account
}

// Account is what changes in the lease of one scope. Amounts are whole tokens, zero or more.
type Account struct {
	// Question is the index of one on whose way the scope is, at Level, or LevelOthers.
	Question int
	Level    admission.Level
	// Want is what is asked for beside the Held tokens that are still there. Cap is what all holders together may hold.
	Want, Held, Cap admission.Tokens
	// Back ends the lease and gives back as much, if the lease has not ended by itself.
	Back admission.Tokens
	// Owed is to be taken out of the bucket as far as it reaches, for work that was admitted while Redis was away.
	Owed admission.Tokens
	// Stock says that what is wanted is no lease: nothing is noted of the tokens, which do not end and do not come back, Cap is what the caller
	// may have, and half of the burst is left. Back and Owed are of no account.
	Stock bool
}

// EditsKept is how many edits of records a partition can name.
const EditsKept = 512

// LevelOthers is where, on the way of those from whom a part of the global limit is kept, their bucket stands. Nothing of it is leased.
const LevelOthers = admission.Levels

// Granted is the answer to a Grant.
type Granted struct {
	// Members is how many limiters live, and Changed when limits were last changed, by the policy, by a scale or, without Grant.Edited, by a tenant's record,
	// in microseconds of the buckets' time. They are known after a Beat, else Members is below zero.
	Members int
	Changed int64
	// Edited is the latest edit of a record, where Grant.Edited asks for it, and Renewed the tenants whose records were edited since, each once; AllRenewed says
	// that they are not known, as there were more than EditsKept, or Redis has lost some: any may be among them.
	Edited     int64
	Renewed    []string
	AllRenewed bool
	// Verdicts answer the questions that cost something, in order. They are not to be changed: those that have nothing to tell may be one.
	Verdicts []*admission.Verdict
	// Leases answer the accounts, in order.
	Leases []Leased
}

// Leased is what became of an Account.
type Leased struct {
	// Tokens are leased anew. Paid is how much of what is owed was taken.
	Tokens, Paid admission.Tokens
	// Holders is how many limiters have a lease of the scope, this one included; zero where none was wanted.
	Holders int
}

// ShadowCounts are what a candidate in shadow would have answered since it began.
type ShadowCounts struct {
	// ID is that of the candidate; empty if nothing was counted yet.
	ID string
	// Since is when the first was counted, by the time of Redis.
	Since time.Time
	// Allowed is how many would have been admitted, Refused how many not, by the level whose limit says so.
	Allowed int64
	Refused [admission.Levels]int64
}

// Bounds of what is counted by scope.
const (
	// TopScopes is how many scopes are counted, those with the most decisions, beside those that are counted always.
	TopScopes = 1000
	// CountedFor is how long a minute is kept.
	CountedFor = time.Hour
	// CountedValues is how many values of dimensions are counted in a partition, those that use most of their limits, for NearbyFor.
	CountedValues = 256
	NearbyFor     = 4 * time.Minute
)

// ScopeCount is what a process has seen of a scope.
type ScopeCount struct {
	Scope admission.Scope
	// Always counts the scope whatever its rank.
	Always bool
	// Queue, if there is one, takes the place of Scope: it is what was decided of the queue over all tenants, for Rates alone.
	Queue string
	// Tenants and Jobs are names that the queue had, "tenant" and "tenant:id": those that may make a difference to Distincts.
	Tenants, Jobs []string
	// OfLimit says that Scope is of a dimension, and how many millionths of its limit Tokens are, 1 and more: it is counted apart, for Nearby alone, and ranked by that.
	OfLimit int64
	// Watched says that Rates are read: it is noted when scopes make room for others.
	Watched bool
	// Allowed and Refused are jobs, and checks without one; Tokens is what they asked for together.
	Allowed, Refused int64
	Tokens           admission.Tokens
}

// Minute is what was counted of a scope in one minute.
type Minute struct {
	// At is when it began.
	At               time.Time
	Allowed, Refused int64
	Tokens           admission.Tokens
	// Partial says that the scope came among those that are counted only during the minute.
	Partial bool
}

// Bounds of what is kept of usage in a partition.
const (
	// UsageDays is for how many days usage is kept, beside the one under way.
	UsageDays = 35
	// UsageQueues is of how many queues of a tenant in a day usage is kept each by itself.
	UsageQueues = 64
	// UsageRest stands for the queue of what a tenant used in others, and for tenant and queue of what tenants used beyond those whose usage
	// is kept. It is no name of either.
	UsageRest = "*"
)

// Recorded is what was counted in one minute.
type Recorded struct {
	// At is when it began, Lasted how much of it was over when it was read.
	At     time.Time
	Lasted time.Duration
	Scopes map[admission.Scope]Minute
}

// Scale is a part of limits that is in force for a time, instead of what the policy says: of token buckets of rate and burst, of fixed windows of
// the tokens.
type Scale struct {
	// Target is whose limits they are: ScaleAll, ScaleGlobal, or the TenantGate of a tenant, whose scopes below are scaled too. Of two that hold
	// for one limit the one counts that leaves less.
	Target GateName
	// Part is from MinScale to 1.
	Part float64
	// Until is when it ends by itself.
	Until time.Time
	// Author is who set it, Reason why and Since when.
	Author, Reason string
	Since          time.Time
}

// Targets of a Scale beside tenants.
const (
	ScaleAll    GateName = "all"
	ScaleGlobal GateName = "global"
)

// Bounds of a Scale.
const (
	MinScale     = 0.01
	MinScaleTime = time.Second
	MaxScaleTime = 24 * time.Hour
	// MaxScales is how many may be in force in a partition.
	MaxScales = 16
)

// AuditScale is an operator who scales limits for a time, AuditScaleEnd one who ends that.
const (
	AuditScale    = "scale"
	AuditScaleEnd = "scale_end"
)

// ErrTooManyScales means that MaxScales are in force: end one, or scale all.
var ErrTooManyScales = fmt.Errorf("as many limits are scaled as may be, %d", MaxScales)

// Words tells of it, without its end.
func (s *Scale) Words() string {
	text := "limits are scaled to " + PartText(s.Part)
	switch s.Target {
	case ScaleAll:
		text = "all " + text
	case ScaleGlobal:
		text = "global " + text
	default:
		text += " for " + s.Target.Words()
	}
	if s.Author != "" {
		text += " by " + s.Author
	}
	if s.Reason != "" {
		text += ", " + s.Reason
	}
	return text
}

// Concerns reports whether a scope's limit is scaled by it.
func (s *Scale) Concerns(scope admission.Scope) bool {
	tenant, _, _ := strings.Cut(string(scope), ":")
	switch s.Target {
	case ScaleAll:
		return true
	case ScaleGlobal:
		return scope == admission.Global
	}
	return scope != admission.Global && s.Target == TenantGate(tenant)
}

// PartOf returns the part of a scope's limit that is in force, 1 where it is not scaled.
func PartOf(scales []Scale, scope admission.Scope) float64 {
	part := 1.0
	for _, s := range scales {
		if s.Concerns(scope) {
			part = min(part, s.Part)
		}
	}
	return part
}

// PartText writes a part as the audit and the store have it.
func PartText(part float64) string { return strconv.FormatFloat(part, 'g', -1, 64) }

// ScaleReason is what the audit has of a scale as its reason.
func ScaleReason(part float64, reason string) string {
	if reason != "" {
		reason = ": " + reason
	}
	return "to " + PartText(part) + reason
}

// ScaleTarget reads whose limits are to be scaled: all, global, a tenant, or t:TENANT, which one must write whose name is all.
func ScaleTarget(text string) (GateName, error) {
	if target := GateName(text); target == ScaleAll || target == ScaleGlobal {
		return target, nil
	}
	tenant, _ := strings.CutPrefix(text, "t:")
	if admission.ValidateTenant(tenant) != nil {
		return "", &admission.FieldError{Field: "scope", Value: strconv.Quote(text), Allowed: "all, global or a tenant"}
	}
	return TenantGate(tenant), nil
}

// ValidateScale checks what a Scale is set to; a duration of zero ends it, whatever the part is.
func ValidateScale(target GateName, part float64, duration time.Duration, by Intervention) error {
	bad := []error{by.Validate()}
	if kind, tenant := target.Split(); target != ScaleAll && target != ScaleGlobal && (kind != KindTenant || admission.ValidateTenant(tenant) != nil) {
		bad = append(bad, &admission.FieldError{Field: "scope", Value: strconv.Quote(string(target)), Allowed: "all, global or t:TENANT"})
	}
	if duration == 0 {
		return errors.Join(bad...)
	}
	if !(part >= MinScale && part <= 1) {
		bad = append(bad, &admission.FieldError{Field: "part", Value: PartText(part), Allowed: PartText(MinScale) + " to 1 of what the policy says"})
	}
	if duration < MinScaleTime || duration > MaxScaleTime {
		bad = append(bad, &admission.FieldError{Field: "for", Value: admission.DurationText(duration), Allowed: admission.DurationText(MinScaleTime) + " to " + admission.DurationText(MaxScaleTime)})
	}
	return errors.Join(bad...)
}
