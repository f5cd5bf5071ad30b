package store

import (
	"context"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
)

// Partition is what one partition of a deployment does: the jobs of its tenants and all that decides on them. Each method is one
// decision, whole or not at all, and may be called by several goroutines. It keeps nothing of what it is given: candidates, questions and ends
// are used again. It is either in Redis (package redisstore) or in memory.
type Partition interface {
	Common

	// Admit decides on up to MaxBatchJobs jobs in one round trip and returns a verdict for each, in order. version is that of the policy which
	// the limits come from; where another is in force nothing is done and the error is ErrStale. With an error InDoubt tells whether the jobs
	// may have entered: sending the same ids again is safe within the dedup window.
	Admit(ctx context.Context, version int64, jobs []Candidate) ([]admission.Verdict, error)
	Work
	Timers
	FleetBreakers
	Following

	// Grant makes one call for the callers of a limiter. Where another version is in force nothing is done and the error is ErrStale. After an
	// error InDoubt tokens may be gone. A store that is full is headgate.ErrOutOfMemory.
	Grant(ctx context.Context, g *Grant) (Granted, error)
}

// Deployment is all partitions as one: what is about one tenant goes to the tenant's partition, what is about all to all. What workers,
// schedulers, producers and limiters do in one partition is asked of that one (Partitions).
type Deployment interface {
	Common

	// Partitions returns each partition, in order.
	Partitions() []Partition
	// PartitionOf returns the index in Partitions of what has a name: a tenant's jobs, or a downstream.
	PartitionOf(name string) int
	// Each calls do for all partitions side by side and joins the errors.
	Each(do func(i int, part Partition) error) error

	// Shares returns how each bound is divided: the global limit first, whether there is one or not, then the gates by name. It is nil
	// where there is but one partition.
	Shares(ctx context.Context) ([]Share, error)
	// GlobalShares returns what each partition has of so many tokens that the global limit brings, nil where there is but one.
	GlobalShares(ctx context.Context, tokens admission.Tokens) ([]float64, error)
	// NewBalancer returns a Balancer of the deployment, nil where that has one partition. It sends nothing yet.
	NewBalancer() Balancer
	// Adapt is Partition.Adapt in all partitions, the first of which decides.
	Adapt(ctx context.Context, to Adapt) (number int64, err error)
	// Press is Partition.Press in all partitions, the first of which decides.
	Press(ctx context.Context, to Press) (number int64, err error)
	// NoteLoad is Partition.NoteLoad in the first partition.
	NoteLoad(ctx context.Context, to LoadNote) error
	// NoteRates is Partition.NoteRates in the first partition.
	NoteRates(ctx context.Context, to RateNote) error
	// NoteTrigger is Partition.NoteTrigger in the first partition.
	NoteTrigger(ctx context.Context, to TriggerNote) error
	// Close ends the connections.
	Close() error
}

// Common is what both a partition and a deployment do.
type Common interface {
	Operations
	Buckets
	BreakerStates
	Gates
	Policies
	Looking
	Semaphores

	// LeaseRight asks for something that so many callers may do at a time over the whole deployment, for as long as lease. It ends with
	// ReturnRight, or by itself. The same token again renews it.
	LeaseRight(ctx context.Context, right, token string, limit int, lease time.Duration) (bool, error)
	ReturnRight(ctx context.Context, right, token string) error

	// ReadTimeout returns how long a call waits for an answer, 0 where that is not known.
	ReadTimeout() time.Duration
	// Connections returns how many connections there are to the store.
	Connections() int
}

