package limiter

import (
	"sync"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/headgate/headgate/admission"
)

// BenchmarkOutage measures how long checks of 16 callers take from the moment in which Redis goes away, with the default time-out
// of 50 ms: law L13 asks for a p99 of at most 5 ms more.
func BenchmarkOutage(b *testing.B) {
	for _, fault := range faults {
		b.Run("fault="+fault.name, func(b *testing.B) {
			o := newOutage(b, Config{Policy: limited(admission.PerSecond(1000), none), Outage: OutageOpen, Exact: true})
			for b.Loop() {
				until(b, o.limiter, Request{})
				fault.begin(b, o.server, o.proxy)
				all := o.measure(b)
				b.ReportMetric(float64(all.ValueAtQuantile(99))/1000, "p99-ms")
				b.ReportMetric(float64(all.Max())/1000, "max-ms")
				fault.over(b, o.server, o.proxy)
			}
		})
	}
}

// measure makes checks for a second, a millisecond apart for each of 16 callers, and returns how many microseconds each took.
func (o *outage) measure(b *testing.B) *hdrhistogram.Histogram {
	b.Helper()
	all := hdrhistogram.New(1, int64(time.Minute/time.Microsecond), 3)
	var mu sync.Mutex
	var callers sync.WaitGroup
	end := time.Now().Add(time.Second)
	for range 16 {
		callers.Go(func() {
			for tick := time.NewTicker(time.Millisecond); time.Now().Before(end); <-tick.C {
				began := time.Now()
				ask(b, o.limiter, Request{})
				took := time.Since(began).Microseconds()
				mu.Lock()
				check(b, all.RecordValue(max(1, took)))
				mu.Unlock()
			}
		})
	}
	callers.Wait()
	return all
}
