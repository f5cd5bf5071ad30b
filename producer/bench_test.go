package producer_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
)

// wide is a policy whose buckets are checked and never empty.
func wide() *policy.Policy {
	p := limited(admission.PerSecond(1_000_000).WithBurst(1_000_000_000))
	p.Global = admission.PerSecond(1_000_000).WithBurst(1_000_000_000)
	return p
}

// BenchmarkEnqueue measures single calls of many goroutines, by the number of admit calls that may be in flight.
func BenchmarkEnqueue(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 512} {
		for _, inFlight := range []int{1, 2, 4} {
			if callers == 1 && inFlight > 1 {
				continue
			}
			b.Run(fmt.Sprintf("callers=%d/in_flight=%d", callers, inFlight), func(b *testing.B) {
				p := newProducer(b, open(b, redistest.Shared(b).Client(b)), producer.Config{Policy: wide(), InFlight: inFlight})
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				var running sync.WaitGroup
				for caller := range callers {
					running.Go(func() {
						j := job(fmt.Sprintf("tenant-%d", caller%100))
						j.Payload = make([]byte, 256)
						for left.Add(-1) >= 0 {
							if _, err := p.Enqueue(b.Context(), j); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				running.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			})
		}
	}
}

// BenchmarkEnqueueBatch measures batches of a full call from one goroutine.
func BenchmarkEnqueueBatch(b *testing.B) {
	p := newProducer(b, open(b, redistest.Shared(b).Client(b)), producer.Config{Policy: wide()})
	jobs := make([]admission.Job, 64)
	for i := range jobs {
		jobs[i] = job(fmt.Sprintf("tenant-%d", i))
		jobs[i].Payload = make([]byte, 256)
	}
	n := 0
	for b.Loop() {
		if _, err := p.EnqueueBatch(b.Context(), jobs); err != nil {
			b.Fatal(err)
		}
		n += len(jobs)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "jobs/s")
}