// Operations is what is done to single jobs from outside.
type Operations interface {
	// Held returns the lease of a job that a worker of a pool holds, for a caller that remembers nothing but its names; a payload that is Large
	// is left out. The error matches headgate.ErrLeaseLost where the worker does not hold that job by that token.
	Held(ctx context.Context, pool, worker, token string, key admission.Key) (Lease, error)
	// Payload returns a job's payload, also a large one. A job that does not live is headgate.ErrUnknownJob.
	Payload(ctx context.Context, key admission.Key) ([]byte, error)
	// Result returns what a completed job left; headgate.ErrUnknownJob where that is not kept.
	Result(ctx context.Context, key admission.Key) ([]byte, error)

	// Cancel ends a job wherever it waits, or marks one that runs, which its worker then ends (running). more says that work is left for Promote. The error
	// matches headgate.ErrUnknownJob, headgate.ErrEnded, or ErrUnplaced.
	Cancel(ctx context.Context, key admission.Key, by Intervention) (running, more bool, err error)
	Purge(ctx context.Context, keys []admission.Key, by Intervention) (purged []bool, err error)
	PurgeQueue(ctx context.Context, queue, cursor string, by Intervention) (PurgedPage, error)
	ClearTenant(ctx context.Context, tenant, queue string, by Intervention) (cancelled int, more bool, err error)
}

// Work is what a worker asks of a partition whose jobs it runs.
type Work interface {
	Register(ctx context.Context, worker string, pool Pool, slots int, lease time.Duration) (more bool, err error)
	// Heartbeat extends the lease of a worker. load is what it tells of itself, "" for nothing; where Beat.Load does not ask for it, it is
	// not kept.
	Heartbeat(ctx context.Context, worker string, lease time.Duration, load string) (Beat, error)
	Reclaim(ctx context.Context, worker string) (more bool, err error)
	Registration(ctx context.Context, pool, worker string) (Registration, error)
	Demand(ctx context.Context, pool Pool) (Demand, error)
	Read(ctx context.Context, worker, pool string, count int, block time.Duration, history bool) ([]Lease, error)
	Pending(ctx context.Context, worker, pool string, count int, since time.Duration) ([]string, error)
	Started(ctx context.Context, pool, worker, token string, key admission.Key) error
	// Finish ends held jobs. Where one is Spent by limits of another policy than the one in force nothing is done and the error is ErrStale.
	Finish(ctx context.Context, pool, worker string, jobs []Finish) (ends []Ended, more bool, err error)
}

// Timers is what a scheduler asks of a partition: to do what time alone makes due.
type Timers interface {
	// Promote runs what is due, up to 64 moves. One owner at a time holds the timer lease. PromoteAfter is Promote for one who can tell a step
	// of the store's clock from silence.
	Promote(ctx context.Context, owner string, timerLease time.Duration) (Promotion, error)
	PromoteAfter(ctx context.Context, leap Leap, owner string, timerLease time.Duration) (Promotion, error)
	WaitWake(ctx context.Context, last string, wait time.Duration) (position string, err error)
	TimerLease(ctx context.Context) (owner string, end time.Time, err error)
	Alive(ctx context.Context, scheduler string, life time.Duration) error
	// Adapt moves a limit that moves by itself, and returns a number that is higher with each change of it. What an operator froze, or set
	// otherwise, stays, and the number is 0. It can be sent again.
	Adapt(ctx context.Context, to Adapt) (number int64, err error)
	// Press notes how much a queue is pressed, and returns a number that is higher each time. It can be sent again.
	Press(ctx context.Context, to Press) (number int64, err error)
	// NoteLoad keeps how busy services are, a point of their history. It can be sent again.
	NoteLoad(ctx context.Context, to LoadNote) error
	// NoteRates keeps what was decided of queues, a point of their history. It can be sent again.
	NoteRates(ctx context.Context, to RateNote) error
	// NoteTrigger notes that a trigger acts, or does no more. It can be sent again.
	NoteTrigger(ctx context.Context, to TriggerNote) error
	// NewMover returns a Mover of the partition, nil where it has no second Redis. It sends nothing yet.
	NewMover(owner string) Mover
	// SpillState says what is known of spilled jobs whose bodies are in the second Redis; it is zero where none ever was.
	SpillState(ctx context.Context) (SpillState, error)
	// LastTick and NoteTick keep when a periodic job was enqueued last.
	LastTick(ctx context.Context, name string, first time.Time) (time.Time, error)
	NoteTick(ctx context.Context, name string, tick time.Time) error
}

