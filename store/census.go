package store

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// Census is where every accepted job is or how it left, as Redis holds it (law L4).
type Census struct {
	Accepted int64 `json:"accepted"`
	// Waiting counts jobs in lanes, gated ones included; Later those that wait for a time; Ready those in ready
	// streams, leased ones included; Spilled those of overflow stores; Dead the dead letters.
	Waiting int64 `json:"waiting"`
	Later   int64 `json:"later"`
	Ready   int64 `json:"ready"`
	Spilled int64 `json:"spilled"`
	// SpilledAway are those of Spilled whose bodies are in the second Redis.
	SpilledAway int64 `json:"spilled_away,omitempty"`
	Dead        int64 `json:"dead"`
	// Live is the number of jobs in the jobs hash, counted on its own.
	Live int64 `json:"live"`
	// Left counts by reason of leaving.
	Left map[string]int64 `json:"left"`
	// Died counts dead letters by reason, over all time.
	Died map[string]int64 `json:"died"`
	// Moving means that jobs moved while they were counted, so that places that do not add up say nothing.
	Moving bool `json:"moving"`
}

// Conserved reports whether accepted = Σ places + Σ left, and the places agree with the jobs hash.
func (c Census) Conserved() bool {
	return c.Waiting+c.Later+c.Ready+c.Spilled+c.Dead == c.Live && c.Unaccounted() == 0
}

// Known reports whether Conserved is sure: where jobs move while they are counted, only that all is right is.
func (c Census) Known() bool { return !c.Moving || c.Conserved() }

// Unaccounted is how many accepted jobs have neither a record nor left for a reason that was counted.
func (c Census) Unaccounted() int64 { return c.Accepted - c.Live - sum(c.Left) }

func sum(counts map[string]int64) (all int64) {
	for _, n := range counts {
		all += n
	}
	return all
}

// Counters are what was counted since the deployment began: the parts of a Census that cost one read, however many jobs
// and lanes there are.
type Counters struct {
	Accepted int64
	// Left counts by reason of leaving; Died dead letters by reason.
	Left, Died map[string]int64
	// Retried is how often a run failed and its job came back.
	Retried int64
	// Unknown is what workers handed back because they have no handler for it, by queue.
	Unknown map[string]Unknown
	// Anomalies is how many rates were not usual, by kind: each of AnomalyKinds where rates are watched, else those there were.
	Anomalies map[string]int64
	// Live is how many jobs there were in the same moment; below zero where that cannot be read, in a full Redis.
	Live int64
}

// Unknown is how often workers of a queue handed jobs back whose type they have no handler for, since the deployment began, and
// when that last was, by the clock of Redis, and of which type.
type Unknown struct {
	Count int64
	Last  time.Time
	Type  string
}

// UnknownType begins the text of a Finish that hands a job back because the worker has no handler for its type, which follows
// after a space: each time in a row the job stays away for longer than its Delay, up to 300 times as long.
const UnknownType = "unknown_type"

// Unaccounted is how many accepted jobs have neither a record nor left for a reason that was counted: somebody, or a slot that was
// lost, has taken their records away (law L4). Jobs that move make no difference to it.
func (c Counters) Unaccounted() (n int64, known bool) {
	if c.Live < 0 {
		return 0, false
	}
	return c.Accepted - c.Live - sum(c.Left), true
}

// Vitals is what tells at a glance whether the store and its timers are well.
type Vitals struct {
	// Late is for how long the timer that is due first has been, 0 where none is.
	Late time.Duration
	// Memory is what Redis uses, MaxMemory its bound, in bytes; 0 for no bound, and both where it does not tell.
	Memory, MaxMemory int64
	// Bounds are what is used of what is kept at most, each of the partition that has the most.
	Bounds []BoundUse
}

// BoundUse is how much is used of what a partition keeps at most.
type BoundUse struct {
	// Bound is "queues", names that are known, "dead letters", "breakers", or "lanes" of the tenant that has the most in a class of a queue.
	Bound      string
	Used, Most int64
}

