package peers

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/headgate/headgate/internal/redistest"
)

func newClient(tb testing.TB, options *redis.Options) *redis.Client {
	tb.Helper()
	client := redis.NewClient(options)
	tb.Cleanup(func() { _ = client.Close() })
	return client
}

// asynqQueue is asynq as its README sets it up: one queue. The tenant and the number travel in the payload.
type asynqQueue struct {
	redis  asynq.RedisClientOpt
	client *asynq.Client
}

func newAsynq(tb testing.TB) queue {
	tb.Helper()
	return openAsynq(tb, redistest.Start(tb, redistest.Options{}))
}

func openAsynq(tb testing.TB, server *redistest.Server) queue {
	tb.Helper()
	options := asynq.RedisClientOpt{Addr: server.Addr(), PoolSize: 100}
	client := asynq.NewClient(options)
	tb.Cleanup(func() { _ = client.Close() })
	return &asynqQueue{redis: options, client: client}
}

func (q *asynqQueue) enqueue(tb testing.TB, tenant string, number int) {
	tb.Helper()
	body := append(fmt.Appendf(nil, "%s %d ", tenant, number), payload...)
	_, err := q.client.EnqueueContext(tb.Context(), asynq.NewTask("bench", body))
	check(tb, err)
}

func (q *asynqQueue) enqueueMany(tb testing.TB, tenant func(int) string, first, last int) {
	tb.Helper()
	enqueueTogether(tb, q, tenant, first, last)
}

// enqueueTogether uses 64 goroutines: asynq has no batches.
func enqueueTogether(tb testing.TB, q queue, tenant func(int) string, first, last int) {
	tb.Helper()
	const producers = 64
	var wg sync.WaitGroup
	for k := range producers {
		wg.Go(func() {
			for n := first + k; n < last; n += producers {
				q.enqueue(tb, tenant(n), n)
			}
		})
	}
	wg.Wait()
}

func (q *asynqQueue) work(tb testing.TB, slots int, run handle) func() {
	tb.Helper()
	return serveAsynq(tb, q.redis, asynq.Config{Concurrency: slots, LogLevel: asynq.FatalLevel}, run)
}

func serveAsynq(tb testing.TB, redis asynq.RedisClientOpt, config asynq.Config, run handle) func() {
	tb.Helper()
	server := asynq.NewServer(redis, config)
	check(tb, server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		var tenant string
		var n int
		_, _ = fmt.Sscan(string(task.Payload()), &tenant, &n)
		run(tenant, n)
		return nil
	})))
	return server.Shutdown
}
