package laws_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
)

// BenchmarkBeside reports what a job costs Redis, from its admission to its end, that no gate stops: beside nothing;
// beside 50,000 jobs of 5,000 tenants that are parked behind an open breaker; and beside 10,000 tenants at their caps
// with jobs waiting. Each is the median of five rounds, taken in turns, of the time of the CPU of Redis's main thread, which does
// not grow while other processes have the processor, and the commands, scripts' included.
//
//	go test ./internal/laws -run '^$' -bench Beside -benchtime 5000x
func BenchmarkBeside(b *testing.B) {
	rows := []*beside{newBeside(b, "nothing", 0, 0), newBeside(b, "1_parked", 1, 0), newBeside(b, "50000_parked", 50_000, 0), newBeside(b, "1_capped", 0, 1), newBeside(b, "10000_capped", 0, 10_000)}
	for _, s := range rows {
		s.run(b.N) // Whatever is slow at the first time is.
	}
	b.ResetTimer()
	for range besideRounds {
		for _, s := range rows {
			before := s.used()
			n := s.run(b.N)
			after := s.used()
			s.micros, s.commands = append(s.micros, (after.micros-before.micros)/n), append(s.commands, (after.commands-before.commands)/n)
		}
	}
	for _, s := range rows {
		slices.Sort(s.micros)
		slices.Sort(s.commands)
		b.ReportMetric(s.micros[besideRounds/2], s.name+"-redis-µs/job")
		b.ReportMetric(s.commands[besideRounds/2], s.name+"-commands/job")
		b.Logf("%s: %.1f µs a job, rounds %.1f", s.name, s.micros[besideRounds/2], s.micros)
	}
	b.ReportMetric(0, "ns/op")
}

const besideRounds = 5

// run admits and ends jobs that nothing stops, as many as asked or a few more, and returns how many.
func (s *beside) run(jobs int) float64 {
	s.tb.Helper()
	n := 0
	for n < jobs {
		s.admit(s.open(besideBatch)...)
		n += s.finishOpen()
	}
	return float64(n)
}

const besideBatch = 16

// beside is a partition in which most of what waits may not run.
type beside struct {
	name string
	// micros and commands are those a job, of each round.
	micros, commands []float64

	tb      testing.TB
	store   *lua.Store
	client  *redis.Client
	jobs    int
	version int64
}

func newBeside(b *testing.B, name string, parked, capped int) *beside {
	b.Helper()
	server := redistest.Start(b, redistest.Options{})
	client := server.Client(b)
	store, err := lua.Open(b.Context(), client, lua.Config{})
	s := &beside{name: name, tb: b, store: store, client: client}
	s.check(err)
	update := lua.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Second}
	if capped > 0 {
		update.Caps = []lua.Cap{{Gate: lua.TenantQueueGate(lua.Every, "capped"), Limit: 1}}
	}
	s.check(store.PutPolicy(b.Context(), update))
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
		_, err := store.ForceBreaker(b.Context(), "dead", breaker.Open, 0, lua.Intervention{Reason: "dead"})
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

// usage is what Redis has used since its start.
type usage struct{ micros, commands float64 }

func (s *beside) used() (u usage) {
	s.tb.Helper()
	info, err := s.client.Info(s.tb.Context(), "cpu", "commandstats").Result()
	s.check(err)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		number, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		n, err := strconv.ParseFloat(number, 64)
		switch {
		case name == "used_cpu_sys_main_thread" || name == "used_cpu_user_main_thread":
			s.check(err)
			u.micros += n * 1e6
		case strings.HasPrefix(name, "cmdstat_"):
			s.check(err)
			u.commands += n
		}
	}
	return u
}