// Following is what somebody who tells others of dead letters and of breakers asks of a partition.
type Following interface {
	Deaths(ctx context.Context, from time.Time, count int) ([]Death, error)
	DeadLetters(ctx context.Context, deaths []Death) ([]DeadLetter, error)
	Followed(ctx context.Context, follower string) (Death, error)
	NoteFollowed(ctx context.Context, follower string, last Death) error

	NewEventReader() EventReader
	BreakerEvents(ctx context.Context, after string, wait time.Duration) (events []BreakerEvent, position string, err error)
	EventsFollowed(ctx context.Context, follower string) (position string, err error)
	NoteEventsFollowed(ctx context.Context, follower, position string) error

	// AuditAfter returns up to count entries of the audit after a position, "" for the begin; those of the policy are in each partition.
	// TransitionsAfter is the same of breakers.
	AuditAfter(ctx context.Context, after string, count int) (Stretch[AuditRecord], error)
	TransitionsAfter(ctx context.Context, after string, count int) (Stretch[BreakerEvent], error)
}

// Buckets is token buckets without jobs, and what is counted of their decisions.
type Buckets interface {
	Check(ctx context.Context, version int64, peek bool, questions []Question) (granted bool, answers []Answer, err error)
	// Take asks one question as Check does, and with it those of dimensions that are beside it, all or none: of one that is refused the verdict is the
	// Worst. Where tokens are granted, the receipt is for Refund and its like.
	Take(ctx context.Context, version int64, question Question, beside ...Question) (admission.Verdict, Taken, error)
	Refund(ctx context.Context, id string, receipt Taken) (Refund, error)
	// Commit is Refund for work that began, and has cost actual tokens, 0 to admission.MaxActualCost, whatever was taken for it.
	Commit(ctx context.Context, id string, receipt Taken, actual admission.Tokens) (Refund, error)
	// CommitPart tells of work that goes on what it has used so far, in all, 0 to admission.MaxActualCost: what that is beyond what was taken and told
	// before is taken, up to one burst below zero, and nothing goes back. Less than was told before, or the same again, takes nothing. Refund and
	// Commit may come until the receipt's Expiry after it, and count for no less than it told. The answer is RefundedBefore after one of these.
	CommitPart(ctx context.Context, id string, receipt Taken, used admission.Tokens) (Refund, error)
	// Reserve is Take under an id, which is the question's tenant's own, with the receipt's ExpireAfter: the same again, within Taken.Kept, is answered as it was and takes
	// nothing, so a call whose answer was lost is sent again. Other tokens under the same id are ErrReservationOther. The answer has what the
	// taking left, Left, and not how much a queue is pressed; the reservation is empty where it is refused. Those beside it are of dimensions: all have
	// the tokens or none, and they belong to what the id has taken.
	Reserve(ctx context.Context, version int64, id string, expireAfter time.Duration, question Question, beside ...Question) (Answer, Reservation, error)
	// Reserved returns what an id has taken, of no tenant for ""; ErrNoReservation where nothing is known of it.
	Reserved(ctx context.Context, tenant, id string) (Reservation, error)
	ResetBucket(ctx context.Context, tenant, queue string, class admission.Priority, by Intervention) (was bool, err error)
	BucketsTTL(ctx context.Context, tenant string) (time.Duration, error)
	// ScaleLimits has limits be a part of what the policy says for a time, MinScaleTime to MaxScaleTime, from the next call on, and the policy's again
	// when it is over, by the clock of Redis. The same target again takes the place of what was. A duration of zero ends it, whatever the part
	// is; was is false where there was nothing to end. ErrTooManyScales is where MaxScales others are in force.
	ScaleLimits(ctx context.Context, target GateName, part float64, duration time.Duration, by Intervention) (was bool, err error)
	// Scales returns what is in force of them, by target.
	Scales(ctx context.Context) ([]Scale, error)

	// PutRecord changes what a tenant has of its own beside the policy, from the next call on, and returns its version. An edit that is sent again
	// finds that there is nothing to change. The errors are those that RecordEdit names.
	PutRecord(ctx context.Context, e RecordEdit) (version int64, err error)
	// Records returns those of tenants, in order; of Version policy.NoRecord for one that has none. RecordsPage returns some of all, and
	// CountRecords how many there are.
	Records(ctx context.Context, tenants ...string) ([]TenantRecord, error)
	RecordsPage(ctx context.Context, q RecordsQuery) (RecordsPage, error)
	CountRecords(ctx context.Context) (n int64, err error)
	// RecordTiers returns how many records name each tier; those that name none are not counted.
	RecordTiers(ctx context.Context) (map[string]int64, error)

	Shadow(ctx context.Context, version int64, id string, questions []Question) error
	ShadowCounts(ctx context.Context) (ShadowCounts, error)

	// Usage returns what was used in a day, by tenant and queue, sorted by CompareUsage; none for a day that is kept no more.
	Usage(ctx context.Context, q UsageQuery) ([]DayUsage, error)
	Count(ctx context.Context, counts []ScopeCount) (done int, err error)
	Minutes(ctx context.Context, scope admission.Scope) ([]Minute, error)
	LastHour(ctx context.Context, budget time.Duration) ([]Recorded, error)
	LastMinutes(ctx context.Context, minutes int, budget time.Duration) ([]Recorded, error)
	CountedScopes(ctx context.Context) (n int64, err error)
	// Rates returns what was decided in the minute that has a time in it, empty for one that is not kept. It is read in portions.
	Rates(ctx context.Context, minute time.Time) (Rates, error)
	// Nearby returns what was decided in the minute that has a time in it of values of dimensions that used most of their limits, and of the buckets that values share:
	// up to CountedValues in a partition, where the policy says when a limit is nearly used. A command.
	Nearby(ctx context.Context, minute time.Time) (map[admission.Scope]Minute, error)
	// RateHistory returns what was decided of queues in the days that are kept, unknown where the policy has nobody keep it: a command a day.
	RateHistory(ctx context.Context, queues ...string) (RateHistory, error)
	// Distincts returns how many different names a queue had, of all queues for "", where the policy has anomalies.
	Distincts(ctx context.Context, queue string) (map[string]Distinct, error)
	// NoteAnomalies keeps up to MaxAnomalyNotes anomalies, without those that were noted within AnomalyQuiet, and returns how many it kept. It
	// can be sent again.
	NoteAnomalies(ctx context.Context, anomalies []Anomaly) (kept int, err error)
	// AnomaliesAfter returns up to count anomalies after a position, "" for the begin; MaxAnomalies are kept.
	AnomaliesAfter(ctx context.Context, after string, count int) (Stretch[Anomaly], error)
}

