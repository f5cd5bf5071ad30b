package peers

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
	"github.com/headgate/headgate/worker"
)

// payload is what all jobs carry.
var payload = []byte(strings.Repeat("x", 256))

// slots is how many jobs a worker runs at a time, where nothing else is said.
const slots = 10

// handle is what runs a job in a benchmark: it is told the tenant and the job's number.
type handle func(tenant string, number int)

// queue is a job queue under test.
type queue interface {
	// enqueue adds one job, from many goroutines at a time.
	enqueue(tb testing.TB, tenant string, number int)
	// enqueueMany adds jobs first to last - 1 as fast as the queue's users would.
	enqueueMany(tb testing.TB, tenant func(number int) string, first, last int)
	// work runs jobs until the returned function is called.
	work(tb testing.TB, slots int, run handle) (stop func())
}

type headgateQueue struct {
	store    store.Deployment
	producer *producer.Producer
}

func newHeadgate(tb testing.TB) queue {
	tb.Helper()
	return openHeadgate(tb, redistest.Start(tb, redistest.Options{}))
}

func openHeadgate(tb testing.TB, server *redistest.Server) queue {
	tb.Helper()
	options := server.Options()
	options.PoolSize = 100
	s, err := redisstore.Open(tb.Context(), newClient(tb, options), redisstore.Config{})
	check(tb, err)
	return newQueue(tb, s)
}

func newQueue(tb testing.TB, s store.Deployment) queue {
	tb.Helper()
	// Four limits on every job's way, which no job of these benchmarks exceeds: what is measured includes the checks.
	limits := policy.Unlimited()
	plenty := admission.PerSecond(100_000_000)
	limits.Global = plenty
	for name, tier := range limits.Tiers {
		tier.Limit = plenty
		limits.Tiers[name] = tier
	}
	p, err := producer.New(s, producer.Config{Policy: &limits, Timeout: 30 * time.Second})
	check(tb, err)
	return &headgateQueue{store: s, producer: p}
}

// tenantOf is the tenant of a job or a check, one of 1,000.
func tenantOf(n int) string { return fmt.Sprintf("tenant-%d", n%1000) }

func (q *headgateQueue) job(tenant string, number int) admission.Job {
	j := admission.NewJob(tenant, "bench", "bench", payload)
	j.Headers = map[string]string{"n": strconv.Itoa(number)}
	j.Priority = admission.DefaultClasses()[number/1000%3].Name
	return j
}

func (q *headgateQueue) enqueue(tb testing.TB, tenant string, number int) {
	tb.Helper()
	_, err := q.producer.Enqueue(tb.Context(), q.job(tenant, number))
	check(tb, err)
}

func (q *headgateQueue) enqueueMany(tb testing.TB, tenant func(int) string, first, last int) {
	tb.Helper()
	const batch = 1024
	for ; first < last; first += batch {
		var jobs []admission.Job
		for n := first; n < min(first+batch, last); n++ {
			jobs = append(jobs, q.job(tenant(n), n))
		}
		results, err := q.producer.EnqueueBatch(tb.Context(), jobs)
		check(tb, err)
		for _, r := range results {
			check(tb, r.Err)
		}
	}
}

func (q *headgateQueue) work(tb testing.TB, slots int, run handle) func() {
	tb.Helper()
	w, err := worker.New(q.store, worker.Config{Queues: []store.QueueWeight{{Queue: "bench"}}, Concurrency: slots})
	check(tb, err)
	worker.Register(w, "bench", func(_ context.Context, job worker.Job[[]byte]) error {
		n := 0
		_, _ = fmt.Sscan(job.Headers["n"], &n)
		run(job.Tenant, n)
		return nil
	})
	return background(tb, w.Run)
}

// background runs a service until the returned function is called, which waits for its end.
func background(tb testing.TB, run func(context.Context) error) func() {
	tb.Helper()
	ctx, cancel := context.WithCancel(tb.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := run(ctx); err != nil && ctx.Err() == nil {
			tb.Error(err)
		}
	})
	return func() { cancel(); wg.Wait() }
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// busy works for about d without giving up its slot; it sleeps, as a handler that waits for a downstream does.
func busy(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	runtime.Gosched()
}
