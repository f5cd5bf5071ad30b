package memory_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// BenchmarkSteps brings jobs of a hundred tenants through a partition, one at a time: admit, read, finish, three steps a job; in memory, and
// in Redis beside it.
func BenchmarkSteps(b *testing.B) {
	b.Run("memory", func(b *testing.B) { steps(b, memory.New(memory.Config{})) })
	b.Run("redis", func(b *testing.B) {
		d, err := redisstore.Open(b.Context(), redistest.Shared(b).Client(b), redisstore.Config{Prefix: redistest.Prefix(b)})
		check(b, err)
		steps(b, d.Partitions()[0])
	})
}

func steps(b *testing.B, s store.Partition) {
	ctx := b.Context()
	_, err := s.Register(ctx, "w1", mailPool, 8, time.Hour)
	check(b, err)
	limit := admission.PerSecond(1_000_000, 1_000_000)
	limits := &[admission.Levels]admission.Limit{limit, limit, limit, limit}
	n := 0
	for b.Loop() {
		n++
		job := mail("t"+strconv.Itoa(n%100), "j"+strconv.Itoa(n))
		if _, err := s.Admit(ctx, 0, []store.Candidate{{Job: &job, Class: 1, Limits: limits}}); err != nil {
			b.Fatal(err)
		}
		leases, err := s.Read(ctx, "w1", mailPool.ID(), 1, -1, false)
		if err != nil || len(leases) != 1 {
			b.Fatal(leases, err)
		}
		if _, _, err := s.Finish(ctx, mailPool.ID(), "w1", []store.Finish{leases[0].Finish(store.Complete)}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(3*float64(n)/b.Elapsed().Seconds(), "steps/s")
}