// FleetBreakers is how calls of downstreams by a fleet change its breakers.
type FleetBreakers interface {
	ReportOutcomes(ctx context.Context, from Reporter, reports []Outcomes) (words []BreakerWord, more bool, err error)
	BeginProbe(ctx context.Context, downstream, call string) (probe bool, word BreakerWord, more bool, err error)
	EndProbe(ctx context.Context, downstream, call string) (word BreakerWord, more bool, err error)
}

// BreakerStates is the circuit breakers of a fleet as operators see and force them.
type BreakerStates interface {
	ForceBreaker(ctx context.Context, downstream string, to breaker.State, duration time.Duration, by Intervention) (more bool, err error)
	ResetBreaker(ctx context.Context, downstream string, by Intervention) (more bool, err error)
	Breaker(ctx context.Context, downstream string) (BreakerState, error)
	Breakers(ctx context.Context) ([]BreakerState, error)
}

// Gates is what operators stop, and what stands.
type Gates interface {
	SetGate(ctx context.Context, g Gate) (held int, more bool, err error)
	Pause(ctx context.Context, name GateName, duration time.Duration, by Intervention) (held int, err error)
	// PauseAtLeast is Pause but for what is paused already, and ends no more than PauseSlack sooner: did is false there, and nothing has changed.
	PauseAtLeast(ctx context.Context, name GateName, duration time.Duration, by Intervention) (did bool, err error)
	Unpause(ctx context.Context, name GateName, by Intervention) (was bool, err error)
	Suspend(ctx context.Context, name GateName, duration time.Duration, by Intervention) error
	Resume(ctx context.Context, name GateName, by Intervention) (was bool, err error)
	Drain(ctx context.Context, queue string, duration time.Duration, by Intervention) (until time.Time, err error)
	Remaining(ctx context.Context, queue string) (Remaining, error)
	Gates(ctx context.Context) ([]GateState, error)
	Suspensions(ctx context.Context) ([]Suspension, error)
	Holds(ctx context.Context) ([]Hold, error)
	// Adaptations returns the limits that move by themselves, by their gates; Freeze keeps one from moving, or lets it go on. A gate without
	// one is ErrNotAdaptive.
	Adaptations(ctx context.Context) ([]Adaptation, error)
	Freeze(ctx context.Context, gate GateName, frozen bool, by Intervention) (was bool, err error)
	// Override puts a limit in force instead of that of its loop, for MinOverride to MaxOverride: between Adaptation.Least and Most, else nothing is
	// done. Then the one of before comes back by itself, with the loop's next look. A duration of zero ends it. The number is that of Adapt, 0
	// where there was nothing to end. ErrNotAdaptive is of what does not move.
	Override(ctx context.Context, gate GateName, limit int, duration time.Duration, by Intervention) (number int64, err error)
}

