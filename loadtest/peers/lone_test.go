package peers

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
	"github.com/headgate/headgate/store"
	"github.com/headgate/headgate/store/redisstore"
)

// BenchmarkLone: where the time of a call goes that nobody else makes one beside: in the process before it is written and after its answer is
// read, for writing it, and until the answer comes, and of that in the script; and the same of a call that sends the commands of one, and does nothing else.
func BenchmarkLone(b *testing.B) {
	const calls = 20_000
	for _, row := range []struct {
		name, command string
		jobs          int
		open          func(*testing.B, *redistest.Server, *stopwatch) func(n int) error
	}{
		{"check/headgate", "fcall", 1, loneCheck},
		{"check/its_commands", "fcall", 1, itsCommands(loneCheck)},
		{"check/redis_rate", "evalsha", 1, func(b *testing.B, server *redistest.Server, watch *stopwatch) func(int) error {
			b.Helper()
			rates, limit := redis_rate.NewLimiter(newClient(b, watch.options(server))), redis_rate.PerSecond(100_000_000)
			return func(n int) error {
				_, err := rates.Allow(b.Context(), tenantOf(n), limit)
				return err
			}
		}},
		{"enqueue/headgate", "fcall", 1, loneEnqueue},
		{"enqueue/its_commands", "fcall", 1, itsCommands(loneEnqueue)},
		{"enqueue/asynq", "evalsha", 1, func(b *testing.B, server *redistest.Server, watch *stopwatch) func(int) error {
			b.Helper()
			client := asynq.NewClient(asynqOn{watch.options(server)})
			b.Cleanup(func() { _ = client.Close() })
			return func(n int) error {
				_, err := client.EnqueueContext(b.Context(), asynq.NewTask("bench", append(fmt.Appendf(nil, "%d ", n), payload...)))
				return err
			}
		}},
		{"batch/headgate", "fcall", store.MaxBatchJobs, loneBatch},
		{"batch/its_commands", "fcall", store.MaxBatchJobs, itsCommands(loneBatch)},
	} {
		b.Run(row.name, func(b *testing.B) {
			for b.Loop() {
				server, watch := redistest.Start(b, redistest.Options{}), &stopwatch{start: time.Now()}
				call, calls, warm := row.open(b, server, watch), calls/row.jobs, warmCalls/row.jobs
				for n := range warm {
					check(b, call(n))
				}
				client := server.Client(b)
				before := redistest.CommandStats(b, client)[row.command]
				var parts [5][]float64
				for n := range calls {
					began := watch.now()
					check(b, call(warm+n))
					at := []int64{began, watch.writes.Load(), watch.written.Load(), watch.read.Load(), watch.now()}
					for i := range at[1:] {
						parts[i] = append(parts[i], float64(at[i+1]-at[i])/1000)
					}
					parts[4] = append(parts[4], float64(at[4]-began)/1000)
				}
				for i, name := range []string{"before-µs", "write-µs", "answer-µs", "after-µs", "all-µs"} {
					slices.Sort(parts[i])
					b.ReportMetric(parts[i][calls/2], name)
				}
				after := redistest.CommandStats(b, client)[row.command]
				b.ReportMetric((after.Micros-before.Micros)/float64(after.Calls-before.Calls), "script-µs")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// warmCalls is how many are made before any is measured: from then on each tenant has a job waiting in each class.
const warmCalls = 3000

func loneCheck(b *testing.B, server *redistest.Server, watch *stopwatch) func(int) error {
	b.Helper()
	ask := checksOf(b, watch.headgate(b, server))
	return func(n int) error { return ask(b.Context(), tenantOf(n)) }
}

func loneEnqueue(b *testing.B, server *redistest.Server, watch *stopwatch) func(int) error {
	b.Helper()
	q := newQueue(b, watch.headgate(b, server)).(*headgateQueue)
	return func(n int) error {
		_, err := q.producer.Enqueue(b.Context(), q.job(tenantOf(n), n))
		return err
	}
}

func loneBatch(b *testing.B, server *redistest.Server, watch *stopwatch) func(int) error {
	b.Helper()
	q := newQueue(b, watch.headgate(b, server)).(*headgateQueue)
	return func(n int) error {
		q.enqueueMany(b, tenantOf, n*store.MaxBatchJobs, (n+1)*store.MaxBatchJobs)
		return nil
	}
}

// itsCommands is the row of what the commands of a call alone take.
func itsCommands(
	open func(*testing.B, *redistest.Server, *stopwatch) func(int) error,
) func(*testing.B, *redistest.Server, *stopwatch) func(int) error {
	return func(b *testing.B, server *redistest.Server, watch *stopwatch) func(int) error {
		b.Helper()
		return replayed(b, server, watch, open(b, server, &stopwatch{start: watch.start}))
	}
}

// stopwatch has the times of the last call on its connections, in nanoseconds since its start.
type stopwatch struct {
	start                 time.Time
	writes, written, read atomic.Int64
}

func (w *stopwatch) now() int64 { return int64(time.Since(w.start)) }

// options are those of a client whose connections it watches.
func (w *stopwatch) options(server *redistest.Server) *redis.Options {
	options := server.Options()
	options.PoolSize = 100
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, network, addr)
		return watched{conn, w}, err
	}
	return options
}

func (w *stopwatch) headgate(b *testing.B, server *redistest.Server) store.Deployment {
	b.Helper()
	s, err := redisstore.Open(b.Context(), newClient(b, w.options(server)), redisstore.Config{})
	check(b, err)
	return s
}

type watched struct {
	net.Conn

	watch *stopwatch
}

func (c watched) Write(p []byte) (int, error) {
	c.watch.writes.Store(c.watch.now())
	n, err := c.Conn.Write(p)
	c.watch.written.Store(c.watch.now())
	return n, err //nolint:wrapcheck // It is a connection.
}

func (c watched) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.watch.read.Store(c.watch.now())
	return n, err //nolint:wrapcheck // It is a connection.
}

// asynqOn is how asynq is told of a client.
type asynqOn struct{ options *redis.Options }

func (o asynqOn) MakeRedisClient() any { return redis.NewClient(o.options) }
