//go:build unix

package limiter

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/redis/go-redis/v9"

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

// zipfRanks are drawn before the clock runs: callers take them in runs.
func zipfRanks(n int) []uint32 {
	ranks := make([]uint32, n)
	draw := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, zipfLeaves-1)
	for i := range ranks {
		ranks[i] = uint32(draw.Uint64()) //nolint:gosec // below zipfLeaves
	}
	return ranks
}

// zipfSpent is the processor time of this process and of a Redis so far.
func zipfSpent(b *testing.B, redis *redis.Client) (process, server time.Duration) {
	b.Helper()
	var used syscall.Rusage
	check(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	info, err := redis.InfoMap(b.Context(), "cpu").Result()
	check(b, err)
	for _, field := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(info["CPU"][field], 64)
		check(b, err)
		server += time.Duration(seconds * float64(time.Second))
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()), server
}

// zipf is a limiter that is asked by Zipf's law, and the draws of who asks.
type zipf struct {
	*testing.B
	limiter  *Limiter
	redis    *redis.Client
	requests []Request
	ranks    []uint32
	next     atomic.Uint64
	// paced is the time of Redis and of the limiter where it goes on by what is asked, rate checks a second; nil where it is that of the machine.
	paced *virtual
	rate  uint64
}

// run is how many checks a caller draws at a time.
const zipfRun = 256

// drive has so many callers ask one check after the other for a while.
func (z *zipf) drive(callers int, span time.Duration) *zipfTally {
	all := &zipfTally{took: hdrhistogram.New(1, int64(time.Minute), 2)}
	var asking sync.WaitGroup
	end := z.limiter.clock.now().Add(span)
	for range callers {
		asking.Go(func() {
			mine := &zipfTally{took: hdrhistogram.New(1, int64(time.Minute), 2)}
			for z.limiter.clock.now() < end {
				at := z.next.Add(1) - 1
				if z.paced != nil && at%16 == 0 {
					z.paced.pass(16 * zipfRun * time.Second / time.Duration(z.rate)) //nolint:gosec // a rate is far below
				}
				if !z.ask(z.ranks[at*zipfRun%uint64(len(z.ranks)):][:zipfRun], mine) {
					return
				}
			}
			all.add(mine)
		})
	}
	asking.Wait()
	return all
}

// ask makes checks, and reports whether all were answered.
func (z *zipf) ask(ranks []uint32, tally *zipfTally) bool {
	began := time.Now()
	for _, rank := range ranks {
		v, err := z.limiter.Check(z.Context(), z.requests[rank])
		if err != nil {
			z.Error(err)
			return false
		}
		tally.by[v.Source]++
		if !v.Admitted {
			tally.refused++
		}
		now := time.Now()
		_ = tally.took.RecordValue(max(1, now.Sub(began).Nanoseconds()))
		began = now
	}
	return true
}

// measure drives for a while and reports what it took.
func (z *zipf) measure(callers int, span time.Duration) {
	began, before := time.Now(), z.limiter.Stats()
	process, server := zipfSpent(z.B, z.redis)
	all := z.drive(callers, span)
	processNow, serverNow := zipfSpent(z.B, z.redis)
	sum, after := float64(all.took.TotalCount()), z.limiter.Stats()
	z.ReportMetric(sum/time.Since(began).Seconds(), "checks/s")
	z.ReportMetric(100*float64(all.by[Leased])/sum, "%leased")
	z.ReportMetric(100*float64(all.by[Exact])/sum, "%exact")
	z.ReportMetric(100*float64(all.by[Cached])/sum, "%cached")
	z.ReportMetric(100*float64(all.refused)/sum, "%refused")
	z.ReportMetric(float64(all.took.ValueAtQuantile(50))/1000, "p50-us")
	z.ReportMetric(float64(all.took.ValueAtQuantile(99))/1000, "p99-us")
	z.ReportMetric(float64((processNow-process).Nanoseconds())/1000/sum, "process-us/check")
	z.ReportMetric(float64((serverNow-server).Nanoseconds())/1000/sum, "redis-us/check")
	z.ReportMetric(float64(after.Calls-before.Calls)/sum*1000, "calls/1000")
	z.ReportMetric(float64(after.Grants-before.Grants)/sum*1000, "leases/1000")
	z.ReportMetric(0, "ns/op")
}

// BenchmarkZipf is T14: one process, a million scopes, Zipf with s = 1.1, warm. How long a check takes that waits for Redis goes by how many callers
// share two cores with it, so there are few and many.
func BenchmarkZipf(b *testing.B) {
	client := redistest.Shared(b).Client(b)
	z := &zipf{B: b, redis: client, ranks: zipfRanks(1 << 25)}
	var limits *policy.Policy
	z.requests, limits = zipfRequests()
	z.limiter = start(b, open(b, client), Config{Policy: limits, Timeout: patient})
	z.drive(manyCallers, zipfWarm)
	for _, callers := range []int{16, manyCallers} {
		b.Run("callers="+strconv.Itoa(callers), func(b *testing.B) {
			z.B = b
			for b.Loop() {
				z.measure(callers, zipfSpan)
			}
		})
	}
}

const manyCallers = 128

const zipfWarm, zipfSpan = 60 * time.Second, 5 * time.Second

// BenchmarkZipfPaced is the same on a machine on which time goes on by what is asked, so many checks a second: what a check takes of the
// processors at that rate, wherever it is measured.
func BenchmarkZipfPaced(b *testing.B) {
	ranks := zipfRanks(1 << 25)
	for _, rate := range []uint64{100_000, 300_000, 1_000_000} {
		b.Run("rate="+strconv.FormatUint(rate, 10), func(b *testing.B) {
			z := &zipf{B: b, ranks: ranks, paced: newVirtual(), rate: rate}
			z.redis = redistest.Start(b, redistest.Options{}).Client(b)
			z.redis.AddHook(timed{hook{z.paced, z.redis}})
			var limits *policy.Policy
			z.requests, limits = zipfRequests()
			z.limiter = start(b, open(b, z.redis), Config{Policy: limits, Timeout: patient})
			z.limiter.clock.set = &z.paced.process
			z.drive(manyCallers, zipfWarm)
			for b.Loop() {
				z.measure(manyCallers, zipfSpan/2)
			}
		})
	}
}

// timed is hook without a second command after a script: nobody waits for a lease's key to go.
type timed struct{ hook }

func (t timed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if redistest.IsScript(cmd.Name()) && cmd.Args()[4] == "" {
			cmd.Args()[4] = strconv.FormatInt(t.redis.Load(), 10)
		}
		return next(ctx, cmd)
	}
}