// Policies is the versions of the policy and who did what.
type Policies interface {
	PutPolicy(ctx context.Context, u PolicyUpdate) error
	CheckPolicy(ctx context.Context, u PolicyUpdate) error
	// SpreadPolicy finishes an edit that is stored in steps and whose process has died.
	SpreadPolicy(ctx context.Context) error
	Policy(ctx context.Context) ([]byte, error)
	PolicyInForce(ctx context.Context) (int64, error)
	NewPolicyReader() PolicyReader
	PolicyVersions(ctx context.Context) ([]AuditEntry, error)
	PolicyVersion(ctx context.Context, version int64) ([]byte, error)
	Audit(ctx context.Context, q AuditQuery) (AuditPage, error)
}

// Looking is what people and dashboards see. What changes while it is read may be missing or told twice.
type Looking interface {
	Look(ctx context.Context, key admission.Key) (Sighting, error)
	List(ctx context.Context, q ListQuery) (ListPage, error)
	Letters(ctx context.Context, keys []admission.Key) ([]Letter, error)
	Queues(ctx context.Context) ([]QueueState, error)
	Queue(ctx context.Context, name string) (QueueState, error)
	// Loads returns what is seen of queues by which it is measured how much they are pressed, in the order of their names.
	Loads(ctx context.Context, queues []string) ([]QueueLoad, error)
	// QueueNames returns all queues by name.
	QueueNames(ctx context.Context) ([]string, error)
	// WorkerLoads returns what registered workers told of themselves within WorkerLoadLife, nil where the policy has nobody tell.
	WorkerLoads(ctx context.Context) ([]WorkerLoad, error)
	// WaitingFor returns how many jobs wait in lanes for each of these services of downstreams.
	WaitingFor(ctx context.Context, services []string) ([]int64, error)
	// LoadHistory returns the points of a service since a time, the earliest first, at most LoadPoints.
	LoadHistory(ctx context.Context, service string, since time.Time) ([]LoadPoint, error)
	// Triggers returns those that act by name, and those whose scheduler has died.
	Triggers(ctx context.Context) ([]TriggerState, error)
	Peek(ctx context.Context, queue string, n int) (QueueState, []PeekedClass, error)
	WaitingTenants(ctx context.Context, queue string, n int) (top []TenantWaiting, partial bool, err error)
	Backlogs(ctx context.Context, tenant string) ([]Backlog, error)
	// Depths returns how many jobs of a tenant count in the bounds of its depth in queues, over all its queues for "", in their order.
	Depths(ctx context.Context, tenant string, queues []string) ([]Depth, error)
	Foresee(ctx context.Context, pool string) (time.Duration, error)
	Workers(ctx context.Context) ([]WorkerState, error)
	Schedulers(ctx context.Context) ([]SchedulerState, error)
	Census(ctx context.Context) (c Census, err error)
	Counters(ctx context.Context) (c Counters, err error)
	Vitals(ctx context.Context) (Vitals, error)
	// Memory returns what of it Redis uses and may use, as Vitals: one command.
	Memory(ctx context.Context) (used, most int64, err error)
	// CheckLayout returns nil while the deployment is laid out as it was when it was opened, and else what every script is refused with: an
	// error that matches headgate.ErrUnavailable while headgate migrate is at work, and one that IsOutdated after it. A command; reads
	// beside it go on, of what is no longer there.
	CheckLayout(ctx context.Context) error
	Time(ctx context.Context) (time.Time, error)
}

