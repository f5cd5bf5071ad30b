package store

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/headgate/headgate/admission"
)

// Bounds of one admit call; one larger job may go alone.
const (
	// MaxBatchJobs is the largest number of jobs of one call.
	MaxBatchJobs = 64
	// MaxBatchBytes is the largest sum of payloads of one call.
	MaxBatchBytes = 256 << 10
)

// Candidate is one job that asks to enter.
type Candidate struct {
	// Job is validated and has an ID.
	Job *admission.Job
	// Class is the index of Job.Priority in the classes of its queue.
	Class int
	// Limits apply to the job, by level. The global one must be the same for all of a call.
	Limits *[admission.Levels]admission.Limit
	// TypeLimit is that of jobs of its type, which it has beside Limits; nil for none.
	TypeLimit *admission.Limit
	// ShedFrom is the level of its queue from which on the job is refused for it, above all levels for never; zero says that the queue is
	// not measured. Tier is that of its tenant, for the refusal.
	ShedFrom admission.PressureLevel
	Tier     string
	// ShedOverFrom is the level from which on it is refused if its tenant is over its share in its queue and class: a job of it waits there, or
	// it has had more service than those that wait. At most ShedFrom; zero stands for that.
	ShedOverFrom admission.PressureLevel
	// Usage is of how many tenants a day usage is kept, by the policy; zero for none.
	Usage int
	// Record is that of a Question.
	Record int64
	// Doomed is how many percent of what the job may wait, by its deadline or its queue's, its predicted wait may be before it is
	// refused; zero for never.
	Doomed int
	// Redrive is the Seq of the dead letter which is to run again, zero for a new job. The payload is the one that is
	// stored. Once the letter was redriven its job has another Seq, and the verdict is a duplicate's.
	Redrive uint64
	// By says who redrives it and why, and Free that no limit checks or charges it, for the audit.
	By   Intervention
	Free bool
}

// Stored returns the job as a store keeps it: of one that runs again without limits it is noted that no bucket has its cost.
func (c *Candidate) Stored() *admission.Job {
	if !c.Free {
		return c.Job
	}
	j := *c.Job
	j.Headers = maps.Clone(j.Headers)
	if j.Headers == nil {
		j.Headers = make(map[string]string, 1)
	}
	j.Headers[admission.HeaderUncharged] = ""
	return &j
}

// ErrStale means that the limits of an Admit come from another version of the policy than the one in force.
var ErrStale = errors.New("policy is stale")

// LargePayload is the size in bytes above which a payload is kept apart from its job's record.
const LargePayload = 4 << 10

// EncodeID returns a UUID in canonical form as its 16 raw bytes and any other id as it is. The two cannot meet:
// byte 8 of an RFC 9562 UUID is above 0x7f, which no name holds.
func EncodeID(id string) string {
	if len(id) != 36 {
		return id
	}
	u, err := uuid.Parse(id)
	if err != nil || u.Variant() != uuid.RFC4122 || strings.ContainsAny(id, "ABCDEF") {
		return id
	}
	return string(u[:])
}

// DecodeID is the id that EncodeID wrote.
func DecodeID(raw string) string {
	if len(raw) != 16 || raw[8] < 0x80 {
		return raw
	}
	u, err := uuid.FromBytes([]byte(raw))
	if err != nil {
		return raw
	}
	return u.String()
}

// EncodeKey is a job's field in the jobs hash.
func EncodeKey(k admission.Key) string { return k.Tenant + ":" + EncodeID(k.ID) }

// DecodeKey is the key that EncodeKey wrote.
func DecodeKey(raw string) (admission.Key, error) {
	tenant, id, ok := strings.Cut(raw, ":")
	if !ok {
		return admission.Key{}, fmt.Errorf("job key %q holds no ':'", raw)
	}
	return admission.Key{Tenant: tenant, ID: DecodeID(id)}, nil
}

// Record is a job as the store holds it.
type Record struct {
	Job admission.Job
	// Class is the index of the job's class in its queue.
	Class int
	// Attempts is how many runs have failed; Lost how many deliveries ended with their worker's lease after Store.Started
	// had told of them. Suspect means that any delivery ended so, known to have begun or not.
	Attempts, Lost int
	Suspect        bool
	// Seq orders jobs by arrival; Arrival is the time of admission by Redis.
	Seq     uint64
	Arrival time.Time
	// Large means that the payload stands under a key of its own.
	Large bool
	// Away means that time-out, headers and payload of a spilled job are in the second Redis, and not here.
	Away bool
	// Timed means that the deadline is the longest wait of the job's queue, not the caller's.
	Timed bool
	// Plain means that the job owns nothing but its record.
	Plain bool
	// Uncharged means that the job runs again without limits: no bucket has its cost, so that there is nothing to true up.
	Uncharged bool
}

// ErrRecordGone is the Err of a Lease whose record somebody, or a lost slot of a cluster, has taken away.
var ErrRecordGone = errors.New("its record is gone")

// Outcome is what a worker makes of a job that it holds.
type Outcome string

// The outcomes.
const (
	// Complete ends the job.
	Complete Outcome = "complete"
	// Retry burns an attempt; the job comes back after Delay, or is a dead letter out of attempts.
	Retry Outcome = "retry"
	// Kill makes the job a dead letter for Reason.
	Kill Outcome = "dead"
	// Release hands the job back unharmed, after Delay or at once.
	Release Outcome = "release"
	// Expire ends the job because its deadline passed before it started.
	Expire Outcome = "expire"
)

