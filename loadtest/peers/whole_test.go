package peers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
)

// BenchmarkWholeWay: what a million jobs of 1,000 tenants cost Redis from their admission to their end, first all in, then all out: seconds of
// its processor, and commands, those of scripts and the calls of these included. asynq has no batches; the bare stream, which knows no
// tenants, limits, classes or retries, has those of Headgate.
func BenchmarkWholeWay(b *testing.B) {
	for _, q := range []opened{{"headgate", openHeadgate}, {"asynq", openAsynq}, {"stream", openStream}} {
		b.Run(q.name, func(b *testing.B) { spendOn(b, q, drainAll) })
	}
}

// BenchmarkKeptUp is WholeWay where workers keep up: a batch comes as no more than another runs, and finds free slots. asynq is not in it: its
// workers sleep a second where they find nothing.
func BenchmarkKeptUp(b *testing.B) {
	for _, q := range []opened{{"headgate", openHeadgate}, {"stream", openStream}} {
		b.Run(q.name, func(b *testing.B) { spendOn(b, q, keepUp) })
	}
}

type opened struct {
	name string
	open func(testing.TB, *redistest.Server) queue
}

// spendOn reports what a Redis spends on jobs.
func spendOn(b *testing.B, q opened, pass func(*testing.B, queue, int)) {
	b.Helper()
	const jobs = 60_000
	for b.Loop() {
		server := redistest.Start(b, redistest.Options{})
		queue := q.open(b, server)
		before := spendingOf(b, server)
		pass(b, queue, jobs)
		spent := spendingOf(b, server)
		b.ReportMetric((spent.seconds-before.seconds)/jobs*1e6, "redis-s/1M")
		b.ReportMetric((spent.commands-before.commands)/jobs, "commands/job")
		b.ReportMetric(0, "ns/op")
	}
}

// drainAll has all jobs of 1,000 tenants come, and then run.
func drainAll(b *testing.B, q queue, jobs int) {
	b.Helper()
	drain(b, q, 1000, jobs)
}

// keepUp has jobs of 1,000 tenants come in batches and run.
func keepUp(b *testing.B, q queue, jobs int) {
	b.Helper()
	under := make(chan struct{}, 2*bareBatch)
	stop := q.work(b, 4*bareBatch, func(string, int) { <-under })
	for n := 0; n < jobs; n += bareBatch {
		last := min(n+bareBatch, jobs)
		for range last - n {
			under <- struct{}{}
		}
		q.enqueueMany(b, tenantOf, n, last)
	}
	for range cap(under) {
		under <- struct{}{}
	}
	stop()
}

// spending is what a Redis has spent since it began.
type spending struct{ seconds, commands float64 }

func spendingOf(tb testing.TB, server *redistest.Server) spending {
	tb.Helper()
	info, err := newClient(tb, server.Options()).InfoMap(tb.Context(), "cpu", "stats").Result()
	check(tb, err)
	read := func(section, field string) float64 {
		value, err := strconv.ParseFloat(info[section][field], 64)
		check(tb, err)
		return value
	}
	return spending{read("CPU", "used_cpu_user") + read("CPU", "used_cpu_sys"), read("Stats", "total_commands_processed")}
}

// streamQueue is a stream and a consumer group, and nothing else.
type streamQueue struct{ client *redis.Client }

const bareStream, bareGroup, bareBatch = "bare", "g", 64

func openStream(tb testing.TB, server *redistest.Server) queue {
	tb.Helper()
	client := newClient(tb, server.Options())
	check(tb, client.XGroupCreateMkStream(tb.Context(), bareStream, bareGroup, "0").Err())
	return &streamQueue{client}
}

func (q *streamQueue) add(ctx context.Context, to redis.Cmdable, tenant string, number int) *redis.StringCmd {
	return to.XAdd(ctx, &redis.XAddArgs{Stream: bareStream, Values: []any{"t", tenant, "n", number, "p", payload}})
}

func (q *streamQueue) enqueue(tb testing.TB, tenant string, number int) {
	tb.Helper()
	check(tb, q.add(tb.Context(), q.client, tenant, number).Err())
}

func (q *streamQueue) enqueueMany(tb testing.TB, tenant func(number int) string, first, last int) {
	tb.Helper()
	for ; first < last; first += bareBatch {
		pipe := q.client.Pipeline()
		for n := first; n < min(first+bareBatch, last); n++ {
			q.add(tb.Context(), pipe, tenant(n), n)
		}
		_, err := pipe.Exec(tb.Context())
		check(tb, err)
	}
}

func (q *streamQueue) work(tb testing.TB, _ int, run handle) func() {
	tb.Helper()
	var over atomic.Bool
	stop := background(tb, func(ctx context.Context) error {
		for !over.Load() {
			streams, err := q.client.XReadGroup(ctx, &redis.XReadGroupArgs{
				Group: bareGroup, Consumer: "w", Streams: []string{bareStream, ">"}, Count: bareBatch, Block: 100 * time.Millisecond,
			}).Result()
			if errors.Is(err, redis.Nil) {
				continue
			}
			if err != nil {
				return nil //nolint:nilerr // the benchmark is over
			}
			ids := make([]string, len(streams[0].Messages))
			for i, m := range streams[0].Messages {
				ids[i] = m.ID
				n, err := strconv.Atoi(fmt.Sprint(m.Values["n"]))
				if err != nil {
					return err
				}
				run(fmt.Sprint(m.Values["t"]), n)
			}
			pipe := q.client.Pipeline()
			pipe.XAck(ctx, bareStream, bareGroup, ids...)
			pipe.XDel(ctx, bareStream, ids...)
			if _, err := pipe.Exec(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	return func() { over.Store(true); stop() }
}
