package peers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/lua"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
)

const (
	// overloadTimeout is how long a caller waits at the most: Headgate's default.
	overloadTimeout = 2 * time.Second
	// overloadCallers bounds those that wait at a time, for the memory of the machine.
	overloadCallers = 40_000
	overloadFor     = 3 * time.Second
	overloadTimes   = 10
)

// entrances are the ways to enqueue under overload: an error is a caller that was not served.
var entrances = []struct {
	name string
	open func(testing.TB, *redistest.Server) func(ctx context.Context, number int) error
}{
	{"headgate", func(tb testing.TB, server *redistest.Server) func(context.Context, int) error {
		tb.Helper()
		store, err := lua.Open(tb.Context(), newClient(tb, server.Options()), lua.Config{})
		check(tb, err)
		limits := policy.Unlimited()
		p, err := producer.New(store, producer.Config{Policy: &limits, Timeout: overloadTimeout})
		check(tb, err)
		q := &headgateQueue{store: store, producer: p}
		return func(ctx context.Context, number int) error {
			_, err := p.Enqueue(ctx, q.job(fmt.Sprintf("tenant-%d", number%100), number))
			return err
		}
	}},
	{"asynq", func(tb testing.TB, server *redistest.Server) func(context.Context, int) error {
		tb.Helper()
		q, ok := openAsynq(tb, server).(*asynqQueue)
		if !ok {
			tb.Fatal("no queue of asynq")
		}
		return func(ctx context.Context, number int) error {
			ctx, cancel := context.WithTimeout(ctx, overloadTimeout)
			defer cancel()
			_, err := q.client.EnqueueContext(ctx, asynq.NewTask("bench", append(fmt.Appendf(nil, "%d ", number), payload...)))
			return err
		}
	}},
}

// BenchmarkOverload: a process that is asked for ten times what it can do, as far as 40,000 callers at a time ask: what is let in, as
// part of what 64 callers in a loop had before, and how long the slowest answer took beyond the time-out.
func BenchmarkOverload(b *testing.B) {
	for _, e := range entrances {
		b.Run(e.name, func(b *testing.B) {
			for b.Loop() {
				enter := e.open(b, redistest.Start(b, redistest.Options{}))
				capacity := capacityOf(b, enter)
				o := overload{enter: enter}
				o.run(b.Context(), overloadTimes*capacity)
				b.ReportMetric(float64(o.in.Load())/overloadFor.Seconds()/capacity, "of-capacity")
				b.ReportMetric(float64(o.asked)/overloadFor.Seconds()/capacity, "asked-of-capacity")
				b.ReportMetric(max(0, time.Duration(o.slowest.Load())-overloadTimeout).Seconds()*1000, "late-ms")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// capacityOf is how many jobs a second 64 callers have let in.
func capacityOf(b *testing.B, enter func(context.Context, int) error) float64 {
	b.Helper()
	var in atomic.Int64
	var running sync.WaitGroup
	began := time.Now()
	for range 64 {
		running.Go(func() {
			for time.Since(began) < time.Second {
				check(b, enter(b.Context(), int(in.Add(1))))
			}
		})
	}
	running.Wait()
	return float64(in.Load()) / time.Since(began).Seconds()
}

// overload is callers that come at a rate.
type overload struct {
	enter            func(context.Context, int) error
	in, out, slowest atomic.Int64
	asked            int
	running          sync.WaitGroup
}

// run asks at a rate for overloadFor, and returns when all have their answer. What is let in later than that does not count.
func (o *overload) run(ctx context.Context, rate float64) {
	began := time.Now()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for passed := time.Duration(0); passed < overloadFor; passed = time.Since(began) {
		due := int(rate * passed.Seconds())
		for due > 0 && o.asked < due && o.out.Load() < overloadCallers {
			o.asked++
			o.out.Add(1)
			number := o.asked
			o.running.Go(func() { o.ask(ctx, began, number) })
		}
		<-ticker.C
	}
	o.running.Wait()
}

func (o *overload) ask(ctx context.Context, began time.Time, number int) {
	asked := time.Now()
	err := o.enter(ctx, number)
	answered := time.Now()
	o.out.Add(-1)
	if err == nil && answered.Sub(began) < overloadFor {
		o.in.Add(1)
	}
	for took := int64(answered.Sub(asked)); ; {
		most := o.slowest.Load()
		if took <= most || o.slowest.CompareAndSwap(most, took) {
			return
		}
	}
}

// BenchmarkAway: 40,000 callers ask at the same time, and Redis is gone.
func BenchmarkAway(b *testing.B) {
	for _, e := range entrances {
		b.Run(e.name, func(b *testing.B) {
			for b.Loop() {
				server := redistest.Start(b, redistest.Options{})
				o := overload{enter: e.open(b, server)}
				check(b, o.enter(b.Context(), 0))
				server.Kill(b)
				began := time.Now()
				for number := range overloadCallers {
					o.running.Go(func() { o.ask(b.Context(), began, 1+number) })
				}
				o.running.Wait()
				if o.in.Load() > 0 {
					b.Error(errors.New("somebody was let in"))
				}
				b.ReportMetric(max(0, time.Duration(o.slowest.Load())-overloadTimeout).Seconds()*1000, "late-ms")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}
