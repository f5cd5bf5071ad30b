package laws_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
)

// BenchmarkBeside reports the time of Redis a job, from ready to done and the dispatch of the next, of jobs that no gate
// stops: alone; beside 50,000 jobs of 5,000 tenants that are parked behind an open breaker's gate; and beside 10,000
// tenants at their caps with jobs waiting.
func BenchmarkBeside(b *testing.B) {
	for _, row := range []struct {
		name           string
		parked, capped int
	}{{"nothing", 0, 0}, {"50000_parked_jobs", 50_000, 0}, {"10000_capped_tenants", 0, 10_000}} {
		b.Run(row.name, func(b *testing.B) {
			s := newBeside(b, row.parked, row.capped)
			used := s.used()
			b.ResetTimer()
			for n := 0; n < b.N; {
				s.admit(s.open(besideBatch)...)
				n += s.finishOpen()
			}
			b.ReportMetric((s.used()-used)/float64(b.N), "redis-µs/job")
		})
	}
}

const besideBatch = 16

// beside is a partition in which most of what waits may not run.
type beside struct {
	tb      testing.TB
	store   *lua.Store
	client  *redis.Client
	jobs    int
	version int64
}

func newBeside(b *testing.B, parked, capped int) *beside {
	b.Helper()
	server := redistest.Start(b, redistest.Options{})
	client := server.Client(b)
	store, err := lua.Open(b.Context(), client, lua.Config{})
	s := &beside{tb: b, store: store, client: client}
	s.check(err)
	s.check(store.PutPolicy(b.Context(), lua.PolicyUpdate{
		Version: 1, Text: []byte("{}"), Window: time.Second, Caps: []lua.Cap{{Gate: lua.TenantQueueGate(lua.Every, "capped"), Limit: 1}},
	}))
	s.version = 1
	if capped > 0 {
		s.register("c", cappedPool, capped)
		for i := range capped { // the second waits for the first, which runs for ever
			s.admit(s.job(tenantName(i), "capped", ""), s.job(tenantName(i), "capped", ""))
		}
		s.read("c", cappedPool, capped)
	}
	if parked > 0 {
		for i := 0; i < parked; i += lua.MaxBatchJobs {
			var jobs []lua.Candidate
			for k := range min(lua.MaxBatchJobs, parked-i) {
				jobs = append(jobs, s.job(tenantName((i+k)%5000), "mail", "dead"))
			}
			s.admit(jobs...)
		}
		_, err := store.Pause(b.Context(), lua.DownstreamGate("dead"), 0, "dead")
		s.check(err)
	}
	s.register("w", mailPool, besideBatch)
	for { // whatever is stopped comes to its head and parks
		p, err := store.Promote(b.Context(), "s", time.Second)
		s.check(err)
		if !p.More {
			return s
		}
	}
}

var cappedPool = lua.Pool{Queues: []lua.QueueWeight{{Queue: "capped", Weight: 1}}}

func (s *beside) check(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatal(err)
	}
}

func (s *beside) job(tenant, queue, downstream string) lua.Candidate {
	s.jobs++
	return lua.Candidate{Limits: unlimited, Job: &headgate.Job{
		ID: strconv.Itoa(s.jobs), Tenant: tenant, Queue: queue, Type: "t", Priority: headgate.High, Cost: 1, Downstream: downstream,
	}}
}

// open returns jobs that nothing stops.
func (s *beside) open(n int) []lua.Candidate {
	jobs := make([]lua.Candidate, n)
	for i := range jobs {
		jobs[i] = s.job("x"+tenantName(s.jobs%100), "mail", "api")
	}
	return jobs
}

func (s *beside) admit(jobs ...lua.Candidate) {
	s.tb.Helper()
	_, err := s.store.Admit(s.tb.Context(), s.version, jobs)
	s.check(err)
}

func (s *beside) register(worker string, pool lua.Pool, slots int) {
	s.tb.Helper()
	_, err := s.store.Register(s.tb.Context(), worker, pool, slots, longLease)
	s.check(err)
}

func (s *beside) read(worker string, pool lua.Pool, count int) []lua.Lease {
	s.tb.Helper()
	leases, err := s.store.Read(s.tb.Context(), worker, pool.ID(), count, -1, false)
	s.check(err)
	return leases
}

func (s *beside) finishOpen() int {
	s.tb.Helper()
	leases := s.read("w", mailPool, besideBatch)
	if len(leases) == 0 {
		s.tb.Fatal("nothing is ready")
	}
	ends := make([]lua.Finish, len(leases))
	for i, l := range leases {
		ends[i] = finishAs(l, lua.Complete, 0)
	}
	_, _, err := s.store.Finish(s.tb.Context(), mailPool.ID(), "w", ends)
	s.check(err)
	return len(leases)
}

// used is the time in microseconds that scripts and reads have taken in Redis.
func (s *beside) used() (total float64) {
	s.tb.Helper()
	info, err := s.client.Info(s.tb.Context(), "commandstats").Result()
	s.check(err)
	for line := range strings.Lines(info) {
		name, stats, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
		if name != "evalsha" && name != "eval" && name != "xreadgroup" {
			continue
		}
		_, usec, _ := strings.Cut(stats, "usec=")
		usec, _, _ = strings.Cut(usec, ",")
		n, err := strconv.ParseFloat(usec, 64)
		s.check(err)
		total += n
	}
	return total
}
