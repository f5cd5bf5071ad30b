package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/worker"
)

// BenchmarkDrain measures how fast a backlog is worked off by handlers that do nothing: dispatch, read, finish.
func BenchmarkDrain(b *testing.B) {
	for _, workers := range []int{1, 4} {
		for _, slots := range []int{16, 64, 256} {
			b.Run(fmt.Sprintf("workers=%d/slots=%d", workers, slots), func(b *testing.B) {
				r := newRig(b)
				for from := 0; from < b.N; from += 1000 {
					batch := make([]admission.Job, min(1000, b.N-from))
					for i := range batch {
						batch[i] = job("send", "")
						batch[i].Tenant = fmt.Sprint("tenant-", i%100)
						batch[i].Payload = make([]byte, 256)
					}
					r.enqueue(batch...)
				}
				var left atomic.Int64
				left.Store(int64(b.N))
				done := make(chan struct{})
				b.ResetTimer()
				for range workers {
					r.run(r.store, worker.Config{Concurrency: slots}, on("send", func(context.Context, worker.Job[[]byte]) error {
						if left.Add(-1) == 0 {
							close(done)
						}
						return nil
					}))
				}
				<-done
				b.StopTimer()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
			})
		}
	}
}
