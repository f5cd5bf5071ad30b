package store

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // a short name, not a secret
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/headgate/headgate/admission"
)

// QueueWeight is one queue that a pool serves, with its share among them.
type QueueWeight struct {
	Queue  string
	Weight int
}

// Pool is a set of workers that registered the same queues in the same order with the same weights.
type Pool struct {
	// Queues are served in proportion to their weights, or in strict order.
	Queues []QueueWeight
	Strict bool
}

// ID names the pool after what it serves.
func (p Pool) ID() string {
	sum := sha1.Sum([]byte(p.Mode() + p.Text())) //nolint:gosec // as above
	return hex.EncodeToString(sum[:6])
}

// Mode is "s" for a strict pool, "w" for one that goes by weights.
func (p Pool) Mode() string {
	if p.Strict {
		return "s"
	}
	return "w"
}

// Text is the queues and their weights, as scripts read them.
func (p Pool) Text() string {
	parts := make([]string, len(p.Queues))
	for i, q := range p.Queues {
		parts[i] = q.Queue + "=" + strconv.Itoa(cmp.Or(q.Weight, 1))
	}
	return strings.Join(parts, ",")
}

// Beat is the answer to a heartbeat.
type Beat struct {
	// Promote means that no scheduler holds the timer lease.
	Promote bool
	// Cancelled are the jobs that were cancelled while the worker holds them; each is told until it is finished.
	Cancelled []Cancellation
	// Load is how often the policy in force asks the worker to tell how busy it is; zero is never.
	Load time.Duration
}

// Cancellation is a running job that was cancelled.
type Cancellation struct {
	Token, Reason string
}

// Registration is what a worker has in one partition.
type Registration struct {
	Pool Pool
	// Slots is how many it has registered, Held how many jobs it holds there.
	Slots, Held int
	// Room is how many jobs more the pool's ready stream takes; below zero when slots were taken away from those in it.
	Room int
}

// SharingRight names the right to share out a worker's slots over partitions (Deployment.LeaseRight), which one caller has at a time. No
// downstream has a space in its name.
func SharingRight(worker string) string { return "slots of " + worker }

// Lease is a job that a worker holds until its own lease ends.
type Lease struct {
	// Token fences the job: it is the entry's id in the ready stream.
	Token string
	// Period is that of the breaker under whose gate the job was dispatched, as a probe or in a slow start; 0 for none.
	Period uint64
	Record
	// uncounted names the caps that there were at its dispatch, if the job counts against none of them; else it is empty.
	Uncounted string
	// Err says that the record, or its payload, cannot be read; Job then names the job at most. No retry mends that.
	Err error
}

// Finish says how the job ends, to be completed with what the outcome has besides. It knows of the job what makes the
// commonest ends cheap.
func (l *Lease) Finish(outcome Outcome) Finish {
	return Finish{
		Token: l.Token, Key: admission.Key{Tenant: l.Job.Tenant, ID: l.Job.ID}, Outcome: outcome,
		Plain: l.Plain, Queue: l.Job.Queue, Downstream: l.Job.Downstream, Uncounted: l.Uncounted,
	}
}

// ErrPayloadGone is why a job cannot run whose record has no payload any more.
var ErrPayloadGone = errors.New("payload is gone")

// Demand is what is runnable for a pool in one partition.
type Demand struct {
	// Entries is how many jobs stand in the pool's ready stream, those in workers' hands included.
	Entries int
	// Queues are those of the pool, in order.
	Queues []QueueDemand
}

// QueueDemand is what is runnable in a queue, by class.
type QueueDemand []ClassDemand

// ClassDemand is what is runnable in a class.
type ClassDemand struct {
	// Weight is the class's in its queue's pattern.
	Weight int
	// Runnable is the sum of the weights of its runnable tenants, whatever the number of their jobs; that of many tenants with
	// weights of their own is an estimate. It is 0 while the queue is paused.
	Runnable float64
}

// Parts returns what each partition is to get of something that all of a queue's runnable jobs share, 1 in all, 0 where nothing
// is runnable anywhere: Σ over classes g/Σg · w/Σw, where g is the weight of a class in the queue's pattern, summed over those that are
// runnable anywhere, and w that of the tenants that are runnable in the partition, summed over all partitions below. The number
// of jobs plays no part: it would reward whoever floods. A partition of which nothing is known has a nil demand.
func Parts(demands []QueueDemand) []float64 {
	var pattern, runnable []float64 // of each class: its weight, and its tenants' over all partitions
	for _, d := range demands {
		for c, class := range d {
			if c == len(pattern) {
				pattern, runnable = append(pattern, float64(class.Weight)), append(runnable, 0)
			}
			runnable[c] += class.Runnable
		}
	}
	all := 0.0
	for c := range pattern {
		if runnable[c] > 0 {
			all += pattern[c]
		}
	}
	parts := make([]float64, len(demands))
	for p, d := range demands {
		for c, class := range d {
			if class.Runnable > 0 {
				parts[p] += pattern[c] / all * class.Runnable / runnable[c]
			}
		}
	}
	return parts
}

// MaxFinishText is how many bytes of the text of a Finish are kept.
const MaxFinishText = 1 << 10

// IsToken reports whether a text is the id of a stream's entry, two numbers of 64 bits: Redis refuses others.
func IsToken(token string) bool {
	at, n, _ := strings.Cut(token, "-")
	_, badAt := strconv.ParseUint(at, 10, 64)
	_, badN := strconv.ParseUint(n, 10, 64)
	return badAt == nil && badN == nil
}
