package laws_test

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/breaker"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// BenchmarkBeside reports what a job costs Redis, from its admission to its end, that no gate stops: beside nothing, twice,
// which tells how far the measure can be believed; beside 50,000 jobs of 5,000 tenants for tomorrow, and as many parked behind
// an open breaker; and beside 10,000 tenants of the same queue at their caps with jobs waiting, and as many without caps, which take
// as much room.
// "through" is from a job's admission to its end, with a free slot; "dispatch" is out of a backlog of open tenants: finish, and what
// it dispatches.
//
//	go test ./internal/laws -run '^$' -bench Beside -benchtime 3000x
func BenchmarkBeside(b *testing.B) {
	b.Run("through", func(b *testing.B) { compare(b, (*beside).run, besideRows(b)...) })
	b.Run("dispatch", func(b *testing.B) { compare(b, (*beside).drain, besideRows(b)...) })
}

func besideRows(b *testing.B) []*beside {
	b.Helper()
	return []*beside{
		newBeside(b, "nothing", bystanders{}), newBeside(b, "nothing_again", bystanders{}), newBeside(b, "50000_scheduled", bystanders{scheduled: 50_000}),
		newBeside(b, "1_parked", bystanders{parked: 1}), newBeside(b, "50000_parked", bystanders{parked: 50_000}),
		newBeside(b, "1_capped", bystanders{capped: 1}), newBeside(b, "10000_capped", bystanders{capped: 10_000}),
		newBeside(b, "10000_uncapped", bystanders{uncapped: 10_000}),
	}
}

// compare reports what a way of running so many jobs takes with each row: the time of the CPU of Redis's main thread, which
// does not grow while other processes have the processor, how much more than with the first row that is, and the commands, scripts'
// included: each the median of rounds that are taken in turns.
func compare(b *testing.B, run func(s *beside, jobs int) usage, rows ...*beside) {
	b.Helper()
	for _, s := range rows {
		run(s, b.N) // Whatever is slow at the first time is.
	}
	b.ResetTimer()
	for range besideRounds {
		for _, s := range rows {
			used := run(s, b.N)
			s.micros, s.commands = append(s.micros, used.micros), append(s.commands, used.commands)
		}
	}
	for _, s := range rows {
		more := make([]float64, besideRounds)
		for i := range more {
			more[i] = 100 * (s.micros[i]/rows[0].micros[i] - 1)
		}
		b.ReportMetric(median(s.micros), s.name+"-redis-µs/job")
		b.ReportMetric(median(more), s.name+"-more-%")
		b.ReportMetric(median(s.commands), s.name+"-commands/job")
	}
	b.ReportMetric(0, "ns/op")
}

const besideRounds = 9

func median(of []float64) float64 {
	return slices.Sorted(slices.Values(of))[len(of)/2]
}

// run admits and ends jobs that nothing stops, as many as asked or a few more, and returns what one of them uses.
func (s *beside) run(jobs int) usage {
	s.tb.Helper()
	before, n := s.used(), 0
	for n < jobs {
		s.admit(s.open(besideBatch)...)
		n += s.finishOpen()
	}
	return s.used().less(before, n)
}

// drain ends so many jobs out of a backlog, or a few more, and returns what one of them uses.
func (s *beside) drain(jobs int) usage {
	s.tb.Helper()
	for i := 0; i < jobs+3*besideBatch; i += store.MaxBatchJobs {
		s.admit(s.open(store.MaxBatchJobs)...)
	}
	before, n := s.used(), 0
	for n < jobs {
		n += s.finishOpen()
	}
	used := s.used().less(before, n)
	for s.finishReady() > 0 {
	}
	return used
}

const besideBatch = 16

// beside is a partition in which most of what waits may not run.
type beside struct {
	name string
	// micros and commands are those a job, of each round.
	micros, commands []float64

	tb testing.TB
	// tenants take turns with jobs that nothing stops.
	tenants int
	store   store.Deployment
	client  *redis.Client
	jobs    int
	version int64
}

// bystanders are what stands beside the jobs that are measured: jobs for tomorrow, which cost no more than the room that they take,
// jobs behind an open breaker, tenants at their caps, each with a job that runs and one that waits, and as many without caps, whose
// second job waits for an open breaker.
type bystanders struct{ scheduled, parked, capped, uncapped int }

