package peers

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/fairness"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/internal/rollout"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// asynqQueues is asynq with a queue a tenant, as those set it up who want fairness of it.
type asynqQueues struct {
	asynqQueue

	tenants map[string]int
}

func newAsynqQueues(tb testing.TB) queue {
	tb.Helper()
	return &asynqQueues{asynqQueue: *newAsynq(tb).(*asynqQueue), tenants: map[string]int{}}
}

func (q *asynqQueues) enqueueMany(tb testing.TB, tenant func(int) string, first, last int) {
	tb.Helper()
	for n := first; n < last; n++ {
		name := tenant(n)
		q.tenants[name] = 1
		body := append(fmt.Appendf(nil, "%s %d ", name, n), payload...)
		_, err := q.client.EnqueueContext(tb.Context(), asynq.NewTask("bench", body), asynq.Queue(name))
		check(tb, err)
	}
}

func (q *asynqQueues) work(tb testing.TB, slots int, run handle) func() {
	tb.Helper()
	return serveAsynq(tb, q.redis, asynq.Config{Concurrency: slots, LogLevel: asynq.FatalLevel, Queues: maps.Clone(q.tenants)}, run)
}

// BenchmarkDrainByTenants: the same backlog, of few tenants and of many, a handler that does nothing. asynq serves 10 and
// 1,000 queues, with fewer jobs, because it polls every queue for each job.
func BenchmarkDrainByTenants(b *testing.B) {
	for _, row := range []struct {
		peer
		tenants, jobs int
	}{
		{queues[0], 10, 60_000},
		{queues[0], 10_000, 60_000},
		{peer{"asynq-queues", newAsynqQueues}, 10, 2_000},
		{peer{"asynq-queues", newAsynqQueues}, 1_000, 1_000},
	} {
		b.Run(fmt.Sprintf("tenants=%d/%s", row.tenants, row.name), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(drain(b, row.open(b), row.tenants, row.jobs), "jobs/s")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// drain returns how many jobs a second a worker ends.
func drain(b *testing.B, q queue, tenants, jobs int) float64 {
	b.Helper()
	q.enqueueMany(b, func(n int) string { return fmt.Sprintf("tenant-%d", n%tenants) }, 0, jobs)
	var count atomic.Int64
	done := make(chan struct{})
	begin := time.Now()
	stop := q.work(b, 128, func(string, int) {
		if count.Add(1) == int64(jobs) {
			close(done)
		}
	})
	<-done
	took := time.Since(begin)
	stop()
	return float64(jobs) / took.Seconds()
}

// BenchmarkMemory: what Redis holds for a waiting job with 256 bytes of payload, in lanes of 1,000 and of 30 jobs.
func BenchmarkMemory(b *testing.B) {
	const jobs = 60_000
	for _, lane := range []int{1000, 30} {
		for _, q := range []struct {
			name string
			open func(testing.TB, *redistest.Server) queue
		}{{"headgate", openHeadgate}, {"asynq", openAsynq}} {
			b.Run(fmt.Sprintf("lane=%d/%s", lane, q.name), func(b *testing.B) {
				for b.Loop() {
					server := redistest.Start(b, redistest.Options{})
					queue := q.open(b, server)
					queue.enqueueMany(b, func(int) string { return "first" }, 0, 1000)
					before := usedMemory(b, server)
					queue.enqueueMany(b, func(n int) string { return fmt.Sprintf("tenant-%d", n/(3*lane)) }, 1000, 1000+jobs)
					b.ReportMetric((usedMemory(b, server)-before)/jobs, "B/job")
					b.ReportMetric(0, "ns/op")
				}
			})
		}
	}
}

// BenchmarkBucketMemory: what Redis holds for a bucket that is not full, of a tenant, its 24 queues and a class of each, and
// for one of redis_rate, which has one level.
func BenchmarkBucketMemory(b *testing.B) {
	b.Run("headgate", func(b *testing.B) {
		const tenants, queues = 20_000, 24
		for b.Loop() {
			server := redistest.Start(b, redistest.Options{})
			s, err := redisstore.Open(b.Context(), newClient(b, server.Options()), redisstore.Config{})
			check(b, err)
			limits := [admission.Levels]admission.Limit{}
			for level := admission.LevelTenant; level < admission.Levels; level++ {
				limits[level] = admission.PerSecond(1).WithBurst(1_000_000_000)
			}
			before := usedMemory(b, server)
			for n := 0; n < tenants*queues; n += store.MaxBatchJobs {
				var questions []store.Question
				for i := n; i < min(n+store.MaxBatchJobs, tenants*queues); i++ {
					questions = append(questions, store.Question{
						Tenant: fmt.Sprintf("tenant-%d", i%tenants), Queue: fmt.Sprintf("queue-%d", i/tenants), Class: admission.High, Cost: 1000, Limits: limits,
					})
				}
				_, _, err := s.Check(b.Context(), 0, false, questions)
				check(b, err)
			}
			bytes := (usedMemory(b, server) - before) / (tenants * (1 + 2*queues))
			b.ReportMetric(bytes, "B/bucket")
			b.ReportMetric(bytes, "MB/1M")
			b.ReportMetric(0, "ns/op")
		}
	})
	b.Run("redis_rate", func(b *testing.B) {
		const scopes = 100_000
		for b.Loop() {
			server := redistest.Start(b, redistest.Options{})
			client := newClient(b, server.Options())
			limiter, limit := redis_rate.NewLimiter(client), redis_rate.Limit{Rate: 1, Burst: 1_000_000, Period: time.Second}
			before := usedMemory(b, server)
			var wg sync.WaitGroup
			for k := range 16 {
				wg.Go(func() {
					for n := k; n < scopes; n += 16 {
						if _, err := limiter.AllowN(b.Context(), fmt.Sprintf("tenant-%d:queue-%d", n%20_000, n/20_000), limit, 1000); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
			b.ReportMetric((usedMemory(b, server)-before)/scopes, "B/bucket")
			b.ReportMetric(0, "ns/op")
		}
	})
}

// usedMemory returns the bytes that Redis has allocated.
func usedMemory(tb testing.TB, server *redistest.Server) float64 {
	tb.Helper()
	info, err := newClient(tb, server.Options()).InfoMap(tb.Context(), "memory").Result()
	check(tb, err)
	n, err := strconv.ParseFloat(cmp.Or(info["Memory"]["used_memory"], "0"), 64)
	check(tb, err)
	return n
}

// BenchmarkFairness: Jain's index of the service by weight of 1,000 tenants over the 20 rounds in which all have work, in one class
// of one queue.
func BenchmarkFairness(b *testing.B) {
	const tenants, rounds = 1000, 30
	for _, row := range []struct {
		name   string
		weight func(tenant int) admission.Weight
	}{
		{"weights=equal/headgate", func(int) admission.Weight { return 1 }},
		{"weights=4:2:1/headgate", func(n int) admission.Weight { return []admission.Weight{4, 2, 1}[n%3] }},
	} {
		b.Run(row.name, func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(evenness(b, tenants, rounds, row.weight), "Jain")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// evenness lets each tenant have rounds jobs a unit of weight, all in the same class, and looks at the first 20 rounds.
func evenness(b *testing.B, tenants, rounds int, weight func(int) admission.Weight) float64 {
	b.Helper()
	s, err := redisstore.Open(b.Context(), newClient(b, redistest.Start(b, redistest.Options{}).Options()), redisstore.Config{})
	check(b, err)
	limits := policy.Unlimited()
	limits.Tenants = map[string]policy.Tenant{}
	jobs, all := make([]admission.Job, 0, tenants*rounds), 0
	for n := range tenants {
		name, w := fmt.Sprintf("tenant-%d", n), weight(n)
		limits.Tenants[name] = policy.Tenant{Weights: policy.Weights{admission.High: w}}
		all += int(w) * 20
		for range rounds * int(w) {
			j := admission.NewJob(name, "bench", "bench", nil)
			j.Priority = admission.High
			jobs = append(jobs, j)
		}
	}
	_, err = rollout.Put(b.Context(), s, limits, rollout.Edit{Author: "benchmark", Expected: rollout.AnyVersion})
	check(b, err)
	p, err := producer.New(s, producer.Config{Timeout: 30 * time.Second})
	check(b, err)
	for part := range slices.Chunk(jobs, 1024) {
		results, err := p.EnqueueBatch(b.Context(), part)
		check(b, err)
		for _, r := range results {
			check(b, r.Err)
		}
	}
	var mu sync.Mutex
	served := map[string]float64{}
	var tokens []tenantToken
	w, err := worker.New(s, worker.Config{Queues: []store.QueueWeight{{Queue: "bench"}}, Concurrency: 128, Observer: worker.Observer{
		Started: func(e worker.Event) {
			mu.Lock()
			defer mu.Unlock()
			tokens = append(tokens, tenantToken{e.Key.Tenant, e.Token})
		},
	}})
	check(b, err)
	var done sync.WaitGroup
	done.Add(len(jobs))
	worker.Register(w, "bench", func(context.Context, worker.Job[[]byte]) error { done.Done(); return nil })
	stop := background(b, w.Run)
	done.Wait()
	stop()
	slices.SortFunc(tokens, tenantToken.compare)
	for _, t := range tokens[:all] {
		served[t.tenant]++
	}
	shares := make([]float64, tenants)
	for n := range tenants {
		shares[n] = served[fmt.Sprintf("tenant-%d", n)] / float64(weight(n))
	}
	return fairness.Jain(shares)
}

// tenantToken is a dispatch: tokens are ids of the stream's entries, so they are in the order of dispatch.
type tenantToken struct{ tenant, token string }

func (t tenantToken) compare(u tenantToken) int {
	at := func(token string) (ms, n int64) {
		left, right, _ := strings.Cut(token, "-")
		ms, _ = strconv.ParseInt(left, 10, 64)
		n, _ = strconv.ParseInt(right, 10, 64)
		return ms, n
	}
	ms, n := at(t.token)
	ms2, n2 := at(u.token)
	return cmp.Or(cmp.Compare(ms, ms2), cmp.Compare(n, n2))
}
