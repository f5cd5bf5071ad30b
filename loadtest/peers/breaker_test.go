package peers

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/sony/gobreaker/v2"

	"github.com/headgate/headgate/breaker"
)

// subject is one call that is let through and succeeds.
type subject struct {
	name string
	call func()
}

// subjects returns the same rule, half of at least ten calls in ten seconds, three times over. Headgate is given the
// time, so it is measured with an instant at hand ("headgate") and with one clock reading for each of the two
// steps ("headgate-clock"), which is what the others do inside; failsafe-go also without any clock, counting
// calls instead of time ("failsafe-count").
func subjects(b *testing.B) []subject {
	b.Helper()
	given, err := breaker.NewAt(0, breaker.Config{})
	if err != nil {
		b.Fatal(err)
	}
	clocked, err := breaker.NewAt(0, breaker.Config{})
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	now := func() breaker.Instant { return breaker.Instant(time.Since(start)) }
	timed := circuitbreaker.NewBuilder[any]().WithFailureRateThreshold(0.5, 10, 10*time.Second).Build()
	counted := circuitbreaker.NewBuilder[any]().WithFailureThresholdRatio(5, 10).Build()
	sony := gobreaker.NewCircuitBreaker[any](gobreaker.Settings{
		Interval: 10 * time.Second, BucketPeriod: time.Second,
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.Requests >= 10 && 2*c.TotalFailures >= c.Requests },
	})
	work := func() (any, error) { return nil, nil }
	return []subject{
		{"headgate", func() {
			if c, _, ok := given.TryAcquireAt(1); ok {
				c.SuccessAt(2)
			}
		}},
		{"headgate-clock", func() {
			if c, _, ok := clocked.TryAcquireAt(now()); ok {
				c.SuccessAt(now())
			}
		}},
		{"failsafe-count", func() {
			if counted.TryAcquirePermit() {
				counted.RecordSuccess()
			}
		}},
		{"failsafe-time", func() {
			if timed.TryAcquirePermit() {
				timed.RecordSuccess()
			}
		}},
		{"gobreaker", func() { _, _ = sony.Execute(work) }},
	}
}

// BenchmarkSuccess measures one call that passes and succeeds while closed.
func BenchmarkSuccess(b *testing.B) {
	for _, s := range subjects(b) {
		b.Run("serial/"+s.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.call()
			}
		})
	}
	for _, s := range subjects(b) {
		b.Run("parallel/"+s.name, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					s.call()
				}
			})
		})
	}
}

// BenchmarkFailure measures two calls, one that fails and one that succeeds and so keeps the breaker closed. A failure takes
// the lock and judges the window.
func BenchmarkFailure(b *testing.B) {
	br, err := breaker.NewAt(0, breaker.Config{FailureRate: 1, FailureThreshold: 1_000_000})
	if err != nil {
		b.Fatal(err)
	}
	good, _, _ := br.TryAcquireAt(0)
	good.SuccessAt(0)
	b.ReportAllocs()
	for b.Loop() {
		c, _, _ := br.TryAcquireAt(1)
		c.FailureAt(2)
		good, _, _ := br.TryAcquireAt(3)
		good.SuccessAt(4)
	}
}

// BenchmarkSlices measures success where every slice is ten calls long.
func BenchmarkSlices(b *testing.B) {
	br, err := breaker.NewAt(0, breaker.Config{})
	if err != nil {
		b.Fatal(err)
	}
	var clock atomic.Int64
	b.ReportAllocs()
	for b.Loop() {
		now := breaker.Instant(clock.Add(int64(100 * time.Millisecond)))
		c, _, _ := br.TryAcquireAt(now)
		c.SuccessAt(now)
	}
}

// BenchmarkRefuse measures a call that an open breaker does not let through.
func BenchmarkRefuse(b *testing.B) {
	br, err := breaker.NewAt(0, breaker.Config{})
	if err != nil {
		b.Fatal(err)
	}
	br.ForceOpenAt(0, breaker.Instant(time.Hour), "benchmark")
	b.ReportAllocs()
	for b.Loop() {
		br.TryAcquireAt(1)
	}
}
