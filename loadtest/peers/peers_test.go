package peers

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// peer is a way to open a queue.
type peer struct {
	name string
	open func(testing.TB) queue
}

var queues = []peer{{"headgate", newHeadgate}, {"asynq", newAsynq}}

// waits collects the time from enqueue to start of numbered jobs.
type waits struct {
	mu      sync.Mutex
	sent    map[int]time.Time
	seconds []float64
	done    chan struct{}
	want    int
}

func newWaits(want int) *waits {
	return &waits{sent: map[int]time.Time{}, done: make(chan struct{}), want: want}
}

func (w *waits) send(number int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent[number] = time.Now()
}

func (w *waits) start(number int) {
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seconds = append(w.seconds, now.Sub(w.sent[number]).Seconds())
	if len(w.seconds) == w.want {
		close(w.done)
	}
}

func (w *waits) report(b *testing.B) {
	b.Helper()
	slices.Sort(w.seconds)
	at := func(q float64) float64 {
		return 1000 * w.seconds[int(math.Ceil(q*float64(len(w.seconds))))-1]
	}
	b.ReportMetric(at(0.5), "p50-ms")
	b.ReportMetric(at(0.99), "p99-ms")
	b.ReportMetric(0, "ns/op")
}

// pace calls f n times at a rate, each at its time whether or not earlier ones have returned.
func pace(n int, perSecond float64, f func(i int)) {
	var wg sync.WaitGroup
	start := time.Now()
	for i := range n {
		at := start.Add(time.Duration(float64(i) / perSecond * float64(time.Second)))
		<-time.After(time.Until(at))
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// BenchmarkLightTenant: one tenant has 50,000 jobs of 2 ms waiting for 10 slots; another sends 200, 50 a second.
func BenchmarkLightTenant(b *testing.B) {
	const flood, light = 50_000, 200
	for _, q := range append(queues, peer{"asynq-fair", newFair}) {
		b.Run(q.name, func(b *testing.B) {
			for b.Loop() {
				queue := q.open(b)
				queue.enqueueMany(b, func(int) string { return "flood" }, 0, flood)
				seen := newWaits(light)
				stop := queue.work(b, slots, func(tenant string, number int) {
					if tenant == "light" {
						seen.start(number)
					}
					busy(b.Context(), 2*time.Millisecond)
				})
				pace(light, 50, func(i int) {
					seen.send(flood + i)
					queue.enqueue(b, "light", flood+i)
				})
				<-seen.done
				stop()
				seen.report(b)
			}
		})
	}
}

// BenchmarkEnqueueToHandler: jobs that find an idle worker with 10 slots.
func BenchmarkEnqueueToHandler(b *testing.B) {
	for _, rate := range []int{200, 2000} {
		for _, q := range queues {
			b.Run(fmt.Sprintf("rate=%d/%s", rate, q.name), func(b *testing.B) {
				for b.Loop() {
					queue := q.open(b)
					jobs := rate * 5
					seen := newWaits(jobs)
					stop := queue.work(b, slots, func(_ string, number int) { seen.start(number) })
					pace(jobs, float64(rate), func(i int) {
						seen.send(i)
						queue.enqueue(b, fmt.Sprintf("tenant-%d", i%20), i)
					})
					<-seen.done
					stop()
					seen.report(b)
				}
			})
		}
	}
}

// BenchmarkEnqueue: 1,000 tenants, with 1 and 64 producers.
func BenchmarkEnqueue(b *testing.B) {
	const jobs = 30_000
	for _, producers := range []int{1, 64} {
		for _, q := range queues {
			b.Run(fmt.Sprintf("producers=%d/%s", producers, q.name), func(b *testing.B) {
				for b.Loop() {
					b.StopTimer()
					queue := q.open(b)
					n := jobs * min(producers, 4) / 4
					b.StartTimer()
					begin := time.Now()
					var wg sync.WaitGroup
					for k := range producers {
						wg.Go(func() {
							for i := k; i < n; i += producers {
								queue.enqueue(b, tenantOf(i), i)
							}
						})
					}
					wg.Wait()
					b.ReportMetric(float64(n)/time.Since(begin).Seconds(), "jobs/s")
					b.ReportMetric(0, "ns/op")
				}
			})
		}
	}
}

// BenchmarkDrain: 1,000 tenants × 3 classes waiting, a handler that does nothing.
func BenchmarkDrain(b *testing.B) {
	for _, q := range queues {
		b.Run(q.name, func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(drain(b, q.open(b), 1000, 60_000), "jobs/s")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// BenchmarkEnqueueBatch: one producer that has 64 jobs at a time.
func BenchmarkEnqueueBatch(b *testing.B) {
	const jobs = 30_000
	b.Run("headgate", func(b *testing.B) {
		for b.Loop() {
			q := openHeadgate(b, redistest.Start(b, redistest.Options{})).(*headgateQueue)
			begin := time.Now()
			for n := 0; n < jobs; n += store.MaxBatchJobs {
				q.enqueueMany(b, tenantOf, n, min(n+store.MaxBatchJobs, jobs))
			}
			b.ReportMetric(jobs/time.Since(begin).Seconds(), "jobs/s")
			b.ReportMetric(0, "ns/op")
		}
	})
}