// Finish says how one held job ends. That of Lease.Finish is cheaper than one made of the token and the key alone.
type Finish struct {
	Token   string
	Key     admission.Key
	Outcome Outcome
	// Delay is for Retry and Release.
	Delay time.Duration
	// Reason is for Kill, Text is what went wrong. At most 1 KiB of Text is kept.
	Reason string
	Text   string
	// Ran is how long the handler ran.
	Ran time.Duration
	// Result of a completed job is kept for KeepResult, if that is above zero.
	Result     []byte
	KeepResult time.Duration
	// Spent is what the job has cost, where its handler has told; nil leaves its reservation as it is. It counts with what ends the job:
	// one that comes back keeps its reservation.
	Spent *Spent

	// plain means that the job owns nothing but its record, and no unit of a breaker. The others are then the job's and the
	// lease's. Where there are caps, a job without its queue costs a reading of its record, and one that does not name them
	// as uncounted a look for its own.
	Plain                        bool
	Queue, Downstream, Uncounted string
}

// Spent is what a job has cost in truth. What it reserved beyond that goes back into the buckets on its way, and what it lacks is taken
// out of them, up to one burst below zero. The Finish must name the job's Queue.
type Spent struct {
	// Cost is 0 to admission.MaxActualCost tokens.
	Cost admission.Tokens
	// Class names the job's class, Limits are in force on its way by the policy of Version. The global one must be the same for all of a call.
	Class   admission.Priority
	Limits  *[admission.Levels]admission.Limit
	Version int64
	// TypeLimit is that of jobs of its type, nil for none.
	TypeLimit *TypeLimit
	// Usage and Record are those of the job's Candidate, by the policy of Version.
	Usage  int
	Record int64
}

// TypeLimit is a type of jobs, and the limit that its jobs have beside those of their levels.
type TypeLimit struct {
	Type  string
	Limit *admission.Limit
}

// TypeLimitOf returns nil where there is no limit.
func TypeLimitOf(jobType string, limit *admission.Limit) *TypeLimit {
	if limit == nil {
		return nil
	}
	return &TypeLimit{jobType, limit}
}

// Ends reports whether a job that came to this has left for good.
func (e Ended) Ends() bool { return e == EndedDone || e == EndedDead || e == EndedExpired }

// Ended is what became of a job after Finish.
type Ended string

// The ends.
const (
	EndedDone     Ended = "done"
	EndedRetried  Ended = "retried"
	EndedDead     Ended = "dead"
	EndedExpired  Ended = "expired"
	EndedReleased Ended = "released"
	// EndedCancelled means that the job had been cancelled, and is gone whatever its handler says.
	EndedCancelled Ended = "cancelled"
	// EndedLost means that the lease was no longer the caller's: nothing was changed.
	EndedLost Ended = "lost"
)

// The actions of holds and of what ends jobs, as the audit names them.
const (
	AuditPause      = "pause"
	AuditUnpause    = "unpause"
	AuditGate       = "gate"
	AuditSuspend    = "suspend"
	AuditResume     = "resume"
	AuditDrain      = "drain"
	AuditCancel     = "cancel"
	AuditPurgeQueue = "purge_queue"
	AuditPurge      = "purge"
	AuditRedrive    = "redrive"
	// AuditRedriveFree is a redrive that no limit checked or charged.
	AuditRedriveFree = "redrive_without_limits"
	AuditResetBucket = "reset_bucket"
)

// DrainReason is what producers are told while a queue is drained.
const DrainReason = "the queue is being drained"

// PurgedPage is what PurgeQueue did.
type PurgedPage struct {
	// Cancelled jobs have left, Cancelling ones run until their workers hear of it.
	Cancelled, Cancelling int
	// Cursor goes on; empty at the end.
	Cursor string
}

// ErrBeside means that the worker runs a suspect (Record.Suspect) beside which another is not to run, so that its next death tells which
// of them it was.
var ErrBeside = errors.New("not beside the suspect that runs")

// DoomedVerdict is the refusal of a job that would wait for so many microseconds, and by so many more than it may: about as long as the queue
// takes to come to where the job would enter, if no other came.
func DoomedVerdict(id string, wait, excess int64) admission.Verdict {
	return admission.Verdict{
		ID: id, Reason: admission.ReasonDoomed, EstimatedWait: time.Duration(wait) * time.Microsecond,
		RetryAfter: min(max(time.Duration(excess)*time.Microsecond, time.Millisecond), DoomedRetry),
	}
}

// DoomedRetry is the longest that a refusal for a wait that is too long tells to wait: by then the pace may be another.
const DoomedRetry = time.Minute

// How long a refusal tells to wait where no bucket and no timer says so: for room, and for a unique key that goes with its time.
const (
	RefusedRetry = time.Second
	UniquesRetry = time.Minute
)

// keptWords say of a refusal that it is not the global limit's, but that of those from whom a part of it is kept.
const keptWords = "what others may take beside the classes of global_reserved"

// shareWords say of a refusal that it is not the tenant's limit's, but that of what of it may go beside the limits of queue and class.
const shareWords = "what may go beside the limits of queue and class by bypass"

// ShareDetail is the detail of such a refusal that had another one, or none.
func ShareDetail(detail string) string {
	if detail == "" {
		return shareWords
	}
	return shareWords + ", " + detail
}

// KeptDetail is the detail of such a refusal that had another one, or none.
func KeptDetail(detail string) string {
	if detail == "" {
		return keptWords
	}
	return keptWords + ", " + detail
}

// IsKept reports whether a verdict has a KeptDetail.
func IsKept(v *admission.Verdict) bool { return strings.HasPrefix(v.Detail, keptWords) }