// Bounds of a partition, as fragments/made.lua, letter.lua, lane.lua and breaker.lua have them. Lanes are those of a tenant in a class.
const (
	MaxQueues   = 4096
	MaxLetters  = 100_000
	MaxLanes    = 4096
	MaxBreakers = 4096
	// CountedLanes is from how many lanes of one tenant on these are counted.
	CountedLanes = MaxLanes * 3 / 4
)

// BoundsUsed says how much is used of the bounds.
func BoundsUsed(queues, letters, lanes, breakers int64) []BoundUse {
	return []BoundUse{
		{"queues", queues, MaxQueues}, {"dead letters", letters, MaxLetters}, {"lanes", lanes, MaxLanes}, {"breakers", breakers, MaxBreakers},
	}
}

// ClassName names a class by its index; one that the classes no longer have is named by its number.
func ClassName(classes []admission.Class, index int) admission.Priority {
	if index < len(classes) {
		return classes[index].Name
	}
	return admission.Priority(strconv.Itoa(index))
}

// Decided is what limits decided on jobs, and on checks without one.
type Decided struct {
	Allowed, Refused int64
	// Partial says that it was counted for a part of the minute only.
	Partial bool
}

// Rates is what was decided in a minute.
type Rates struct {
	// All is everything. Tenants are those that are among the scopes that are counted, Queues up to MaxWatchedQueues, where the policy has
	// anomalies: each over all its tenants.
	All             Decided
	Tenants, Queues map[string]Decided
	// Scopes are all that are counted, All but for the tokens among them.
	Scopes map[admission.Scope]Minute
	// Crowded says that scopes made room for others: a tenant that is not there may have had something. Watched says that queues were counted:
	// else one that is not there may have, too.
	Crowded, Watched bool
}

// What is kept of rates beyond the hour of minutes.
const (
	// RateStep is how long a point is, RateHistoryLife for how long they are kept, RatePoints how many that are of a queue.
	RateStep        = 10 * time.Minute
	RateHistoryLife = 15 * 24 * time.Hour
	RatePoints      = int(RateHistoryLife / RateStep)
	// MaxRateQueues is of how many queues a day (UTC) there are points.
	MaxRateQueues = 200
)

// RateNote is a point of the history of what was decided of queues.
type RateNote struct {
	// Owner is who holds the timer lease of the first partition. Where it is another nothing is done (ErrNotHolder). Where the policy has no
	// rates watched, nothing is done either (ErrNotMeasured).
	Owner string
	// At is when the point began, a multiple of RateStep.
	At time.Time
	// Queues are all that had anything. Where there are more than MaxRateQueues in a day, those that were in it before stay, and of others
	// those with the most come first.
	Queues map[string]Decided
}

// Names returns the queues in the order in which they find room.
func (n *RateNote) Names() []string {
	return slices.SortedFunc(maps.Keys(n.Queues), func(a, b string) int {
		return cmp.Or(cmp.Compare(n.Queues[b].Allowed+n.Queues[b].Refused, n.Queues[a].Allowed+n.Queues[a].Refused), strings.Compare(a, b))
	})
}

// RateHistory is what was decided of queues, in points of RateStep.
type RateHistory struct {
	// First is when the first point began.
	First time.Time
	// Queues has RatePoints of each queue that was asked for, up to the last that is over.
	Queues map[string][]Rate
}

// Rate is a point: jobs admitted and refused, up to MaxRate. One that is not Known is of a time at which nobody counted, or of a queue of which
// there was no room to.
type Rate struct {
	Allowed, Refused uint32
	Known            bool
}

// MaxRate is the largest count of a Rate.
const MaxRate = math.MaxUint32

// RateSlot is the point to which a time belongs: the day, counted from 1970, and its number there, from 0.
func RateSlot(at time.Time) (day int64, point int) {
	slot := at.Unix() / int64(RateStep/time.Second)
	const ofDay = int64(24 * time.Hour / RateStep)
	return slot / ofDay, int(slot % ofDay)
}

