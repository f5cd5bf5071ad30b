//go:build unix

package memory_test

import (
	"fmt"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/memory"
	"github.com/headgate/headgate/store"
)

// BenchmarkFlow admits jobs and has a worker read and finish them. A step is one of: a job comes, a job is read and ends. standing is how
// many jobs wait all the while, batch how many go in one call. Limits of all levels apply to each. steps/cpu-s is how many steps a core does
// in a second, the garbage collector's work included, also where others use the machine.
func BenchmarkFlow(b *testing.B) {
	for _, c := range []struct{ tenants, standing, batch int }{{1, 0, 1}, {1, 0, 64}, {1000, 10_000, 1}, {1000, 10_000, 64}, {100_000, 200_000, 1}, {100_000, 200_000, 64}} {
		b.Run(fmt.Sprintf("tenants=%d/standing=%d/batch=%d", c.tenants, c.standing, c.batch), func(b *testing.B) {
			f := newFlow(b, c.tenants)
			for range (c.standing + 63) / 64 {
				f.come(64)
			}
			b.ReportAllocs()
			b.ResetTimer()
			before := cpu(b)
			for done := 0; done < b.N; done += 2 * c.batch {
				f.come(c.batch)
				f.end(c.batch)
			}
			calls := (b.N + 2*c.batch - 1) / (2 * c.batch) // The last one may be more than is asked for.
			b.ReportMetric(float64(2*c.batch*calls)/(cpu(b)-before).Seconds(), "steps/cpu-s")
		})
	}
}

// cpu returns how long the process has run on any core.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// flow is a partition that jobs of many tenants pass.
type flow struct {
	b       *testing.B
	p       *memory.Partition
	tenants []string
	limits  *[admission.Levels]admission.Limit
	pool    store.Pool
	came    int
}

func newFlow(b *testing.B, tenants int) *flow {
	b.Helper()
	limit := admission.Limit{Tokens: 1_000_000_000, Per: time.Second, Burst: 1_000_000_000}
	f := &flow{b: b, p: memory.New(memory.Config{}), pool: mailPool, limits: &[admission.Levels]admission.Limit{limit, limit, limit, limit}}
	for i := range tenants {
		f.tenants = append(f.tenants, fmt.Sprint("tenant-", i))
	}
	if _, err := f.p.Register(b.Context(), "w", f.pool, 128, time.Hour); err != nil {
		b.Fatal(err)
	}
	return f
}

// come lets jobs of tenants in turn in, all in one call.
func (f *flow) come(n int) {
	jobs := make([]store.Candidate, n)
	for i := range jobs {
		f.came++
		jobs[i] = store.Candidate{Class: 1, Limits: f.limits, Job: &admission.Job{
			Tenant: f.tenants[f.came*7919%len(f.tenants)], ID: strconv.Itoa(f.came), Queue: "mail", Type: "welcome",
			Cost: 1, MaxAttempts: 3, Payload: []byte(`{"to":"ada@example.com"}`),
		}}
	}
	verdicts, err := f.p.Admit(f.b.Context(), 0, jobs)
	if err != nil {
		f.b.Fatal(err)
	}
	for _, v := range verdicts {
		if v.Decision != admission.Admitted {
			f.b.Fatalf("%+v", v)
		}
	}
}

// end has the worker read and complete so many.
func (f *flow) end(n int) {
	leases, err := f.p.Read(f.b.Context(), "w", f.pool.ID(), n, -1, false)
	if err != nil || len(leases) != n {
		f.b.Fatal(len(leases), err)
	}
	ends := make([]store.Finish, n)
	for i := range leases {
		ends[i] = leases[i].Finish(store.Complete)
	}
	ended, _, err := f.p.Finish(f.b.Context(), f.pool.ID(), "w", ends)
	if err != nil {
		f.b.Fatal(err)
	}
	for _, e := range ended {
		if e != store.EndedDone {
			f.b.Fatal(e)
		}
	}
}
