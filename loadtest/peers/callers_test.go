package peers

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/redistest"
)

// BenchmarkEnqueueByCallers: 1,000 tenants, and each caller asks for its next job to enter when it has the answer for the last: how many jobs
// share a call, and how long an answer takes. asynq's calls are of one job each.
func BenchmarkEnqueueByCallers(b *testing.B) {
	for _, callers := range []int{1, 8, 64, 512} {
		for _, q := range []struct {
			name, call string
			open       func(testing.TB, *redistest.Server) queue
		}{{"headgate", "fcall", openHeadgate}, {"asynq", "evalsha", openAsynq}} {
			b.Run(fmt.Sprintf("callers=%d/%s", callers, q.name), func(b *testing.B) {
				for b.Loop() {
					server := redistest.Start(b, redistest.Options{})
					queue, jobs := q.open(b, server), 60_000*min(callers, 8)/8
					answered := newWaits(jobs)
					client := server.Client(b)
					before, begin := redistest.CommandStats(b, client)[q.call].Calls, time.Now()
					var wg sync.WaitGroup
					for k := range callers {
						wg.Go(func() {
							for i := k; i < jobs; i += callers {
								answered.send(i)
								queue.enqueue(b, tenantOf(i), i)
								answered.start(i)
							}
						})
					}
					wg.Wait()
					b.ReportMetric(float64(jobs)/time.Since(begin).Seconds(), "jobs/s")
					b.ReportMetric(float64(jobs)/float64(redistest.CommandStats(b, client)[q.call].Calls-before), "jobs/call")
					answered.report(b)
				}
			})
		}
	}
}

// BenchmarkEnqueueFarAway: jobs that come one by one, and how long an answer takes of a Redis 1 and 30 ms away.
func BenchmarkEnqueueFarAway(b *testing.B) {
	for _, away := range []time.Duration{time.Millisecond, 30 * time.Millisecond} {
		for _, rate := range []int{300, 2000, 8000} {
			b.Run(fmt.Sprintf("away=%s/rate=%d", away, rate), func(b *testing.B) {
				for b.Loop() {
					enter := entrances[0].open(b, distant(b, redistest.Start(b, redistest.Options{}).Addr(), away))
					jobs := 3 * rate
					answered := newWaits(jobs)
					pace(jobs, float64(rate), func(i int) {
						answered.send(i)
						check(b, enter(b.Context(), i))
						answered.start(i)
					})
					answered.report(b)
				}
			})
		}
	}
}
