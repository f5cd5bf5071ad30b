package peers

import (
	"fmt"
	"testing"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store/redisstore"
)

// BenchmarkMasters: jobs of 1,000 tenants, first all in, then all out, on a cluster of so many masters with a partition each. Callers, workers and all
// masters share the machine, so that jobs a second of it say little: what a master could do that has a core to itself is what its share of the jobs is by
// the seconds of its processor, of the one that took longest.
func BenchmarkMasters(b *testing.B) {
	for _, masters := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("masters=%d", masters), func(b *testing.B) {
			const jobs = 60_000
			for b.Loop() {
				cluster := redistest.StartNodes(b, masters, false)
				store, err := redisstore.Open(b.Context(), cluster.Client(b), redisstore.Config{Partitions: masters})
				check(b, err)
				queue := newQueue(b, store)
				before := make([]spending, masters)
				for i, master := range cluster.Masters {
					before[i] = spendingOf(b, master)
				}
				b.ReportMetric(drain(b, queue, 1000, jobs), "drained/s")
				var all spending
				longest := 0.0
				for i, master := range cluster.Masters {
					spent := spendingOf(b, master)
					all.seconds += spent.seconds - before[i].seconds
					all.commands += spent.commands - before[i].commands
					longest = max(longest, spent.seconds-before[i].seconds)
				}
				b.ReportMetric(all.seconds/jobs*1e6, "redis-s/1M")
				b.ReportMetric(all.commands/jobs, "commands/job")
				b.ReportMetric(jobs/longest, "jobs/s-of-redis")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}
