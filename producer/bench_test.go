package producer_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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

// BenchmarkShedWithoutACall sheds low jobs of a queue that is pressed for five seconds at each rate, in one process, and says which part of them never
// reached Redis. The rest is what is asked before anything was heard, and a call a second for news.
func BenchmarkShedWithoutACall(b *testing.B) {
	for _, rate := range []int{10, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("rate=%d", rate), func(b *testing.B) {
			const lasts = 5 * time.Second
			s, press := openPressed(b)
			press(admission.PressureHigh)
			p := newProducer(b, s, producer.Config{})
			shed, local := 0, 0
			for began := time.Now(); time.Since(began) < lasts; {
				v, err := p.Enqueue(b.Context(), low(""))
				if !errors.Is(err, admission.ErrShed) {
					b.Fatalf("%+v, %v", v, err)
				}
				if shed++; v.Local {
					local++
				}
				time.Sleep(time.Until(began.Add(time.Duration(shed) * time.Second / time.Duration(rate)))) //nolint:forbidigo // the pace of calls
			}
			b.ReportMetric(100*float64(local)/float64(shed), "%local")
			b.ReportMetric(float64(shed)/lasts.Seconds(), "shed/s")
		})
	}
}
