package account_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// bench is the Redis of all rows, which nobody else uses.
type bench struct {
	server *redistest.Server
	// aside is a client whose calls are not counted.
	aside *redis.Client
	// sites counts its partitions.
	sites int
}

func newBench(tb testing.TB) *bench {
	tb.Helper()
	server := redistest.Start(tb, redistest.Options{Args: []string{"--slowlog-log-slower-than", "0"}})
	return &bench{server: server, aside: server.Client(tb)}
}

// site is a partition in which one row is measured.
type site struct {
	*testing.T
	*bench
	wire     *wire
	store    store.Deployment
	producer *producer.Producer
	// jobs counts those that were made; held are leased.
	jobs int
	held []store.Lease
	// forgetful is where admit does not know how much memory there is left.
	forgetful bool
}

// Every tenant has limits at all four levels, none of which refuses. Rows that take another tenant for each call make at most
// mostCalls that are timed, twice.
const (
	tenants   = 192
	mostCalls = 80
)

var ample = admission.PerSecond(100_000_000)

func limits() policy.Policy {
	p := policy.Policy{
		Global: ample, Tiers: map[string]policy.Tier{policy.StandardTier: {Limit: ample}},
		QueueLimits: map[admission.Scope]admission.Limit{}, PriorityLimits: map[admission.Scope]admission.Limit{},
	}
	for i := range tenants {
		for _, class := range admission.DefaultClasses() {
			p.QueueLimits[admission.ScopeAt(admission.LevelQueue, tenantName(i), queue, "")] = ample
			p.PriorityLimits[admission.ScopeAt(admission.LevelPriority, tenantName(i), queue, class.Name)] = ample
		}
	}
	return p
}

const queue = "mail"

func tenantName(i int) string { return fmt.Sprintf("tenant-%03d", i%tenants) }

// newSite opens a partition where a window of ended ids has passed already.
func newSite(t *testing.T, b *bench) *site {
	t.Helper()
	s := &site{T: t, bench: b, wire: &wire{}}
	options := b.server.Options()
	options.Dialer = s.wire.dial
	client := redis.NewClient(options)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	var err error
	s.store, err = redisstore.Open(t.Context(), client, redisstore.Config{Prefix: fmt.Sprintf("h%02d", b.sites)}) // a byte longer than the default
	b.sites++
	s.check(err)
	s.producer, err = producer.New(s.store, producer.Config{Policy: new(limits()), Timeout: time.Minute, Uncounted: true})
	s.check(err)
	s.register(1)
	for _, rotated := range []int64{0, -1000000000} {
		redistest.SetState(t, s.aside, redisstore.Keys(s.store).State(), "rot", rotated)
		s.enqueue(s.job(0))
		s.empty()
	}
	return s
}

func (s *site) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

var pool = store.Pool{Queues: []store.QueueWeight{{Queue: queue, Weight: 1}}}

// worker is the one there is; its lease lasts as long as any test.
const worker = "worker-1"

func (s *site) register(slots int) {
	s.Helper()
	_, err := s.store.Partitions()[0].Register(s.Context(), worker, pool, slots, time.Hour)
	s.check(err)
}

var payload = []byte(strings.Repeat("x", 256))

// job returns a new one of the ith tenant, without a downstream. The classes are as frequent as they are served.
func (s *site) job(i int) admission.Job {
	j := admission.NewJob(tenantName(i), queue, "send", payload)
	j.ID = fmt.Sprintf("job-%06d", s.jobs)
	j.Priority = [...]admission.Priority{admission.High, admission.High, admission.High, admission.Medium, admission.Medium, admission.Low}[s.jobs%6]
	s.jobs++
	return j
}

// batch returns jobs of as many tenants.
func (s *site) batch() []admission.Job {
	jobs := make([]admission.Job, store.MaxBatchJobs)
	for i := range jobs {
		jobs[i] = s.job(s.jobs)
	}
	return jobs
}

func (s *site) enqueue(jobs ...admission.Job) {
	s.Helper()
	results, err := s.producer.EnqueueBatch(s.Context(), jobs)
	s.check(err)
	for _, r := range results {
		s.check(r.Err)
	}
}

func (s *site) read(count int) []store.Lease {
	s.Helper()
	leases, err := s.store.Partitions()[0].Read(s.Context(), worker, pool.ID(), count, -1, false)
	s.check(err)
	if len(leases) == 0 {
		s.Fatal("nothing is ready")
	}
	s.held = append(s.held, leases...)
	return leases
}

func completed(leases []store.Lease) []store.Finish {
	out := make([]store.Finish, len(leases))
	for i := range leases {
		out[i] = leases[i].Finish(store.Complete)
	}
	return out
}

// empty ends all that is held or ready.
func (s *site) empty() {
	s.Helper()
	for {
		leases, err := s.store.Partitions()[0].Read(s.Context(), worker, pool.ID(), store.MaxBatchJobs, -1, false)
		s.check(err)
		if leases = append(s.held, leases...); len(leases) == 0 {
			return
		}
		s.end(completed(leases), store.EndedDone)
	}
}

// end ends jobs, and fails unless this is what becomes of all.
func (s *site) end(jobs []store.Finish, want store.Ended) {
	s.Helper()
	got, _, err := s.store.Partitions()[0].Finish(s.Context(), pool.ID(), worker, jobs)
	s.check(err)
	s.held = nil
	for _, end := range got {
		if end != want {
			s.Fatalf("a job is %s, want %s", end, want)
		}
	}
}

func tierOf(limit admission.Limit) policy.Tier { return policy.Tier{Limit: limit} }

// noteMemory lets admit believe that it has just asked how much memory there is left, which it does ten times a second.
func (s *site) noteMemory() {
	s.Helper()
	now, err := s.store.Time(s.Context())
	s.check(err)
	if s.forgetful {
		now = time.UnixMicro(0)
	}
	redistest.SetState(s, s.aside, redisstore.Keys(s.store).State(), "ma", now.UnixMicro())
}