// PolicyReader tells one goroutine of new versions of the policy.
type PolicyReader interface {
	// Next waits until another version than known is in force, and returns it. When ctx ends meanwhile it returns known and no error.
	Next(ctx context.Context, known int64) (int64, error)
	Close() error
}

// EventReader reads transitions of breakers for one goroutine.
type EventReader interface {
	// Read is Partition.BreakerEvents; the end of ctx ends its wait.
	Read(ctx context.Context, after string, wait time.Duration) (events []BreakerEvent, position string, err error)
	Close() error
}

// Balancer moves shares of what all partitions divide among them, caps of queues and downstreams and the rates of downstreams and of the
// global limit, to where they are used. One goroutine is to call it.
type Balancer interface {
	// Step balances shares once: it looks for bounds of which a partition wants more than it has, or has other than the even share, and moves
	// what is to be moved. With nothing to do it is one read a partition. An error says which partitions could not be asked.
	Step(ctx context.Context) error
	// Neglected reports whether shares are to be balanced in a partition and nobody else has looked at them there for so long.
	Neglected(ctx context.Context, partition int, long time.Duration) bool
}

// Single returns the deployment of one partition. Its Close is that of closing.
func Single(part Partition, closing io.Closer) Deployment {
	return &single{Partition: part, closing: closing}
}

type single struct {
	Partition
	closing io.Closer
}

func (s *single) Partitions() []Partition { return []Partition{s.Partition} }

func (s *single) PartitionOf(string) int { return 0 }

func (s *single) Each(do func(i int, part Partition) error) error { return do(0, s.Partition) }

func (s *single) Shares(context.Context) ([]Share, error) { return nil, nil }

func (s *single) NewBalancer() Balancer { return nil }

func (s *single) Close() error { return s.closing.Close() }

func (s *single) GlobalShares(context.Context, admission.Tokens) ([]float64, error) { return nil, nil }

// Share is how the partitions divide a bound among them.
type Share struct {
	// Bound is the gate of a queue's or a downstream's cap or of a downstream's rate, or "global" for the rate of the global limit.
	Bound GateName
	// Parts is the fraction of the bound that each partition has, in their order, 0 to 1. They add up to 1 at most.
	Parts []float64
}

// SharesOf returns what each of several partitions has of the tokens of the global limit, nil where there is but one. Of windows all
// have the same.
func SharesOf(ctx context.Context, d Deployment, global *admission.Limit) ([]float64, error) {
	shares, err := d.GlobalShares(ctx, global.Tokens)
	if !global.Window.IsZero() {
		for i := range shares {
			shares[i] = float64(global.Tokens / admission.Tokens(len(shares)))
		}
	}
	return shares, err
}

// SharesWords tells for people what the partitions have of something that all divide among them; nothing where shares is nil.
func SharesWords(shares []float64) string {
	if shares == nil {
		return ""
	}
	words := make([]string, len(shares))
	for i, share := range shares {
		words[i] = strconv.FormatFloat(share, 'g', 4, 64)
	}
	return "; the partitions have " + strings.Join(words, ", ") + " of that"
}

// GlobalBound names the rate of the global limit among what partitions divide; all else is named by its gate.
const GlobalBound = "global"

// MaxPartitions is the largest number of partitions of a deployment.
const MaxPartitions = 256