func newBeside(b *testing.B, name string, by bystanders) *beside {
	b.Helper()
	server := redistest.Start(b, redistest.Options{})
	client := server.Client(b)
	st, err := redisstore.Open(b.Context(), client, redisstore.Config{})
	s := &beside{name: name, tb: b, tenants: 100, store: st, client: client}
	s.check(err)
	update := store.PolicyUpdate{Version: 1, Text: []byte("{}"), Window: time.Second}
	for i := range by.capped {
		update.Caps = append(update.Caps, store.Cap{Gate: store.TenantGate(tenantName(i)), Limit: 1})
	}
	s.check(st.PutPolicy(b.Context(), update))
	s.version = 1
	busy, downstream := by.capped+by.uncapped, ""
	if by.uncapped > 0 {
		downstream = "dead"
	}
	s.register("c", cappedPool, max(1, busy))
	for i := range busy { // the first runs for ever, and the second, which is beside those that are measured, waits for it
		s.admit(s.job(tenantName(i), "capped", ""))
		s.admit(s.job(tenantName(i), "mail", downstream))
	}
	s.read("c", cappedPool, max(1, busy))
	s.crowd(by.scheduled, func(i int) store.Candidate {
		later := s.job(tenantName(i%5000), "mail", "dead")
		later.Job.Delay = 24 * time.Hour
		return later
	})
	s.crowd(by.parked, func(i int) store.Candidate { return s.job(tenantName(i%5000), "mail", "dead") })
	if by.parked+by.uncapped > 0 {
		_, err := st.ForceBreaker(b.Context(), "dead", breaker.Open, 0, store.Intervention{Reason: "dead"})
		s.check(err)
	}
	s.register("w", mailPool, besideBatch)
	for { // whatever is stopped comes to its head and parks
		p, err := st.Partitions()[0].Promote(b.Context(), "s", time.Second)
		s.check(err)
		if !p.More {
			return s
		}
	}
}

// crowd admits so many jobs.
func (s *beside) crowd(n int, job func(i int) store.Candidate) {
	s.tb.Helper()
	for i := 0; i < n; i += store.MaxBatchJobs {
		var jobs []store.Candidate
		for k := i; k < min(n, i+store.MaxBatchJobs); k++ {
			jobs = append(jobs, job(k))
		}
		s.admit(jobs...)
	}
}

var cappedPool = store.Pool{Queues: []store.QueueWeight{{Queue: "capped", Weight: 1}}}

func (s *beside) check(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatal(err)
	}
}

func (s *beside) job(tenant, queue, downstream string) store.Candidate {
	s.jobs++
	return store.Candidate{Limits: unlimited, Job: &admission.Job{
		ID: strconv.Itoa(s.jobs), Tenant: tenant, Queue: queue, Type: "t", Priority: admission.High, Cost: 1, Downstream: downstream,
	}}
}

// open returns jobs that nothing stops.
func (s *beside) open(n int) []store.Candidate {
	jobs := make([]store.Candidate, n)
	for i := range jobs {
		jobs[i] = s.job("x"+tenantName(s.jobs%s.tenants), "mail", "api")
	}
	return jobs
}

func (s *beside) admit(jobs ...store.Candidate) {
	s.tb.Helper()
	_, err := s.store.Partitions()[0].Admit(s.tb.Context(), s.version, jobs)
	s.check(err)
}

func (s *beside) register(worker string, pool store.Pool, slots int) {
	s.tb.Helper()
	_, err := s.store.Partitions()[0].Register(s.tb.Context(), worker, pool, slots, longLease)
	s.check(err)
}

func (s *beside) read(worker string, pool store.Pool, count int) []store.Lease {
	s.tb.Helper()
	leases, err := s.store.Partitions()[0].Read(s.tb.Context(), worker, pool.ID(), count, -1, false)
	s.check(err)
	return leases
}

func (s *beside) finishOpen() int {
	s.tb.Helper()
	n := s.finishReady()
	if n == 0 {
		s.tb.Fatal("nothing is ready")
	}
	return n
}

// finishReady ends what is ready, and returns how many jobs that were.
func (s *beside) finishReady() int {
	s.tb.Helper()
	leases := s.read("w", mailPool, besideBatch)
	if len(leases) == 0 {
		return 0
	}
	ends := make([]store.Finish, len(leases))
	for i, l := range leases {
		ends[i] = finishAs(l, store.Complete, 0)
	}
	_, _, err := s.store.Partitions()[0].Finish(s.tb.Context(), mailPool.ID(), "w", ends)
	s.check(err)
	return len(leases)
}

// usage is what Redis has used since its start.
type usage struct{ micros, commands float64 }

// less returns what each of n jobs has used since.
func (u usage) less(since usage, n int) usage {
	return usage{(u.micros - since.micros) / float64(n), (u.commands - since.commands) / float64(n)}
}

func (s *beside) used() usage {
	s.tb.Helper()
	took := redistest.Processor(s.tb, s.client)
	return usage{float64(took.Microseconds()), float64(redistest.CommandCalls(s.tb, s.client))}
}
