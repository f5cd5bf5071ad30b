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
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/headgate/headgate/admission"
	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/policy"
	"github.com/headgate/headgate/producer"
	"github.com/headgate/headgate/store/redisstore"
)

const (
	// overloadTimeout is how long a caller waits at the most: Headgate's default.
	overloadTimeout = 2 * time.Second
	// overloadCallers bounds those that wait at a time, for the memory of the machine.
	overloadCallers = 40_000
	overloadFor     = 3 * time.Second
	overloadTimes   = 10
	// overloadTurn is how many callers a goroutine is for, about, of those that are turned away.
	overloadTurn = 16
)

// entrances are the ways to enqueue under overload: an error is a caller that was not served.
var entrances = []struct {
	name string
	open func(tb testing.TB, addr string) func(ctx context.Context, number int) error
}{
	{"headgate", func(tb testing.TB, addr string) func(context.Context, int) error {
		tb.Helper()
		s, err := redisstore.Open(tb.Context(), newClient(tb, &redis.Options{Addr: addr, Protocol: 2, MaxRetries: -1, PoolSize: 100}), redisstore.Config{})
		check(tb, err)
		limits := policy.Unlimited()
		p, err := producer.New(s, producer.Config{Policy: &limits, Timeout: overloadTimeout})
		check(tb, err)
		q := &headgateQueue{store: s, producer: p}
		jobs := make([]admission.Job, 100) // of a tenant each
		for i := range jobs {
			jobs[i] = q.job(fmt.Sprintf("tenant-%d", i), i)
		}
		return func(ctx context.Context, number int) error {
			_, err := p.Enqueue(ctx, jobs[number%len(jobs)])
			return err
		}
	}},
	{"asynq", func(tb testing.TB, addr string) func(context.Context, int) error {
		tb.Helper()
		client := asynq.NewClient(asynq.RedisClientOpt{Addr: addr, PoolSize: 100})
		tb.Cleanup(func() { _ = client.Close() })
		return func(ctx context.Context, number int) error {
			ctx, cancel := context.WithTimeout(ctx, overloadTimeout)
			defer cancel()
			_, err := client.EnqueueContext(ctx, asynq.NewTask("bench", append(fmt.Appendf(nil, "%d ", number), payload...)))
			return err
		}
	}},
}

// BenchmarkOverload: a process that is asked for ten times what it can do, as far as 40,000 callers at a time ask: what is let in, as
// part of what 64 or 2,000 callers in a loop had before, and how long the slowest answer took beyond the time-out. Beside Redis on the same
// machine the callers of a process that are turned away need the processors that it and Redis need, so what was let in is given as part of
// what those had beside as many callers that ask nobody, too; with Redis 30 ms away the calls under way are what bounds it.
func BenchmarkOverload(b *testing.B) {
	for _, e := range entrances {
		for _, of := range []struct {
			name    string
			callers int
			away    bool
		}{{e.name, 64, false}, {e.name + "-of-2000", 2000, false}, {e.name + "-30ms", 2000, true}} {
			b.Run(of.name, func(b *testing.B) {
				for b.Loop() {
					addr := redistest.Start(b, redistest.Options{}).Addr()
					if of.away {
						addr = distant(b, addr, 30*time.Millisecond)
					}
					enter := e.open(b, addr)
					capacity := capacityOf(b, of.callers, enter)
					var o overload
					o.enter = enter
					o.run(b.Context(), overloadTimes*capacity)
					b.ReportMetric(float64(o.in.Load())/overloadFor.Seconds()/capacity, "of-capacity")
					if !of.away {
						b.ReportMetric(float64(o.in.Load())/overloadFor.Seconds()/besideIdle(b, of.callers, overloadTimes*capacity, enter), "of-capacity-beside-idle")
					}
					b.ReportMetric(float64(o.asked.Load())/overloadFor.Seconds()/capacity, "asked-of-capacity")
					b.ReportMetric(max(0, time.Duration(o.slowest.Load())-overloadTimeout).Seconds()*1000, "late-ms")
					b.ReportMetric(capacity, "jobs/s")
					b.ReportMetric(0, "ns/op")
				}
			})
		}
	}
}

// distant returns where a server answers so much later.
func distant(b *testing.B, addr string, by time.Duration) string {
	b.Helper()
	proxy := redistest.NewProxy(b, addr)
	proxy.Decide(func(redistest.Command) redistest.Action { return redistest.Action{Delay: by} })
	return proxy.Addr()
}

// capacityOf is how many jobs a second so many callers have let in.
func capacityOf(b *testing.B, callers int, enter func(context.Context, int) error) float64 {
	b.Helper()
	var in atomic.Int64
	var running sync.WaitGroup
	began := time.Now()
	for range callers {
		running.Go(func() {
			for time.Since(began) < time.Second {
				check(b, enter(b.Context(), int(in.Add(1))))
			}
		})
	}
	running.Wait()
	return float64(in.Load()) / time.Since(began).Seconds()
}

// besideIdle is capacityOf while others come at a rate, each of which is turned away by nobody.
func besideIdle(b *testing.B, callers int, rate float64, enter func(context.Context, int) error) float64 {
	b.Helper()
	idle := overload{enter: func(context.Context, int) error { return admission.ErrOverloaded }}
	var coming sync.WaitGroup
	coming.Go(func() { idle.run(b.Context(), rate) })
	time.Sleep(overloadFor / 6) //nolint:forbidigo // The first come late, and many at a time.
	capacity := capacityOf(b, callers, enter)
	coming.Wait()
	b.ReportMetric(float64(idle.asked.Load())/overloadFor.Seconds()/rate, "idle-came-of-due")
	return capacity
}

// overload is callers that come at a rate. A goroutine that was turned away is the next caller that is due, and ends where none is: one that
// slept until then cost more than the entrance that is measured, a timer and two switches for each of 300,000 callers a second.
type overload struct {
	enter              func(context.Context, int) error
	asked, in, slowest atomic.Int64
	running            sync.WaitGroup
}

// run asks at a rate for overloadFor, and returns when all have their answer. What is let in later than that does not count.
func (o *overload) run(ctx context.Context, rate float64) {
	began := time.Now()
	dueAt := func(number int64) time.Duration { return time.Duration(float64(number) / rate * float64(time.Second)) }
	var there atomic.Int64
	caller := func() {
		defer there.Add(-1)
		for {
			number := o.asked.Load()
			if at, now := dueAt(number), time.Since(began); at > now || at >= overloadFor || now >= overloadFor {
				return
			}
			if o.asked.CompareAndSwap(number, number+1) {
				o.ask(ctx, began, int(number))
			}
		}
	}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for time.Since(began) < overloadFor {
		due := int64((time.Since(began) - dueAt(o.asked.Load())) / dueAt(1))
		for range min(due/overloadTurn+1, overloadCallers-there.Load()) {
			there.Add(1)
			o.running.Go(caller)
		}
		<-ticker.C
	}
	o.running.Wait()
}

// ask makes one call and notes what came of it.
func (o *overload) ask(ctx context.Context, began time.Time, number int) {
	asked := time.Now()
	err := o.enter(ctx, number)
	answered := time.Now()
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
	logging.Disable() // go-redis writes a line to stderr for each failed dial.
	for _, e := range entrances {
		b.Run(e.name, func(b *testing.B) {
			for b.Loop() {
				server := redistest.Start(b, redistest.Options{})
				o := overload{enter: e.open(b, server.Addr())}
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
