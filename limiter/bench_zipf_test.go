package limiter

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
)

// A million scopes: 25 queues of three classes each for 10,000 tenants.
const (
	zipfTenants = 10_000
	zipfQueues  = 25
	zipfLeaves  = zipfTenants * zipfQueues * 3
)

// zipfRequests are all ways down to a class, and the policy that limits each scope on them.
func zipfRequests() ([]Request, *policy.Policy) {
	p := policy.Unlimited()
	p.Global = admission.PerSecond(2_000_000)
	perTenant := admission.PerSecond(5000)
	p.Tiers = map[string]policy.Tier{policy.StandardTier: {Limit: perTenant}}
	p.QueueLimits = make(map[admission.Scope]admission.Limit, zipfTenants*zipfQueues)
	p.PriorityLimits = make(map[admission.Scope]admission.Limit, zipfLeaves)
	requests := make([]Request, 0, zipfLeaves)
	for queue := range zipfQueues {
		for _, class := range []admission.Priority{admission.High, admission.Medium, admission.Low} {
			for tenant := range zipfTenants { // Neighbours in rank are of different tenants.
				r := Request{Tenant: fmt.Sprintf("tenant-%d", tenant), Queue: fmt.Sprintf("queue-%d", queue), Class: class, Cost: 1}
				p.QueueLimits[admission.ScopeAt(admission.LevelQueue, r.Tenant, r.Queue, "")] = admission.PerSecond(2000)
				p.PriorityLimits[admission.ScopeAt(admission.LevelPriority, r.Tenant, r.Queue, class)] = admission.PerSecond(1000)
				requests = append(requests, r)
			}
		}
	}
	return requests, &p
}

// zipfTally is what callers count.
type zipfTally struct {
	sync.Mutex
	by      [Blind + 1]int
	refused int
	took    *hdrhistogram.Histogram
}

func (z *zipfTally) add(other *zipfTally) {
	z.Lock()
	defer z.Unlock()
	for i := range other.by {
		z.by[i] += other.by[i]
	}
	z.refused += other.refused
	z.took.Merge(other.took)
}

// BenchmarkZipf is T14: one process, a million scopes, Zipf with s = 1.1, warm.
func BenchmarkZipf(b *testing.B) {
	requests, limits := zipfRequests()
	l := start(b, open(b, redistest.Shared(b).Client(b)), Config{Policy: limits, Timeout: patient})
	drive := func(span time.Duration, seed uint64) *zipfTally {
		all := &zipfTally{took: hdrhistogram.New(1, int64(time.Minute), 3)}
		var callers sync.WaitGroup
		end := time.Now().Add(span)
		for caller := range uint64(128) {
			callers.Go(func() {
				mine := &zipfTally{took: hdrhistogram.New(1, int64(time.Minute), 3)}
				ranks := rand.NewZipf(rand.New(rand.NewPCG(seed, caller)), 1.1, 1, zipfLeaves-1)
				for began := time.Now(); began.Before(end); {
					v, err := l.Check(b.Context(), requests[ranks.Uint64()])
					if err != nil {
						b.Error(err)
						return
					}
					mine.by[v.Source]++
					if !v.Admitted {
						mine.refused++
					}
					now := time.Now()
					_ = mine.took.RecordValue(max(1, now.Sub(began).Nanoseconds()))
					began = now
				}
				all.add(mine)
			})
		}
		callers.Wait()
		return all
	}
	drive(3*time.Second, 1)
	for b.Loop() {
		const span = 3 * time.Second
		all := drive(span, 2)
		sum := float64(all.took.TotalCount())
		b.ReportMetric(sum/span.Seconds(), "checks/s")
		b.ReportMetric(100*float64(all.by[Leased])/sum, "%leased")
		b.ReportMetric(100*float64(all.by[Exact])/sum, "%exact")
		b.ReportMetric(100*float64(all.by[Cached])/sum, "%cached")
		b.ReportMetric(100*float64(all.refused)/sum, "%refused")
		b.ReportMetric(float64(all.took.ValueAtQuantile(50))/1000, "p50-us")
		b.ReportMetric(float64(all.took.ValueAtQuantile(99))/1000, "p99-us")
	}
}
