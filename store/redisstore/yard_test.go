package redisstore

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

// yard is a store of a test's own in which jobs are brought into each place the way that services do it.
type yard struct {
	tb     testing.TB
	store  *Partition
	client *redis.Client
	// tokens are the leases of what was read, by id.
	tokens map[string]string
}

func newYard(tb testing.TB) *yard {
	tb.Helper()
	client := redistest.Shared(tb).Client(tb)
	s, err := openOnly(tb.Context(), client, Config{Prefix: redistest.Prefix(tb)})
	check(tb, err)
	return &yard{tb: tb, store: s, client: client, tokens: map[string]string{}}
}

// ahead returns where a test begins, in microseconds, that has a clock of its own: Redis drops buckets that are full by its own
// clock, which must not overtake that one on a machine that halts.
func ahead() int64 { return time.Now().Add(time.Hour).UnixMicro() }

var yardPool = store.Pool{Queues: []store.QueueWeight{{Queue: "mail", Weight: 1}}}

func mail(tenant, id string) admission.Job {
	j := admission.NewJob(tenant, "mail", "welcome", []byte("hello"))
	j.ID = id
	return j
}

func (y *yard) admit(jobs ...admission.Job) {
	y.tb.Helper()
	y.admitAt(0, jobs...)
}

// admitAt admits under a version of the policy.
func (y *yard) admitAt(version int64, jobs ...admission.Job) {
	y.tb.Helper()
	limits := &[admission.Levels]admission.Limit{}
	for len(jobs) > 0 {
		n := min(len(jobs), store.MaxBatchJobs)
		candidates := make([]store.Candidate, n)
		for i := range candidates {
			candidates[i] = store.Candidate{Job: &jobs[i], Class: 1, Limits: limits}
		}
		verdicts, err := y.store.Admit(y.tb.Context(), version, candidates)
		check(y.tb, err)
		for _, v := range verdicts {
			check(y.tb, v.Err())
		}
		jobs = jobs[n:]
	}
}

func (y *yard) register(slots int) {
	y.tb.Helper()
	_, err := y.store.Register(y.tb.Context(), "w1", yardPool, slots, time.Minute)
	check(y.tb, err)
}

func (y *yard) read(n int) {
	y.tb.Helper()
	leases, err := y.store.Read(y.tb.Context(), "w1", yardPool.ID(), n, -1, false)
	check(y.tb, err)
	if len(leases) != n {
		y.tb.Fatalf("%d leases, want %d", len(leases), n)
	}
	for _, l := range leases {
		y.tokens[l.Job.ID] = l.Token
	}
}

func (y *yard) finish(id string, f store.Finish) {
	y.tb.Helper()
	f.Token, f.Key = y.tokens[id], admission.Key{Tenant: "acme", ID: id}
	ends, _, err := y.store.Finish(y.tb.Context(), yardPool.ID(), "w1", []store.Finish{f})
	check(y.tb, err)
	if ends[0] == store.EndedLost {
		y.tb.Fatalf("lease of %s is lost", id)
	}
}

// kill makes a dead letter of each job of the tenant acme: a worker reads it and gives it up.
func (y *yard) kill(ids ...string) {
	y.tb.Helper()
	y.register(len(ids))
	for _, id := range ids {
		y.admit(mail("acme", id))
	}
	y.read(len(ids))
	for _, id := range ids {
		y.finish(id, store.Finish{Outcome: store.Kill, Reason: "discarded", Text: "bad | address", Ran: 3 * time.Millisecond})
	}
}

func (y *yard) look(id string) store.Sighting {
	y.tb.Helper()
	sight, err := y.store.Look(y.tb.Context(), admission.Key{Tenant: "acme", ID: id})
	check(y.tb, err)
	return sight
}

// promoteAll promotes until nothing more is to be done at once, and returns by how many moves.
func (y *yard) promoteAll() (moves int) {
	y.tb.Helper()
	for range 1000 {
		p, err := y.store.Promote(y.tb.Context(), "s", time.Second)
		check(y.tb, err)
		moves += p.Moved
		if !p.More {
			return moves
		}
	}
	y.tb.Fatal("promote has ever more to do")
	return moves
}