// Distinct is how many different tenants, and jobs, were decided on in a queue, within 1 % or so. Hours begin as those of UTC.
type Distinct struct{ ThisHour, LastHour DistinctNames }

// DistinctNames are those of an hour.
type DistinctNames struct{ Tenants, Jobs int64 }

const (
	// MaxDistinctQueues is of how many queues an hour different names are counted.
	MaxDistinctQueues = 500
	// DistinctKept is for how long an hour is kept after its last count.
	DistinctKept = 2*time.Hour + 2*time.Minute
)

// Bounds of what is kept of anomalies.
const (
	// MaxWatchedQueues is of how many queues what was decided is counted in a minute.
	MaxWatchedQueues = 1000
	// MaxAnomalies is how many are kept.
	MaxAnomalies = 1000
	// MaxAnomalyNotes is how many a call may note.
	MaxAnomalyNotes = 64
	// AnomalyQuiet is for how long one must not have been noted to be told anew.
	AnomalyQuiet = 10 * time.Minute
)

// AnomalyScan is the kind of what servers find: a credential that asks for many things that are not there.
const AnomalyScan = "scope_scan"

// AnomalyNearLimit is the kind of what schedulers find: a scope that used policy.AnomalyRules.WarnAt of its limit.
const AnomalyNearLimit = "near_limit"

// AnomalyKinds are the kinds of anomalies; package internal/anomaly says what the first three are.
var AnomalyKinds = []string{"surge", "silence", "refusal_surge", AnomalyScan, AnomalyNearLimit}

// OfCredential says that an anomaly is of a credential.
const OfCredential = "credential"

// Anomaly is a rate that is not usual: package internal/anomaly says when it is not.
type Anomaly struct {
	// ID grows from one to the next; At is when it was noted, by the clock of the store. Both are the store's.
	ID string
	At time.Time
	// Kind is what is not usual, one of AnomalyKinds. Of is whose rate it is, deployment, tenant, queue or
	// credential, and Name which, "" of the deployment; that of a credential is as the server's log has it.
	Kind, Of, Name string
	// Minute is the one at which it was found, Rate what was counted in it.
	Minute time.Time
	Rate   float64
	// Usual is what is, Deviation how far from that is usual, Score how many deviations Rate is away. Of a scope_scan Usual is the bound, and
	// both others are 0.
	Usual, Deviation, Score float64
}

// DayUsage is what one tenant used in one queue in a day. It is a plain value.
type DayUsage struct {
	// Day is when it began, at midnight UTC.
	Day           time.Time
	Tenant, Queue string
	Used
}

// Used is what was used, whole numbers of jobs and of tokens.
type Used struct {
	// Jobs are those that entered, redriven ones again; Calls are reservations without a job.
	Jobs, Calls int64
	// Reserved is what they reserved. Refunded is what they turned out not to have needed of that, and Added what they have cost beyond it.
	Reserved, Refunded, Added admission.Tokens
}

// Committed is what they cost: what was told, and what was reserved where nothing was told, or not yet.
func (u *Used) Committed() admission.Tokens { return u.Reserved - u.Refunded + u.Added }

// Add adds another one's.
func (u *Used) Add(other *Used) {
	u.Jobs, u.Calls = u.Jobs+other.Jobs, u.Calls+other.Calls
	u.Reserved, u.Refunded, u.Added = u.Reserved+other.Reserved, u.Refunded+other.Refunded, u.Added+other.Added
}

// UsageQuery asks for the usage of a day.
type UsageQuery struct {
	// Day is any time of it.
	Day time.Time
	// Tenant and Queue narrow it; empty is all. A queue that is counted among the rest is not found.
	Tenant, Queue string
}

// DayOf returns the day of a time, counted from 1970 in UTC.
func DayOf(at time.Time) int64 { return int64(math.Floor(float64(at.Unix()) / (24 * 60 * 60))) }

// CompareUsage orders usage by day, tenant and queue.
func CompareUsage(a, b *DayUsage) int {
	return cmp.Or(a.Day.Compare(b.Day), strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Queue, b.Queue))
}
